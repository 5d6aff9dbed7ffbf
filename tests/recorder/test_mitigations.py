"""A declared mitigation is in effect only with evidence, from which step to which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import schemas
from lineage.judge import graph, phases
from lineage.ledger.reader import Ledger

from .loop import Loop, attach, only

DECAY = "optimizer.param_groups[*]['weight_decay']"


def set_decay(loop: Loop, value: float) -> None:
    loop.optimizer.param_groups[0]["weight_decay"] = value


def standing(ledger: Ledger) -> list[schemas.Record]:
    """The effects that no later record supersedes, oldest first."""
    found = ledger.of("mitigation_effect")
    gone = {r.supersedes for r in found}
    return [r for r in found if r.id not in gone]


def spans(ledger: Ledger) -> list[tuple[int, str, int | None, int | None]]:
    """(segment number, in effect, from, to) of each."""
    numbers = {s.uid: s.number for s in ledger.segments}
    return [
        (numbers[r.segment], r.payload.in_effect, r.payload.from_step, r.payload.to_step)
        for r in standing(ledger)
    ]


def in_phases(ledger: Ledger) -> list[tuple[str, list[tuple[int | None, int | None]]]]:
    """Each phase of the table with the stretches of the mitigations that it prints."""
    found = phases.phases(ledger.records, graph.build(ledger.records))
    return [(p.steps, [(m.first, m.last) for m in p.mitigations if m.in_effect == "yes"]) for p in found]


def train(root: Path, loop: Loop, steps: int, at: dict[int, Any], **options: Any) -> Any:
    """A segment in which something happens before some steps; returns the recorder."""
    with attach(loop, root, **options) as rec:
        loop.run(rec, steps, before=lambda step: at.get(step, lambda rec: None)(rec))
    return rec


def declared(loop: Loop) -> Any:
    """Declare weight decay 0, and set it."""

    def act(rec: Any) -> None:
        rec.mitigate("weight_decay", after=0.0, why="decay on norms")
        set_decay(loop, 0.0)

    return act


def test_a_mitigation_ends_at_the_step_before_its_value_is_left(tmp_path: Path) -> None:
    """Declared and set before step 3, taken back before step 7: steps 3 to 6, by a record that supersedes."""
    loop = Loop()
    train(tmp_path, loop, 9, {3: declared(loop), 7: lambda rec: set_decay(loop, 0.01)})
    ledger = only(tmp_path)
    assert spans(ledger) == [(1, "yes", 3, 6)]
    assert [r.payload.to_step for r in ledger.of("mitigation_effect")] == [None, 6]
    assert standing(ledger)[0].payload.text == f"in effect up to step 6; {DECAY} holds 0.01 now"
    assert in_phases(ledger) == [("1 to 2", []), ("3 to 6", [(3, 6)]), ("7 to 9", [])]


def test_a_mitigation_that_lasts_is_in_effect_up_to_the_end_of_the_segment(tmp_path: Path) -> None:
    """Closing says up to which step it was seen."""
    loop = Loop()
    train(tmp_path, loop, 9, {3: declared(loop)})
    ledger = only(tmp_path)
    assert spans(ledger) == [(1, "yes", 3, 9)]
    assert "up to the end of the segment at step 9" in standing(ledger)[0].payload.text


def test_a_value_that_comes_back_is_in_effect_again_from_then_on(tmp_path: Path) -> None:
    """Two stretches of one mitigation, and no record that says no."""
    loop = Loop()
    back = {5: lambda rec: set_decay(loop, 0.01), 8: lambda rec: set_decay(loop, 0.0)}
    train(tmp_path, loop, 11, {2: declared(loop), **back})
    ledger = only(tmp_path)
    assert spans(ledger) == [(1, "yes", 2, 4), (1, "yes", 8, 11)]
    assert [m for _, m in in_phases(ledger)] == [[], [(2, 4)], [], [(8, 11)]]


def test_a_later_mitigation_of_the_same_concept_ends_the_earlier_one(tmp_path: Path) -> None:
    loop = Loop()

    def again(rec: Any) -> None:
        rec.mitigate("weight_decay", after=0.2, why="more of it")
        set_decay(loop, 0.2)

    train(tmp_path, loop, 9, {3: declared(loop), 6: again})
    assert spans(only(tmp_path)) == [(1, "yes", 3, 5), (1, "yes", 6, 9)]


def test_a_resume_on_which_the_value_still_holds_carries_it_on(tmp_path: Path) -> None:
    """The new segment says so itself, from the step at which it began."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 6, before=lambda step: declared(loop)(rec) if step == 3 else None)
        rec.checkpoint(loop.save(tmp_path / "ck"), step=6)
        loop.run(rec, 9)
    again = Loop().load(tmp_path / "ck")
    train(tmp_path, again, 10, {}, resumed_from=tmp_path / "ck")
    (tmp_path / "ck").rename(tmp_path.with_name("moved"))
    ledger = only(tmp_path)
    assert spans(ledger) == [(1, "yes", 3, 9), (2, "yes", 3, 10)]
    assert in_phases(ledger)[1] == ("3 to 10", [(3, 10)])


def test_a_resume_that_takes_it_back_ends_it_at_the_checkpoint_on_this_branch(tmp_path: Path) -> None:
    """The abandoned branch keeps its own end; the new one says up to which step it was in effect."""
    loop, runs = Loop(), tmp_path / "runs"
    with attach(loop, runs) as rec:
        loop.run(rec, 6, before=lambda step: declared(loop)(rec) if step == 3 else None)
        rec.checkpoint(loop.save(tmp_path / "ck"), step=6)
        loop.run(rec, 9)
    again = Loop().load(tmp_path / "ck")
    set_decay(again, 0.01)
    train(runs, again, 10, {}, resumed_from=tmp_path / "ck")
    ledger = only(runs)
    assert spans(ledger) == [(1, "yes", 3, 9), (2, "yes", 3, 6)]
    assert standing(ledger)[1].payload.text == f"in effect up to step 6; {DECAY} holds 0.01 now"
    assert in_phases(ledger)[-1] == ("7 to 10", [])


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.recorder.loop import Loop, attach
root = Path(sys.argv[1])
loop = Loop()
rec = attach(loop, root / "runs")
def act(step):
    if step == 3:
        rec.mitigate("weight_decay", after=0.0, why="decay on norms")
        loop.optimizer.param_groups[0]["weight_decay"] = 0.0
loop.run(rec, 6, before=act)
rec.checkpoint(loop.save(root / "ck"), step=6)
assert rec._writer.tasks.drain(300)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_segment_leaves_it_open_and_the_resume_says_what_became_of_it(tmp_path: Path) -> None:
    """No close was possible: the record has no end, and none is made up for the dead process."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    again = Loop().load(tmp_path / "ck")
    set_decay(again, 0.01)
    train(tmp_path / "runs", again, 8, {}, resumed_from=tmp_path / "ck")
    assert spans(only(tmp_path / "runs")) == [(1, "yes", 3, None), (2, "yes", 3, 6)]


def test_dropout_that_is_changed_in_the_run_ends_where_it_was_last_in_effect(tmp_path: Path) -> None:
    """Dropout is read in each step: steps 1 to 4 had the declared value, step 5 another one."""
    loop = Loop()
    loop.model[1].p = 0.0
    with attach(loop, tmp_path) as rec:
        rec.mitigate("dropout", before=[0.1], after=[0.0], why="spikes")
        loop.run(rec, 4)
        loop.model[1].p = 0.3
        loop.run(rec, 8)
    ledger = only(tmp_path)
    assert spans(ledger) == [(1, "yes", 1, 4)]


def test_dropout_that_comes_into_effect_in_the_run_is_shown_from_that_step(tmp_path: Path) -> None:
    """Not in effect at the first step; it is from step 5 on."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        rec.mitigate("dropout", before=[0.1], after=[0.0], why="spikes")
        loop.run(rec, 4)
        loop.model[1].p = 0.0
        loop.run(rec, 8)
    assert spans(only(tmp_path)) == [(1, "no", None, None), (1, "yes", 5, 8)]


def test_a_declaration_that_nobody_applied_is_said_where_people_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log and as a finding, with both values."""
    loop = Loop()
    declare = {3: lambda rec: rec.mitigate("weight_decay", before=0.01, after=0.5, why="loss rises")}
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 6, before=lambda step: declare.get(step, lambda rec: None)(rec))
    (found,) = [r.payload for r in only(tmp_path).of("finding") if r.payload.code == "LIN-D003"]
    assert found.subject == "weight_decay"
    assert "0.5 was declared" in found.text
    assert f"{DECAY} holds 0.01" in found.text
    assert caplog.text.count("LIN-D003") == 1
