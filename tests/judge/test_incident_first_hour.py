"""The first hour as a checklist: what the ledger shows to be done, and the one thing to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import schemas
from lineage.judge import graph, recovery, replay_ladder
from lineage.judge.first_hour import Facts, Item, checklist, following
from lineage.judge.gate import Held, gate
from lineage.judge.incident_life import lives
from lineage.judge.recovery import Asked

from .builders import History, uid
from .test_incident_gate import CELL, GOOD, bundle, everything, history
from .test_incident_life import FP32, replay

HELD = Held(lambda p: True, lambda b: True, lambda s: True, lambda p: True)
BADCELL = schemas.FirstBad(
    cell=CELL,
    last_good_checkpoint=GOOD,
    symptoms=[schemas.Symptom.model_validate({"class": "one_rank", "reason": "7 of 8 are in range"})],
)


def facts(h: History, bad: schemas.FirstBad | None = BADCELL, **more: Any) -> Facts:
    g = graph.build(h.records)
    (life,) = lives(h.records)
    found = gate(h.records, life, g, bad, HELD, "RUN")
    return replace(Facts("RUN", life, g, h.records, found, bad), **{"bundle": "B", **more})


def items(h: History, **more: Any) -> dict[str, Item]:
    return {i.key: i for i in checklist(facts(h, **more))}


def add(h: History, reached: schemas.IncidentStatus | None = None, **said: Any) -> None:
    (life,) = lives(h.records)
    h.add(life.adds(reached, **said), 1)


def decide(h: History, *planned: schemas.PlannedMitigation) -> None:
    decision = schemas.Recovery(
        uid=uid(910),
        incident=uid(900),
        restart=schemas.RestartPoint(checkpoint=GOOD, step=5, segment=uid(1), path="/ck/5", why="last good"),
        cost=schemas.RecoveryCost(devices=2, waiting_per_hour=2.0),
        owner="ann",
        mitigations=list(planned),
        policy="sha256:00",
    )
    h.add(decision, 1)


def walk(h: History) -> str:
    found = following(checklist(facts(h)))
    return found.key if found else "nothing"


def test_the_whole_hour_leads_from_one_thing_to_the_next_and_ends() -> None:
    """Each record makes its item done, and the next one is named with its command, until nothing is left."""
    h = history()
    seen = [walk(h)]
    steps: Sequence[Any] = (
        lambda: add(h, owner="ann"),
        lambda: add(h, messages=[schemas.Message(to="ops")]),
        lambda: everything(h),
        lambda: h.add(schemas.Coverage(recorded=["hardware events: 8 GPUs"]), 1),
        lambda: h.add(replay(901), 1),
        lambda: h.add(replay(902, changes=[FP32], control=uid(901), flips=True), 1),
        lambda: add(h, "diagnosed", note="unknown"),
        lambda: decide(h),
        lambda: h.segment(2, parent=50, at=5),
        lambda: h.add(
            schemas.Trajectory(
                incident=uid(900), segment=uid(2), before=[uid(1)], from_step=5, reached=9, horizons=[]
            ),
            1,
        ),
        lambda: add(h, "recovered"),
        lambda: add(h, "closed", note="learnt"),
    )
    for step in steps:
        step()
        seen.append(walk(h))
    assert seen == [
        "opened",
        "told",
        "evidence",
        "machines",
        "replayed",
        "one_change",
        "diagnosed",
        "decided",
        "resumed",
        "compared",
        "recovered",
        "closed",
        "nothing",
    ]


def test_every_command_is_filled_in() -> None:
    """Nothing but a name, a reason or a time is left for a tired person to look up."""
    for item in checklist(facts(history(), unmarked=2)):
        for command in item.commands:
            assert "RUN" in command or "resumed_from" in command or command.startswith("lineage replay B ")


def test_a_run_whose_end_is_not_on_record_is_not_contained() -> None:
    h = History()
    h.add(schemas.Segment(uid=uid(1), place=schemas.Place(node="n", pid=1), start="fresh"), 1)
    h.add(schemas.Incident(uid=uid(900), title="NaN", first_bad_step=7), 1)
    item = items(h, bad=None)["contained"]
    assert (item.state, item.commands) == (
        "todo",
        ("lineage incident contain RUN --how 'HOW IT WAS STOPPED'",),
    )
    add(h, "contained", note="job 4711 cancelled", by="ann")
    done = items(h, bad=None)["contained"]
    assert done.state == "done"
    assert "by ann: job 4711 cancelled" in done.text


def test_checkpoints_without_a_mark_keep_it_from_being_contained() -> None:
    item = items(history(), unmarked=3)["contained"]
    assert (item.state, item.commands) == ("todo", ("lineage quarantine RUN",))
    assert "3 checkpoints" in item.text


def test_a_restart_before_the_evidence_was_held_is_said_although_it_is_held_now() -> None:
    h = history()
    h.segment(2, parent=50, at=5)
    everything(h)
    add(h, "evidence_held")
    item = items(h)["evidence"]
    assert item.state == "done"
    assert item.warnings == ("segment 2 resumed before the evidence was held",)


def test_that_it_was_resumed_is_no_diagnosis_and_no_decision() -> None:
    """A run that goes on leaves the cause as open as it was."""
    h = history()
    h.segment(2, parent=50, at=5)
    found = items(h)
    assert found["diagnosed"].state == "todo"
    assert found["decided"].state == "todo"
    assert found["resumed"].state == "part"
    assert "no decision is on record" in found["resumed"].text


@pytest.mark.parametrize(
    ("symptom", "first"),
    [
        ("one_rank", "other-rank-batch"),
        ("global", "fp32"),
        ("after_restart", "optimizer-reset"),
        ("unknown", "fp32"),
    ],
)
def test_the_condition_to_change_first_is_the_one_that_tells_most_of_this_symptom(
    symptom: str, first: str
) -> None:
    h = history()
    bundle(h)
    h.add(replay(901), 1)
    bad = BADCELL.model_copy(
        update={"symptoms": [schemas.Symptom.model_validate({"class": symptom, "reason": "x"})]}
    )
    (command,) = items(h, bad=bad)["one_change"].commands
    assert command == f"lineage replay B --with your_module:build --change {first}"


def test_a_condition_that_was_tried_is_not_named_again() -> None:
    h = history()
    bundle(h)
    h.add(replay(901), 1)
    h.add(replay(902, changes=[{**FP32, "name": "other-rank-batch"}], control=uid(901), flips=False), 1)
    item = items(h)["one_change"]
    assert item.text == "other-rank-batch: does not flip it"
    assert item.commands[0].endswith("--change fp32")


def test_replays_with_several_changes_count_for_nothing() -> None:
    h = history()
    bundle(h)
    h.add(replay(902, changes=[FP32, {**FP32, "name": "no-compile"}], confounded=True, flips=True), 1)
    item = items(h)["one_change"]
    assert item.state == "todo"
    assert "nothing follows from them" in item.warnings[0]


def test_a_replay_that_flips_leads_to_the_cause_with_its_uid() -> None:
    h = history()
    bundle(h)
    h.add(replay(901), 1)
    h.add(replay(902, changes=[FP32], control=uid(901), flips=True), 1)
    (command,) = items(h)["diagnosed"].commands
    assert command.startswith(f"lineage incident cause RUN --replay {uid(902)} ")


def test_without_a_bundle_there_is_nothing_to_replay_and_the_hour_goes_on() -> None:
    h = history()
    found = items(h, bundle=None)
    assert found["replayed"].state == found["one_change"].state == "none"
    assert found["diagnosed"].commands[0].startswith("lineage incident cause RUN --unknown")


def test_a_decision_that_was_written_down_after_the_restart_is_said_to_be_so() -> None:
    h = history()
    h.segment(2, parent=50, at=5)
    decide(h)
    item = items(h)["resumed"]
    assert (item.state, item.warnings) == ("done", ("it began before the decision was written down",))


def drifted(h: History, *changes: schemas.Change) -> None:
    h.add(schemas.Drift(from_step=6, changes=list(changes), confounded=False), 2)


def test_a_resume_that_does_otherwise_than_was_decided_is_said() -> None:
    """A decided change that nothing shows, one with another value, and one that nobody decided."""
    h = history()
    clip = schemas.PlannedMitigation.model_validate(
        {"uid": uid(911), "concept": "grad_clip", "class": "R", "after": schemas.Scalar.of(0.3), "why": "x"}
    )
    decide(h, clip)
    h.segment(2, parent=50, at=5)
    assert items(h)["resumed"].warnings == (), "it was not compared yet, so nothing is shown"
    drifted(h, recovery.change_of(Asked("learning_rate", "1e-4", "x"), schemas.Scalar.of(1e-3)))
    assert items(h)["resumed"].warnings == (
        "decided and not in effect there: gradient clipping (0.3)",
        "changed there and not decided: peak learning rate",
    )
    other = history()
    decide(other, clip)
    other.segment(2, parent=50, at=5)
    drifted(other, recovery.change_of(Asked("grad_clip", "0.5", "x"), schemas.Scalar.of(1.0)))
    assert items(other)["resumed"].warnings == (
        "decided as (0.3), and in effect as 0.5: gradient clipping",
        "made without rec.mitigate(...): gradient clipping",
    )


def test_a_segment_that_started_elsewhere_does_not_carry_the_decision_out() -> None:
    h = history()
    decide(h)
    h.segment(2, parent=51, at=9)
    item = items(h)["resumed"]
    assert item.state == "todo"
    assert item.warnings == ("segment 2 began from somewhere else",)


def test_an_incident_by_hand_at_a_step_where_nothing_is_abnormal_says_so() -> None:
    item = items(history(), bad=None)["located"]
    assert item.state == "part"
    assert "said by hand to be step 7" in item.text


def test_the_names_of_the_ladder_are_known_to_the_replay_command() -> None:
    conditions = pytest.importorskip("lineage.replay.conditions")
    known = set(conditions.CONDITIONS)
    named = {n for names in replay_ladder.LADDER.values() for n in names} | set(replay_ladder.ANY)
    assert named <= known


def ranks(h: History, n: int) -> None:
    """The run has so many ranks, each with its bundle of the step."""
    at = next(i for i, r in enumerate(h.records) if r.kind == "segment")
    info = h.records[at].payload.model_copy(update={"world_size": n})
    h.records[at] = replace(h.records[at], payload=info)
    for rank in range(n):
        bundle(h, rank=rank)


def test_a_step_that_is_clean_on_one_device_is_made_again_at_the_runs_size_before_anything_is_changed() -> (
    None
):
    h = history()
    ranks(h, 2)
    clean = {"result": "not_reproduced", "parameters": {"with": schemas.Scalar.of("train:build")}}
    h.add(replay(901, **clean), 1)
    found = items(h, bundles="C")
    assert found["replayed"].state == "part"
    assert found["replayed"].commands == (
        "torchrun --nproc-per-node 2 -m lineage replay C --step 7 --with train:build",
    )
    assert found["one_change"].state == "none"
    assert "nothing that one change could take away" in found["one_change"].text
    alone = items(h, bundles=None)["replayed"]
    assert (alone.state, alone.commands) == ("done", ())
    assert "cannot be made again at the run's size" in alone.text
    h.add(replay(902, world_size=2, **clean), 1)
    done = items(h, bundles="C")
    assert (done["replayed"].state, done["one_change"].state) == ("done", "none")
    assert (
        done["replayed"].text == "on one device: not reproduced; at the run's size (2 ranks): not reproduced"
    )


def test_what_shows_at_the_runs_size_alone_is_changed_there_and_one_device_is_a_change() -> None:
    h = history()
    ranks(h, 2)
    h.add(replay(901, result="not_reproduced"), 1)
    h.add(replay(902, world_size=2), 1)
    (command,) = items(h, bundles="C")["one_change"].commands
    assert command.startswith("torchrun --nproc-per-node 2 -m lineage replay C --step 7 ")
    assert command.endswith(" --change other-rank-batch")
    h.add(replay(903, world_size=2, changes=[{**FP32, "name": "other-rank-batch"}], flips=False), 1)
    (command,) = items(h, bundles="C")["one_change"].commands
    assert command == "lineage replay B --with your_module:build --change single-device"


def test_the_batch_of_another_rank_is_named_only_where_it_is_there_and_a_sample_that_stands_out_first() -> (
    None
):
    h = history()
    bundle(h)
    h.add(replay(901), 1)
    assert items(h, others=False)["one_change"].commands[0].endswith("--change fp32")
    for micro, name in ((0, "5"), (1, "1.5")):
        sample = schemas.BadSample(micro=micro, place=5, loss=9.0, text="9, 1 was usual")
        bad = BADCELL.model_copy(update={"samples": [sample]})
        assert items(h, bad=bad)["one_change"].commands[0].endswith(f"--change without-sample:{name}")


def test_the_family_that_the_replay_raises_stands_in_the_command_where_it_is_one() -> None:
    h = history()
    bundle(h)
    h.add(replay(901), 1)
    raised = {"family": "numerics", "direction": "raises", "text": "x", "rule": "r", "source": "s"}
    h.add(replay(902, changes=[FP32], control=uid(901), flips=True, effects=[raised]), 1)
    (command,) = items(h)["diagnosed"].commands
    assert " --family numerics " in command


def test_a_site_without_a_log_of_its_machines_is_not_kept_from_going_on() -> None:
    h = history()
    bundle(h)
    assert items(h)["machines"].state == "todo"
    h.add(replay(901), 1)
    item = items(h)["machines"]
    assert (item.state, item.text.endswith("it was gone on without")) == ("none", True)
