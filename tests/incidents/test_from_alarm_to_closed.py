"""The demo's incident, from the alarm to the end, by the commands that the checklist prints, and by nothing else."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from lineage.cli.incident_writing import PLACEHOLDERS
from lineage.demo import run as demo
from lineage.demo.faults import Fault
from lineage.judge.incident_life import Life, lives
from lineage.ledger.reader import Ledger
from tests.cli.in_process import Run, lineage_
from tests.warm import Subprocess, Warm

from . import bad_sample
from .on_call import OnCall, Page

FAULT = Fault("huge_gradient", 0, 33)
"""What the demo's own seed draws, some steps earlier. Saved is every ten steps; the alarm stops the training."""
RUN = f"lineage-runs/{demo.PRETRAIN}"
MONITOR = "time,node,event,severity\n2020-01-01T00:00:00Z,somewhere,link flap,warning\n"
WORDS = {
    "NAME": "ann",
    "WHO: WHAT": "eval team: do not use step 30 yet",
    "HOW IT WAS STOPPED": "it stopped by itself, on request",
    "WHAT BROKE IT": "one sample of the shard is damaged",
    "WHAT WAS TRIED": "the step again, alone and at its size",
    "WHAT WAS LEARNT": "labels are checked when shards are written",
    "your_module:build": "lineage.demo.replay:build",
    "FILE...": "monitor.csv",
}

__all__ = ["lineage_"]  # a fixture


class Incident:
    """What happens in one folder: the demo's training on two ranks, and the person beside it."""

    def __init__(self, folder: Path, reader: Warm, trainer: Warm, fault: Fault) -> None:
        self.story = demo.Story(folder, steps=42, fault=fault)
        self.ann = OnCall(folder, reader, WORDS, trainer)
        (folder / "monitor.csv").write_text(MONITOR)
        demo.broken(self.story)

    @property
    def life(self) -> Life:
        """The incident as the ledger has it."""
        (found,) = lives(self.story.ledger(demo.PRETRAIN).records)
        return found

    def records(self, kind: str) -> list[Any]:
        """The payloads of a kind."""
        return [r.payload for r in self.story.ledger(demo.PRETRAIN).of(kind)]

    def refused(self, line: str, *because: str) -> None:
        """A command that must not go through, and changes nothing."""
        before = len(self.story.ledger(demo.PRETRAIN).records)
        done = self.ann.run(line)
        assert done.returncode in (1, 2, 4), done.stdout
        for text in because:
            assert text in done.stderr, done.stderr
        assert len(self.story.ledger(demo.PRETRAIN).records) == before

    def decide(self, page: Page) -> None:
        """What the decision rests on is shown first; it is written down by what is printed under it."""
        (line,) = page.lines
        shown = self.ann.run(f"{line} --price 2.5 --currency EUR")
        assert "x 2.5 =" in shown.stdout
        assert "with nothing changed" in shown.stdout
        assert "nothing is written yet: --yes writes it down" in shown.stdout
        assert self.records("recovery") == []
        taken = self.ann.run(f"{line} --price 2.5 --currency EUR --yes")
        assert taken.returncode == 0, taken.stderr

    def resume(self, page: Page) -> None:
        """The training script goes on from the checkpoint that the printed line of code names."""
        (line,) = page.lines
        found = re.fullmatch(r"lineage\.attach\(run, resumed_from='(.+)', \.\.\.\)", line)
        assert found, line
        demo.recover(self.story, found[1], faithful=True)

    def declare(self, page: Page) -> None:
        """Declared; where a median of this short run lies outside of its band, with a reason, which the audit shows."""
        (line,) = page.lines
        done = self.ann.run(line)
        if done.returncode:
            assert "NOT as before" in done.stderr
            done = self.ann.run(f"{line} --despite 'a toy whose loss moves much'")
        assert done.returncode == 0, done.stderr

    @property
    def by_hand(self) -> dict[str, Any]:
        """What a printed command does not do alone."""
        return {
            "Recovery decided": self.decide,
            "Resumed from there": self.resume,
            "Declared recovered": self.declare,
        }

    def audit(self) -> dict[str, str]:
        """Code -> severity of what an audit finds."""
        done = self.ann.run(f"lineage audit {RUN} --json")
        assert done.returncode in (0, 1), done.stderr
        return {f["code"]: f["severity"] for f in json.loads(done.stdout)["findings"]}


@pytest.mark.slow
def test_the_demos_incident_is_led_from_the_alarm_to_the_end_by_what_the_checklist_prints(
    tmp_path: Path, warm_reader: Warm, warm_trainer: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of a person is left out, none is needed that is not printed, and each is recognised once it is done."""
    monkeypatch.setattr(demo, "subprocess", Subprocess(warm_trainer.address))
    case = Incident(tmp_path, warm_reader, warm_trainer, FAULT)
    ann = case.ann
    assert (case.life.status, case.life.latest.opened_by, case.life.latest.first_bad_step) == (
        "open",
        "alarm",
        FAULT.step,
    )
    first = ann.read(RUN)
    assert f"rank {FAULT.rank}, step {FAULT.step}" in first.text
    assert (first.state("Contained"), first.state("Evidence")) == ("done", "part")
    case.refused(f"lineage recover {RUN} --yes", "no recovery is decided", f"lineage incident preserve {RUN}")
    case.refused(f"lineage incident close {RUN} --why done", "rank files", "nothing is said of the cause")
    case.refused(f"lineage incident cause {RUN} --text 'it ran after the restart'", "is not admissible")

    titles = ann.walk(RUN, case.by_hand, until="Made again")
    assert [t.split(":")[0].split(",")[0] for t in titles] == [
        "Opened",
        "Told",
        "Evidence held",
        "Machines",
    ]
    assert (case.life.latest.owner, case.life.status) == ("ann", "evidence_held")
    assert ann.run(f"lineage bundle verify {RUN}").returncode == 0

    titles = ann.walk(RUN, case.by_hand, until="Diagnosed")
    assert titles == ["Made again, with nothing changed"] * 2, "alone, and then at the run's size"
    by_world = {(r.world_size, r.first_bad_rank): r for r in case.records("replay")}
    assert set(by_world) == {(1, 0), (2, 0), (2, 1)}
    assert {r.result for r in by_world.values()} == {"not_reproduced"}
    for r in by_world.values():
        assert (r.start.replayed_updates, r.start.updates_between, r.runs) == (2, 0, 1)
        assert any("does not acquit the batch" in text for text in r.limits)
    alone = by_world[1, 0]
    assert alone.tensors_equal == alone.tensors_compared - 1, (
        "all but the gradient that was spoiled, bit for bit"
    )
    told = json.loads(ann.run(f"lineage suspects {RUN} --json").stdout)
    assert not any(n["evidence"] == "flip" for s in told["suspects"] for n in s["fits"])

    titles = ann.walk(RUN, case.by_hand, until="Recovery decided")
    assert len(titles) == 1
    assert case.records("root_cause") == [], "no replay flips: that it is unknown is the answer"
    assert case.life.milestones["diagnosed"].text == WORDS["WHAT WAS TRIED"]

    ann.walk(RUN, case.by_hand, until="The repaired run")
    (decision,) = case.records("recovery")
    assert (decision.restart.step, decision.owner, decision.override) == (30, "ann", None)
    assert decision.cost.steps_again == 3
    ann.walk(RUN, case.by_hand, until="Closed")
    assert case.life.status == "recovered"
    assert all(s.equal == s.steps == 2 for s in case.records("trajectory")[0].same_steps)
    titles = ann.walk(RUN, case.by_hand)
    assert len(titles) == 1

    last = ann.page
    assert last is not None
    assert "Nothing is left to do." in last.text
    assert {t: s for t, s in last.states.items() if s != "done"} == {"One condition at a time": "-"}
    assert case.life.reached("closed") is not None
    assert ann.run(f"lineage verify {RUN}").returncode == 0
    found = case.audit()
    excused = {"LIN-I002"} if case.life.milestones["recovered"].override else set()
    assert {c for c, severity in found.items() if severity != "note"} == excused
    assert not [c for c in found if c.startswith("LIN-U03")]


def test_a_damaged_sample_is_led_to_a_cause_with_its_proof(
    tmp_path: Path, warm_reader: Warm, warm_trainer: Warm
) -> None:
    """The replay without the sample that stands out flips; its uid and its family stand in the printed command."""
    bad_sample.train(tmp_path)
    run = f"runs/{bad_sample.RUN}"
    words = {**WORDS, "your_module:build": "tests.incidents.bad_sample:build"}
    (tmp_path / "monitor.csv").write_text(MONITOR)
    ann = OnCall(tmp_path, warm_reader, words, warm_trainer)
    titles = ann.walk(run, {}, until="Recovery decided")
    assert [t.split(",")[0] for t in titles[-3:]] == ["Made again", "One condition at a time", "Diagnosed"]
    records = Ledger(tmp_path / run).of
    control, _, changed = (r.payload for r in records("replay"))
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    assert [(c.name, c.argument) for c in changed.changes] == [("without-sample", str(bad_sample.PLACE))]
    (cause,) = (r.payload for r in records("root_cause"))
    assert (cause.family, cause.proof.condition, cause.proof.replay) == (
        "data",
        "without-sample",
        changed.uid,
    )
    told = json.loads(ann.run(f"lineage suspects {run} --json").stdout)
    assert (told["suspects"][0]["family"], told["suspects"][0]["evidence"]) == ("data", "flip")


@pytest.mark.parametrize(
    "line",
    [
        "incident note R --owner NAME",
        "incident note R --told 'WHO: WHAT'",
        "incident contain R --how 'HOW IT WAS STOPPED'",
        "incident cause R --unknown --text 'WHAT WAS TRIED'",
        "incident open R --title 'WHAT IS WRONG'",
        "incident close R --why 'WHAT WAS LEARNT'",
        "recover R --owner NAME",
    ],
)
def test_no_blank_of_a_printed_command_is_taken_for_a_word(lineage_: Run, line: str) -> None:
    """What was copied and not filled in is refused by name, before anything is looked at."""
    words = shlex.split(line)
    assert words[-1] in PLACEHOLDERS
    done = lineage_(*words)
    assert (done.code, "stands for words of yours" in done.err) == (2, True), done.err
