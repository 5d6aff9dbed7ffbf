"""The retention gate: what holds a recovery up, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from lineage.judge import graph
from lineage.judge.gate import Gate, Held, gate
from lineage.judge.incident_life import lives

from .builders import History, uid

GOOD, BAD = uid(50), uid(51)
ALL_THERE = Held(lambda p: True, lambda b: True, lambda s: True, lambda p: True)
CELL = schemas.Cell(
    segment=uid(1), rank=1, step=7, signal="loss", abnormal="non_finite", value=float("nan"), text="NaN"
)


def history() -> History:
    h = History()
    h.segment(1)
    h.checkpoint(50, 1, 5, path="/ck/5")
    h.checkpoint(51, 1, 9, path="/ck/9")
    h.add(schemas.Incident(uid=uid(900), title="NaN", first_bad_step=7, last_good_checkpoint=GOOD), 1)
    return h


def preserved(h: History, checkpoint: str | None, what: str, **fields: Any) -> None:
    held = {"source": "x", "root": "sha256:00", "files": 3, "bytes": 9, "method": "copy", "verified": True}
    record = h.add(schemas.Preserved(what=what, location=f"evidence/{what}", **{**held, **fields}), 1)
    if checkpoint:
        mark = schemas.CheckpointMark(checkpoint=checkpoint, mark="preserved", why="x", evidence=[record.id])
        h.add(mark, 1)


def bundle(h: History, step: int = 7, rank: int = 1) -> None:
    made = schemas.Bundle(
        root="sha256:00", location="captured/x", first_bad_step=step, steps=[step], files=1, bytes=1, limit=9
    )
    h.add(made, 1, rank=rank)


def look(h: History, held: Held = ALL_THERE, bad: schemas.FirstBad | None = None) -> Gate:
    found = bad or schemas.FirstBad(cell=CELL, last_good_checkpoint=GOOD, first_bad_checkpoint=BAD)
    (life,) = lives(h.records)
    return gate(h.records, life, graph.build(h.records), found, held, "RUN")


def states(g: Gate) -> dict[str, str]:
    return {e.what: e.state for e in g.items if e.required}


def everything(h: History) -> None:
    preserved(h, GOOD, "last good checkpoint")
    preserved(h, BAD, "first bad checkpoint")
    preserved(h, None, "rank files")
    bundle(h)


def test_nothing_is_held_until_it_is_preserved_and_each_gap_has_its_command() -> None:
    g = look(history())
    assert not g.is_open
    assert states(g) == {
        "last good checkpoint": "missing",
        "first bad checkpoint": "missing",
        "first bad batch": "missing",
        "rank files": "missing",
    }
    assert {e.remedy for e in g.missing} == {"lineage incident preserve RUN"}


def test_with_all_of_it_held_the_gate_is_open() -> None:
    h = history()
    everything(h)
    g = look(h)
    assert g.is_open
    assert set(states(g).values()) == {"held"}


def test_what_is_on_record_and_no_longer_on_the_disk_is_gone_and_closes_the_gate() -> None:
    h = history()
    everything(h)
    g = look(h, Held(lambda p: False, lambda b: False, lambda s: False, lambda p: False))
    assert states(g) == {
        "last good checkpoint": "gone",
        "first bad checkpoint": "gone",
        "first bad batch": "gone",
        "rank files": "missing",
    }


def test_a_checkpoint_that_rotation_took_before_it_was_kept_is_gone() -> None:
    h = history()
    h.add(schemas.CheckpointMark(checkpoint=GOOD, mark="deleted", why="rotation"), 1)
    assert states(look(h))["last good checkpoint"] == "gone"


def test_what_was_never_recorded_is_named_and_holds_nothing_up() -> None:
    """No checkpoint before, none after, no batch: a person can hold none of it, so a refusal would teach nothing."""
    h = History()
    h.segment(1)
    h.add(schemas.Incident(uid=uid(900), title="NaN", first_bad_step=7), 1)
    preserved(h, None, "rank files")
    nothing = Held(lambda p: True, lambda b: False, lambda s: False, lambda p: False)
    g = look(h, nothing, schemas.FirstBad(cell=CELL))
    assert g.is_open
    assert {e.what for e in g.wanting} >= {"last good checkpoint", "first bad batch", "hardware events"}


def test_without_a_step_it_cannot_be_told_which_checkpoint_is_meant() -> None:
    h = History()
    h.segment(1)
    h.add(schemas.Incident(uid=uid(900), title="too good", opened_by="person"), 1)
    (life,) = lives(h.records)
    g = gate(h.records, life, graph.build(h.records), None, ALL_THERE, "RUN")
    missing = {e.what: e.remedy for e in g.missing}
    assert missing["last good checkpoint"] == "lineage incident note RUN --step STEP"


@pytest.mark.parametrize(("step", "state"), [(7, "held"), (8, "missing")])
def test_a_bundle_counts_where_it_is_of_the_first_bad_step(step: int, state: str) -> None:
    h = history()
    bundle(h, step)
    assert states(look(h))["first bad batch"] == state


def test_the_bundle_of_the_first_bad_rank_is_named_before_another_s() -> None:
    h = history()
    bundle(h, rank=0)
    bundle(h, rank=1)
    (batch,) = [e for e in look(h).items if e.what == "first bad batch"]
    assert batch.text.startswith("bundle of rank 1")


def test_ranks_without_records_and_machines_without_events_are_named_and_block_nothing() -> None:
    h = History()
    h.add(schemas.Segment(uid=uid(1), world_size=3, place=schemas.Place(node="n", pid=1), start="fresh"), 1)
    h.add(schemas.Incident(uid=uid(900), title="NaN", first_bad_step=7), 1)
    preserved(h, None, "rank files")
    nothing = Held(lambda p: True, lambda b: False, lambda s: False, lambda p: False)
    g = look(h, nothing, schemas.FirstBad(cell=CELL))
    told = {e.what: e for e in g.items}
    assert told["all ranks"].text == "rank 1, 2 left no record in this ledger (LIN-J013)"
    assert told["hardware events"].state == "none"
    assert g.is_open
    h.add(schemas.Coverage(recorded=["hardware events: 8 GPUs"]), 1)
    watched = {e.what: e for e in look(h, nothing, schemas.FirstBad(cell=CELL)).items}
    assert watched["hardware events"].state == "held"
