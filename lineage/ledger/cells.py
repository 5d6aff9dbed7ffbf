"""The abnormal cells of a ledger, and what it holds of each rank: all that a first bad cell is found by.

Nothing is judged here: the detectors are run again over what was recorded, as they ran while training went on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import cells as cells_
from ..judge import evaluations, firstbad, replica_cells
from ..judge.cells import Point
from ..judge.seen import RankSeen, Seen
from . import ranks, samples, states, tensors
from .reader import Ledger

MOST_VALUES = 1_000_000
"""Above this many values only some ranks are judged: the lowest, those with alarms, and those that are not finite."""
_COLUMNS = ["segment", "rank", "step", "signal", "value"]


@dataclass(frozen=True)
class Cells:
    """What was found in a ledger."""

    ledger: Ledger
    found: Sequence[schemas.Cell]
    points: Sequence[Point]
    """the values that were judged"""
    seen: Mapping[str, Seen]
    """segment -> what it holds of its ranks"""
    notes: tuple[str, ...] = field(default=())
    """what was not judged, in words"""
    judged: tuple[int, int] | None = None
    """steps and ranks of which values were judged, where `points` are not all of these"""

    @property
    def extent(self) -> tuple[int, int]:
        """The steps and the ranks of which values were judged."""
        if self.judged is not None:
            return self.judged
        return len({(p.segment, p.step) for p in self.points}), len({p.rank for p in self.points})

    def of(self, segment: str) -> list[schemas.Cell]:
        """The cells of a segment."""
        return [c for c in self.found if c.segment == segment]

    @cached_property
    def first_bads(self) -> dict[str, schemas.FirstBad]:
        """Segment -> its first bad cell, of the segments that have one, in their order."""
        from ..judge import graph as graph_
        from ..judge.recurring import recurring

        graph = graph_.build(self.ledger.records, reached=self.ledger.reached)
        out: dict[str, schemas.FirstBad] = {}
        for uid in graph.segments:
            mine = self.of(uid)
            first = firstbad.first_cell(mine)
            if first is not None:
                batch = samples.of_cell(self.ledger.path, first)
                out[uid] = firstbad.first_bad(graph, uid, mine, self.seen.get(uid), batch)
        return recurring(graph, out, {uid: s.ranks for uid, s in self.seen.items()})


def find(ledger: Ledger) -> Cells:
    """Find the abnormal cells of all segments. Files that cannot be read are left out, and named in `seen`.

    A big ledger is read by queries, see `lineage.fleet`. Raises `lineage.fleet.engine.NoEngine` for one that is too
    big to be read without DuckDB, where that is not installed.
    """
    from ..fleet import big

    if big.is_big(ledger):
        return big.find(ledger)
    return find_small(ledger)


def find_small(ledger: Ledger) -> Cells:
    """`find` with all values in memory."""
    read = ranks.read(ledger)
    points, notes = _points(ledger, read.probes)
    searching = cells_.searching(points)
    series = cells_.cells(points)
    alarms = cells_.from_alarms(ledger.records)
    certain = [*series, *alarms]
    kinds = tensors.Kinds()
    by_tensor, more = tensors.cells(ledger.path, certain, searching, kinds)
    told = evaluations.cells(ranks.evaluations(ledger))
    values = _Values(points)
    seen = {
        uid: replace(s, values_at=values.at, state_read=state_read(ledger), ranks=with_kinds(uid, s, kinds))
        for uid, s in read.seen.items()
    }
    replicas = [
        cell
        for s in ledger.segments
        if s.info.world_size > 1
        for cell in replica_cells.cells(s.uid, states.compare(ledger, s.uid).found)
    ]
    found = cells_.merged(series, alarms, by_tensor, told, replicas)
    return Cells(ledger, found, points, seen, (*notes, *more))


def _points(ledger: Ledger, table: pa.Table) -> tuple[list[Point], list[str]]:
    """The values to judge, those of twin writers apart."""
    wanted = pa.array([*firstbad.SIGNALS, cells_.SCALE])
    table = table.filter(pc.and_(pc.is_in(table["signal"], wanted), pc.is_valid(table["value"])))
    notes = []
    if table.num_rows > MOST_VALUES:
        table, note = _fewer(ledger, table)
        notes.append(note)
    columns = [table.column(c).to_pylist() for c in (*_COLUMNS, "writer")]
    return [Point(*row) for row in zip(*columns, strict=True)], notes


def _fewer(ledger: Ledger, table: pa.Table) -> tuple[pa.Table, str]:
    """Keep the ranks where something is known to be wrong, and the lowest one."""
    every = sorted(set(table["rank"].unique().to_pylist()))
    broken = table.filter(pc.invert(pc.is_finite(table["value"])))["rank"].unique().to_pylist()
    keep = sorted({every[0], *broken, *(r.rank for r in ledger.of("alarm"))})
    keep = keep[: max(1, MOST_VALUES * len(every) // table.num_rows)]
    text = (
        f"{table.num_rows:,} values are recorded; those of {len(keep):,} of {len(every):,} ranks were judged here (the "
        "lowest one, those with alarms, and those with values that are not finite)"
    )
    return table.filter(pc.is_in(table["rank"], pa.array(keep, table["rank"].type))), text


def state_read(ledger: Ledger) -> Callable[[schemas.Cell], int | None]:
    """`Seen.state_read` of a ledger: only the files of the cell's rank are read, and only when it is asked for."""
    return partial(tensors.state_read, ledger.path)


def with_kinds(segment: str, seen: Seen, kinds: tensors.Kinds) -> dict[int, RankSeen]:
    """The ranks with the kinds of rows of tensors that each has beside its signals."""
    return {
        r: replace(s, signals=s.signals | kinds.of.get((segment, r), set())) for r, s in seen.ranks.items()
    }


class _Values:
    """The values of one signal at one step over the ranks, looked up where they are asked for."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._points = points
        self._by: dict[tuple[str, str, int], dict[int, float]] | None = None

    def at(self, cell: schemas.Cell) -> Mapping[int, float]:
        if self._by is None:
            self._by = {}
            for p in self._points:
                self._by.setdefault((p.segment, p.signal, p.step), {})[p.rank] = p.value
        return self._by.get((cell.segment, cell.signal, cell.step), {})
