"""The state of all ranks at a save or after a load, from the table `states`, and both beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..judge import graph, resharded, whole_state
from ..judge.resharded import Resharded
from ..judge.whole_state import Part, WholeState
from . import series
from .reader import Ledger

_COLUMNS = ("rank", "kind", "tensor", "part", "lane1", "lane2", "whole", "elements")


@dataclass(frozen=True)
class Moment:
    """A moment of a run: `save` after a step, or `resume` at the beginning of a segment."""

    ledger: Path
    segment: str
    moment: str
    step: int | None = None
    """None: whichever step there is, of a resume"""


def state(at: Moment) -> WholeState:
    """The state of all ranks at a moment. Files that cannot be read are left out; `lineage verify` names them.

    Where nothing was written down for the moment itself, the digests at the end of the same step are taken.
    """
    known = Ledger(at.ledger).of("segment", at.segment)
    world = max((r.payload.world_size for r in known), default=0)
    tables = list(_tables(at))
    for moment in (at.moment, "agree"):
        found = [p for t in tables for p in parts(of_moment(t, moment))]
        if found or at.step is None:
            return whole_state.add_up(found, world)
    return whole_state.add_up([], world)


def compare(saved: Moment, live: Moment) -> Resharded:
    """Whether what a resume found in memory is what was saved, whatever the number of ranks on either side."""
    return resharded.compare(state(saved), state(live))


def of_resume(ledger: Ledger, segment: str, saved_in: Path | None = None) -> Resharded | None:
    """What a segment found in memory against the checkpoint that it says it resumed from.

    `saved_in`: the ledger that has the save; by default the segment's own. None where the segment compared itself with
    no checkpoint, or the save is not on record there.
    """
    told = [r.payload.checkpoint for r in ledger.of("restore", segment)]
    known = ledger if saved_in is None else Ledger(saved_in)
    node = graph.build(known.records).nodes.get(told[-1]) if told else None
    if node is None:
        return None
    saved = Moment(known.path, node.segment, "save", node.checkpoint.step)
    return compare(saved, Moment(ledger.path, segment, "resume"))


def ranks_at(at: Moment) -> set[int]:
    """The ranks that have written their state of a moment down."""
    return {rank for t in _tables(at) for rank in of_moment(t, at.moment)["rank"].unique().to_pylist()}


def _tables(at: Moment) -> Iterator[pa.Table]:
    for table in series.of_segment(at.ledger, at.segment, "states"):
        yield table if at.step is None else table.filter(pc.equal(table["step"], at.step))


def of_moment(table: pa.Table, moment: str) -> pa.Table:
    """The rows of a moment."""
    return table.filter(pc.equal(table["moment"], moment))


def parts(table: pa.Table) -> Iterator[Part]:
    """What each row says that a rank held."""
    columns = (table[name].to_pylist() for name in _COLUMNS)
    for rank, kind, tensor, part, lane1, lane2, whole, elements in zip(*columns, strict=True):
        yield Part(rank, kind, tensor, part, (lane1, lane2), whole, elements or 0)
