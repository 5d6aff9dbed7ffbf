"""The values of a big ledger's series that detectors must see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from .._rooms import schemas
from ..judge import cells as cells_
from ..judge.cells import GRADIENTS, SCALE, Point
from . import sql
from .engine import Engine
from .files import File, Portion, Unread, ask, portions, ranks_of, rows_of
from .storms import KEPT, Storms

Rank = tuple[str, int]
"""(segment, rank)"""
CHOSEN = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("writer", pa.string()),
        ("signal", pa.string()),
        ("nth", pa.int64()),
        ("step", pa.int64()),
    ]
)
"""Streams that are read again, see `sql.values_from`; `step` is where the value is that may be flagged first."""


@dataclass
class Values:
    """What was read of the table `probes`."""

    points: list[Point] = field(default_factory=list)
    """those that the detectors must see; the same cells come out of them as out of all"""
    since: dict[tuple[str, int, str, str], int] = field(default_factory=dict)
    """stream -> the step before which its detector still warms up: what it says there is not meant"""
    whole: set[Rank] = field(default_factory=set)
    """ranks of whose gradients `points` holds all values"""

    def cells(self) -> list[schemas.Cell]:
        """The abnormal cells, as `lineage.judge.cells.cells` finds them over all values."""
        out = []
        for points in self._by_turn():
            since = {
                (p.segment, p.rank, p.signal): self.since.get((p.segment, p.rank, p.writer, p.signal), 0)
                for p in points
            }
            out += [
                c
                for c in cells_.cells(points)
                if c.abnormal == "non_finite" or c.step >= since[c.segment, c.rank, c.signal]
            ]
        return out

    def _by_turn(self) -> list[list[Point]]:
        """The points with one writer of each rank at a time, since a cell does not tell its writer.

        Those whose detectors see all values are together: what one writer of a rank searches for counts for all.
        """
        turns: dict[int, list[Point]] = {}
        writers: dict[Rank, list[str]] = {}
        for p in self.points:
            known = writers.setdefault((p.segment, p.rank), [])
            if p.writer not in known:
                known.append(p.writer)
            turn = -1 if (p.segment, p.rank) in self.whole else known.index(p.writer)
            turns.setdefault(turn, []).append(p)
        return list(turns.values())


@dataclass
class Reader:
    """Reads the table `probes`, portion by portion.

    `joined`: ranks that several processes wrote one after the other, whose values are one stream.
    `scaled`: ranks with a loss scale.
    """

    engine: Engine
    files: Sequence[File]
    unread: Unread
    joined: Collection[Rank] = ()
    scaled: Collection[Rank] = ()

    def __post_init__(self) -> None:
        self._parts = list(portions(self.files))

    def _ask(self, portion: Portion, query: Callable[[str], str], **relations: pa.Table) -> pa.Table:
        streams = sql.streams(query, joined=bool(self.joined))
        known = {"joined": ranks_of(self.joined), "scaled": ranks_of(self.scaled)}
        return ask(self.engine, portion, sql.PROBES, streams, self.unread, **known, **relations)

    def signatures(self) -> list[tuple[str, int, int, int]]:
        """See `storms.of`."""
        return [r for p in self._parts for r in rows_of(self._ask(p, sql.broken_signatures))]

    def odd(self) -> Values:
        """The values of streams in which something may be flagged, and of ranks that search for a loss scale."""
        out = Values()
        if self.scaled:
            nothing = pa.table({"segment": [], "step": [], "whole": []}, schema=KEPT)
            for portion in self._parts:
                out.points += _points(self._ask(portion, sql.broken_values, kept=nothing))
            out.whole = {(p.segment, p.rank) for p in out.points if p.signal in GRADIENTS}
        for portion in self._parts:
            found = rows_of(self._ask(portion, sql.odd_values))
            wanted = [o for o in found if (o[0], o[1]) not in out.whole or o[3] not in GRADIENTS]
            if out.whole:
                wanted += [
                    (*stream, 0, 0)
                    for stream in rows_of(self._ask(portion, sql.signals))
                    if (stream[0], stream[1]) in out.whole and stream[3] in (*GRADIENTS, SCALE)
                ]
            if not wanted:
                continue
            columns = zip(zip(*wanted, strict=True), CHOSEN, strict=True)
            chosen = pa.Table.from_arrays([pa.array(c, f.type) for c, f in columns], schema=CHOSEN)
            out.points += _points(self._ask(portion, sql.values_from, chosen=chosen))
            out.since |= {(w[0], w[1], w[2], w[3]): w[5] for w in wanted}
        return out

    def broken(self, found: Storms) -> list[Point]:
        """The values that are not finite, of the ranks without a loss scale, as far as they are looked at."""
        kept, scaled = found.table(), {*self.scaled}
        points = [
            p for portion in self._parts for p in _points(self._ask(portion, sql.broken_values, kept=kept))
        ]
        return [p for p in points if (p.segment, p.rank) not in scaled]


def _points(table: pa.Table) -> Iterable[Point]:
    """Rows of a query, in the order of their places."""
    if table.num_rows == 0:
        return []
    order = [(name, "ascending") for name in ("segment", "rank", "writer", "place")]
    table = table.sort_by(order)
    columns = (table[name].to_pylist() for name in ("segment", "rank", "step", "signal", "value", "writer"))
    return [Point(*row) for row in zip(*columns, strict=True)]
