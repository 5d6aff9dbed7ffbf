"""The table `states` of a segment: digests of what each rank holds, compared by `lineage.judge.agreement`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from ..judge import agreement, rank_sets
from ..judge.agreement import Compared, State
from . import series
from .reader import Ledger

_COLUMNS = ["rank", "step", "kind", "tensor", "part", "groups", "lane1", "lane2"]


def read(ledger: Path, segment: str, since: int = 0) -> Iterator[State]:
    """Every row of a segment from a step on. Files that cannot be read are left out; `lineage verify` names them."""
    for whole in _tables(ledger, segment):
        table = whole.filter(pc.greater_equal(whole["step"], since)) if since else whole
        columns = (table[name].to_pylist() for name in _COLUMNS)
        for rank, step, kind, tensor, part, groups, lane1, lane2 in zip(*columns, strict=True):
            yield State(rank, step, kind, tensor, part, tuple((groups or "").split()), (lane1, lane2))


def ranks_of(ledger: Path, segment: str, step: int) -> set[int]:
    """The ranks whose digests of a step are in the ledger."""
    return {
        rank
        for table in _tables(ledger, segment)
        for rank in table.filter(pc.equal(table["step"], step))["rank"].unique().to_pylist()
    }


def _tables(ledger: Path, segment: str) -> Iterator[pa.Table]:
    """What was digested after steps: other ranks need not save, or load, at the same step."""
    for table in series.of_segment(ledger, segment, "states"):
        yield table.filter(pc.equal(pc.fill_null(table["moment"], "agree"), "agree")).select(_COLUMNS)


def members(records: Ledger, segment: str) -> dict[str, tuple[int, ...]]:
    """id of a group -> its ranks, as the ranks of a segment recorded them."""
    return {
        g.id: rank_sets.parse(g.ranks) for r in records.of("agreement", segment) for g in r.payload.groups
    }


_KEPT: WeakKeyDictionary[Ledger, dict[str, Compared]] = WeakKeyDictionary()
"""What was compared of a ledger that was read: a command asks for it more than once."""


def compare(ledger: Ledger, segment: str) -> Compared:
    """Compare the ranks of one segment, as the ledger stood when it was first asked."""
    kept = _KEPT.setdefault(ledger, {})
    if segment not in kept:
        kept[segment] = compare_since(ledger, segment, 0)
    return kept[segment]


def compare_since(ledger: Ledger, segment: str, step: int) -> Compared:
    """Compare the ranks of one segment, from a step on."""
    world = max((r.payload.world_size for r in ledger.of("segment", segment)), default=0)
    return agreement.compare(read(ledger.path, segment, step), members(ledger, segment), world)
