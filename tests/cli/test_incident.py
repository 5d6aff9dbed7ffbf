"""`lineage incident`: the first hour, walked on real runs that broke, from any process that sees the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import schemas
from lineage.judge.incident_life import lives
from lineage.ledger import evidence
from lineage.ledger.journal import Journal
from tests.recorder.loop import Loop, attach
from tests.secret_samples import SAMPLES, planted
from tests.warm import Warm

from .incident_run import BAD, MAIN, Case


@pytest.fixture
def case(tmp_path: Path, warm_reader: Warm) -> Case:
    return Case(tmp_path, warm_reader)


@pytest.fixture
def broken(case: Case) -> Case:
    """A run of 26 steps whose loss is NaN at step 24; checkpoints of steps 5 to 25."""
    case.train(26)
    return case


def test_the_checklist_knows_what_the_ledger_shows_and_names_the_next_command(broken: Case) -> None:
    done = broken.run("incident", broken.ledger.path)
    assert done.returncode == 1, done.stderr
    assert f"rank 0, step {BAD}" in done.stdout
    assert (
        f"next: Opened, with an owner\n    lineage incident note {broken.ledger.path} --owner NAME"
        in done.stdout
    )
    told = broken.walk()
    state = {i["key"]: i["state"] for i in told["items"]}
    assert (state["contained"], state["located"], state["evidence"]) == ("done", "done", "part")
    assert (told["status"], told["next"], told["gate_open"]) == ("open", "opened", False)
    broken.ok(
        "incident", "note", broken.ledger.path, "--owner", "ann", "--told", "ops: stopped", "--by", "ann"
    )
    assert broken.walk()["next"] == "evidence"
    assert broken.walk()["items"][3]["commands"] == [f"lineage incident preserve {broken.ledger.path}"]


def test_walking_changes_nothing(broken: Case) -> None:
    before = {p: p.read_bytes() for p in broken.root.rglob("*") if p.is_file()}
    broken.run("incident", broken.ledger.path)
    assert {p: p.read_bytes() for p in broken.root.rglob("*") if p.is_file()} == before


def test_the_latest_run_is_meant_where_none_is_named(broken: Case) -> None:
    done = broken.run("incident", LINEAGE_DIR=str(broken.root))
    assert f"rank 0, step {BAD}" in done.stdout
    assert "The first hour: a checklist" in broken.ok("incident", "--help")


def test_preserving_makes_the_evidence_item_done_with_who_and_when(broken: Case) -> None:
    broken.ok("incident", "preserve", broken.ledger.path)
    told = broken.walk()
    assert told["gate_open"]
    assert {m["status"] for m in told["milestones"]} == {"open", "evidence_held"}
    evidence = {e["what"]: e["state"] for e in told["evidence"] if e["required"]}
    assert set(evidence.values()) == {"held"}
    assert set(evidence) == {"last good checkpoint", "first bad checkpoint", "first bad batch", "rank files"}


def test_what_was_kept_and_is_deleted_afterwards_closes_the_gate_again(broken: Case) -> None:
    broken.ok("incident", "preserve", broken.ledger.path)
    (kept,) = (broken.ledger.path / "evidence").glob("last-good-checkpoint-*")
    for path in (kept, *kept.rglob("*")):
        path.chmod(0o700)
    (kept / evidence.MANIFEST).unlink()
    told = {e["what"]: e["state"] for e in broken.walk()["evidence"]}
    assert told["last good checkpoint"] == "gone"
    assert not broken.walk()["gate_open"]


def test_an_incident_goes_on_in_journal_files_of_their_own_while_training_writes(case: Case) -> None:
    """Opened, noted and contained by other processes between the steps; every chain holds, and nothing is lost."""
    loop = Loop()
    with attach(loop, case.root) as rec:
        loop.run(rec, 5)
        path = case.ledger.path
        case.ok("incident", "open", path, "--title", "loss looks too good", "--step", "4", "--by", "ann")
        loop.run(rec, 10)
        case.ok("incident", "note", path, "--text", "the mask is all ones", "--by", "bo")
        loop.run(rec, 15)
    (life,) = lives(case.ledger.records)
    assert [(n.by, n.text) for n in life.notes] == [("bo", "the mask is all ones")]
    assert (life.milestones["open"].by, life.latest.first_bad_step) == ("ann", 4)
    files = {r.file for r in case.ledger.of("incident")}
    assert len(files) == 2
    assert not files & {r.file for r in case.ledger.of("segment")}
    assert case.ledger.damage == []
    case.ok("verify", path)
    assert case.ledger.of("degraded") == []


def test_another_machine_that_sees_the_ledger_adds_under_a_name_of_its_own(broken: Case) -> None:
    laptop = f"import socket; socket.gethostname = lambda: 'laptop'; {MAIN}"
    done = broken.run("incident", "note", broken.ledger.path, "--text", "seen from home", code=laptop)
    assert done.returncode == 0, done.stderr
    (mine,) = [r for r in broken.ledger.of("incident") if r.payload.note == "seen from home"]
    nodes = {r.payload.place.node for r in broken.ledger.of("segment")}
    assert mine.file.rpartition("/")[2].partition("-0")[0] not in nodes
    broken.ok("verify", broken.ledger.path)


def test_a_run_that_was_killed_before_it_named_anything_is_opened_by_what_its_ledger_shows(
    case: Case,
) -> None:
    """No process wrote an incident: the bad cell stands in the series alone."""
    loop = Loop()
    rec = attach(loop, case.root)
    loop.run(rec, 26, spoil=BAD)
    rec._writer._lines.drain(30.0)
    path = case.ledger.path
    assert case.ledger.of("incident") == []
    told = case.run("incident", path)
    assert told.returncode == 4
    assert f"rank 0 at step {BAD} is abnormal: `lineage incident open {path}` opens one" in told.stderr
    case.ok("incident", "open", path, "--owner", "ann", "--by", "ann")
    (life,) = lives(case.ledger.records)
    assert (life.latest.first_bad_step, life.latest.owner, life.latest.opened_by) == (BAD, "ann", "alarm")
    assert case.run("incident", "open", path).returncode == 2, "it is open already"
    rec.live = False


def test_an_incident_by_hand_on_a_run_where_nothing_is_abnormal_keeps_its_evidence(case: Case) -> None:
    """Somebody knows better than the detectors: their step decides which checkpoints are meant."""
    case.train(20, spoil=-1)
    path = case.ledger.path
    case.ok("incident", "open", path, "--title", "too good to be true", "--step", "12", "--owner", "ann")
    before = {e["what"]: e for e in case.walk()["evidence"]}
    assert before["last good checkpoint"]["text"].startswith("step 10 ")
    assert before["first bad checkpoint"]["text"].startswith("step 15 ")
    case.run("incident", "preserve", path)
    after = {e["what"]: e["state"] for e in case.walk()["evidence"]}
    assert (after["last good checkpoint"], after["first bad checkpoint"], after["rank files"]) == (
        "held",
    ) * 3


def test_containing_marks_what_was_saved_since_and_says_that_it_stops_no_job(broken: Case) -> None:
    broken.ok("incident", "contain", broken.ledger.path, "--how", "scancel 4711", "--by", "ann")
    told = broken.walk()
    (contained,) = [m for m in told["milestones"] if m["status"] == "contained"]
    assert (contained["by"], contained["text"]) == ("ann", "scancel 4711")
    marks = {
        r.payload.checkpoint for r in broken.ledger.of("checkpoint_mark") if r.payload.mark == "quarantined"
    }
    steps = {r.payload.step for r in broken.ledger.of("checkpoint") if r.payload.uid in marks}
    assert steps == {25}


def test_that_it_ran_after_a_restart_is_not_admissible_as_a_cause(broken: Case) -> None:
    text = "it ran after the restart, so it was the batch"
    done = broken.run("incident", "cause", broken.ledger.path, "--text", text)
    assert done.returncode == 2
    assert "That it ran after a restart is not admissible" in done.stderr
    named = broken.run(
        "incident", "cause", broken.ledger.path, "--text", text, "--family", "data", "--replay", "the restart"
    )
    assert named.returncode == 1
    assert "no replay of this ledger is the restart" in named.stderr
    assert broken.ledger.of("root_cause") == []


def add_replays(case: Case, *, flips: bool) -> str:
    """Two replays as `lineage replay` records them: with nothing changed, and in float32. Returns the second's uid."""
    segment = case.ledger.segments[0]
    journal = Journal(case.ledger.path, case.ledger.run, segment.uid, 0, segment.info.place)
    control, changed = "01a22b58-0000-7000-8000-000000000001", "01a22b58-0000-7000-8000-000000000002"
    for uid, more in (
        (control, {"result": "reproduced"}),
        (
            changed,
            {
                "result": "not_reproduced",
                "changes": [{"name": "fp32", "in_effect": "yes", "text": "all in float32"}],
                "control": control,
                "flips": flips,
            },
        ),
    ):
        replay = schemas.Replay.model_validate(
            {
                "uid": uid,
                "bundle": "sha256:" + "0" * 64,
                "first_bad_step": BAD,
                "first_bad_rank": 0,
                "world_size": 1,
                "device": "cpu",
                "reason": "the loss",
                "start": {"source": "built", "text": "as built"},
                **more,
            }
        )
        journal.append(replay)
    journal.close()
    return changed


@pytest.mark.parametrize("flips", [True, False])
def test_a_cause_is_written_down_where_a_replay_flips_and_refused_where_it_does_not(
    broken: Case, flips: bool
) -> None:
    uid = add_replays(broken, flips=flips)
    done = broken.run(
        "incident",
        "cause",
        broken.ledger.path,
        "--replay",
        uid,
        "--family",
        "numerics",
        "--text",
        "fp16 overflows",
    )
    assert done.returncode == (0 if flips else 1), done.stderr
    assert [r.payload.proof.condition for r in broken.ledger.of("root_cause")] == ["fp32"] * flips
    (diagnosed,) = [i for i in broken.walk()["items"] if i["key"] == "diagnosed"]
    assert (diagnosed["state"] == "done") == flips


def test_closing_is_refused_while_evidence_or_a_word_on_the_cause_is_missing(broken: Case) -> None:
    path = broken.ledger.path
    refused = broken.run("incident", "close", path, "--why", "it runs again")
    assert refused.returncode == 1
    assert "rank files: journals and series of the ranks are not in the evidence store" in refused.stderr
    assert "nothing is said of the cause" in refused.stderr
    assert lives(broken.ledger.records)[0].is_open
    broken.ok("incident", "close", path, "--why", "test run", "--despite", "nobody needs it", "--by", "ann")
    (life,) = lives(broken.ledger.records)
    assert life.milestones["closed"].override == "nobody needs it"
    assert any("rank files" in m for m in life.milestones["closed"].missing)
    found = broken.run("show", path).stdout
    assert "LIN-I003" in found
    assert "nobody needs it" in found


def test_an_unknown_cause_with_what_was_tried_is_enough_to_close(broken: Case) -> None:
    path = broken.ledger.path
    broken.ok("incident", "preserve", path)
    broken.ok("incident", "cause", path, "--unknown", "--text", "replayed twice, not reproduced")
    broken.ok("incident", "close", path, "--why", "watching for it")
    assert "Nothing is left to do." in broken.ok("incident", path)
    assert "LIN-I" not in broken.run("show", path).stdout


def test_one_of_several_incidents_is_named_by_the_end_of_its_uid(broken: Case) -> None:
    path = broken.ledger.path
    first = lives(broken.ledger.records)[0]
    broken.ok("incident", "open", path, "--title", "[another] thing", "--by", "ann")
    shown = broken.run("incident", path)
    assert "[another] thing" in shown.stdout
    assert f"also open: {first.uid[-8:]}" in shown.stdout
    broken.ok("incident", "note", path, "--text", "of the first", "--incident", first.uid[-8:])
    assert [n.text for n in lives(broken.ledger.records)[0].notes] == ["of the first"]
    assert broken.run("incident", path, "--incident", "ffffffff").returncode == 2


def test_a_run_without_an_incident_says_how_to_open_one(case: Case) -> None:
    case.train(3, spoil=-1)
    done = case.run("incident", case.ledger.path)
    assert done.returncode == 4
    assert "--title 'WHAT IS WRONG'" in done.stderr


@pytest.mark.parametrize("place", ["--text", "--owner", "--told", "--link", "--by"])
def test_no_secret_in_what_a_person_says_reaches_the_ledger(broken: Case, place: str) -> None:
    arguments = []
    for sample in SAMPLES:
        told = f"harmless, {planted(sample)}"
        arguments = [place, told] if place != "--by" else ["--text", "x", "--by", told]
        done = broken.run("incident", "note", broken.ledger.path, *arguments)
        assert done.returncode == 0, done.stderr
        break  # one process each is slow; the masking itself has tests of its own
    written = "".join(p.read_text(errors="replace") for p in broken.root.rglob("*.jsonl"))
    assert "harmless, " in written
    secret = next(iter(SAMPLES.values()))
    assert secret not in written
    assert json.dumps(secret)[1:-1] not in written
