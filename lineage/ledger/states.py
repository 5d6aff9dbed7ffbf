"""The table `states` of a segment: digests of what each rank holds, compared by `lineage.judge.agreement`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ..judge import agreement, rank_sets
from ..judge.agreement import Compared, State
from . import series
from .reader import Ledger
from .tables import STATES

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


def _tables(ledger: Path, segment: str) -> Iterator[Any]:
    for path in series.files(ledger, "states"):
        if path.parent.name == segment:
            try:
                table = series.fitted(series.read_one(path), STATES)
            except (ValueError, OSError):
                continue
            after_steps = pc.equal(pc.fill_null(table["moment"], "agree"), "agree")
            yield table.filter(after_steps).select(
                _COLUMNS
            )  # other ranks need not save, or load, at the same step


def members(records: Ledger, segment: str) -> dict[str, tuple[int, ...]]:
    """id of a group -> its ranks, as the ranks of a segment recorded them."""
    return {
        g.id: rank_sets.parse(g.ranks) for r in records.of("agreement", segment) for g in r.payload.groups
    }


def compare(ledger: Path, segment: str, records: Ledger | None = None, since: int = 0) -> Compared:
    """Compare the ranks of one segment, from a step on."""
    known = records or Ledger(ledger)
    world = max((r.payload.world_size for r in known.of("segment", segment)), default=0)
    return agreement.compare(read(ledger, segment, since), members(known, segment), world)
