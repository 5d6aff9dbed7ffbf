"""The rank x step grid: which ranks were bad when, from 4 ranks to 10,000.

Two forms. `around` stands in words: the steps around the first bad one, ranks that look alike in one row. `overview`
is a map of all steps and all ranks: each square is the worst of its ranks and steps. Ranks go together by node where
their places are known, else in blocks. The words of a square say what it is; colour only repeats them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from ..judge import execution
from ..judge.seen import RankSeen, Seen, nodes
from ..ledger.cells import Cells
from .grid_square import NOTHING, TAGGED, Kind, Source, Square, words_of

__all__ = ["TAGGED", "Grid", "Grids", "Kind", "Row", "Source", "Square", "around", "overview"]

BEFORE, AFTER = 4, 3
"""Steps shown in words before and after the first bad one."""
MOST_ROWS = 16
"""Rows of the grid in words."""
MAP_ROWS, MAP_COLUMNS = 48, 72
"""Squares of a map on a page."""


@dataclass(frozen=True)
class Row:
    """Ranks that stand together."""

    label: str
    ranks: tuple[int, ...]
    squares: tuple[Square, ...]
    first: bool = False
    """whether the first bad rank is among them"""

    @property
    def bad(self) -> int:
        """Ranks that are bad in any one of the squares, as far as squares tell: the most of one."""
        return max((s.bad for s in self.squares), default=0)


@dataclass(frozen=True)
class Grid:
    """Ranks as rows, steps as columns: each column is one step, or the steps from one to another."""

    columns: tuple[tuple[int, int], ...]
    rows: tuple[Row, ...]
    ranks: int
    """ranks that the rows stand for"""
    note: str = ""
    """how ranks and steps were put together, in words"""

    @property
    def steps(self) -> list[int]:
        """The first step of each column."""
        return [a for a, _ in self.columns]


def around(
    source: Source,
    *,
    before: int = BEFORE,
    after: int = AFTER,
    rows: int = MOST_ROWS,
    ranks: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None,
) -> Grid | None:
    """The grid in words: single steps, and ranks that look alike in one row. None without a first bad cell.

    `ranks` and `steps` narrow it to those from one to another.
    """
    first = source.first
    if first is None and steps is None:
        return None
    low, high = source.limits()
    a, b = steps if steps is not None else (first.step - before, first.step + after)  # type: ignore[union-attr]
    columns = [(s, s) for s in range(max(a, low), min(b, high) + 1)]
    every = _within(source.ranks, ranks)
    if not columns or not every:
        return Grid(tuple(columns), (), len(every), "nothing is recorded there")
    size, note = 1, ""
    together: list[tuple[int, ...]] = [(r,) for r in every]
    groups = nodes(source.seen.ranks)
    names = {tuple(m): n for n, m in groups.items()}
    while True:
        found = [(u, tuple(source.square(u, *c) for c in columns)) for u in together]
        merged = _merged(source, found, columns, first.rank if first else None)
        if len(merged) <= rows or size >= len(every):
            break
        size, together, note = _coarser(every, groups, size, first.rank if first else None)
    laid = tuple(
        Row(_label(u, names), u, squares, first is not None and first.rank in u) for u, squares in merged
    )
    return Grid(tuple(columns), laid, len(every), note)


def _within(every: Sequence[int], limits: tuple[int, int] | None) -> list[int]:
    return [r for r in every if limits is None or limits[0] <= r <= limits[1]]


def _merged(
    source: Source,
    found: Sequence[tuple[tuple[int, ...], tuple[Square, ...]]],
    columns: Sequence[tuple[int, int]],
    alone: int | None,
) -> list[tuple[tuple[int, ...], tuple[Square, ...]]]:
    """Neighbours that look alike in one row; the first bad rank has one of its own."""
    runs: list[list[tuple[int, ...]]] = []
    before: object = None
    for unit, squares in found:
        look = None if alone in unit else tuple((s.kind, _look(s)) for s in squares)
        if look is not None and look == before:
            runs[-1].append(unit)
        else:
            runs.append([unit])
        before = look
    same = dict(found)
    out = []
    for run in runs:
        ranks = tuple(r for unit in run for r in unit)
        squares = same[ranks] if len(run) == 1 else tuple(source.square(ranks, *c) for c in columns)
        out.append((ranks, squares))
    return out


def _look(s: Square) -> object:
    """What makes two squares look alike: the word, and whether it is of all ranks, of some or of none."""
    return s.word.rpartition(" ")[2], "all" if s.bad == s.of else "some" if s.bad else "none", s.there == s.of


def _coarser(
    every: Sequence[int], groups: Mapping[str, Sequence[int]], size: int, alone: int | None
) -> tuple[int, list[tuple[int, ...]], str]:
    """The next larger units: nodes where they are known, then blocks; the first bad rank stays by itself."""
    allowed = set(every)
    if size == 1 and groups and len(groups) < len(every):
        units = [tuple(r for r in m if r in allowed) for m in groups.values()]
        size, note = max(map(len, units)), "ranks go together by node"
    else:
        size = max(2, size * 2)
        base = -(-size // 1)
        units = [tuple(every[i : i + base]) for i in range(0, len(every), base)]
        note = f"ranks go together in blocks of {size:,}"
    out: list[tuple[int, ...]] = []
    for unit in units:
        if alone in unit and len(unit) > 1:
            at = unit.index(alone)
            out += [u for u in (unit[:at], (alone,), unit[at + 1 :]) if u]
        elif unit:
            out.append(unit)
    return size, out, note


def _label(ranks: Sequence[int], names: Mapping[tuple[int, ...], str]) -> str:
    said = execution.ranks(ranks, 2)
    node = names.get(tuple(ranks))
    return f"{said} ({node})" if node and len(ranks) > 1 else said


def overview(
    source: Source,
    *,
    rows: int = MAP_ROWS,
    columns: int = MAP_COLUMNS,
    ranks: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None,
) -> Grid | None:
    """The map of all steps and ranks, or of those from one to another: at most `rows` by `columns` squares."""
    low, high = source.limits()
    if steps is not None:
        low, high = max(low, steps[0]), min(high, steps[1])
    every = _within(source.ranks, ranks)
    if not every or high < low:
        return None
    width = max(1, math.ceil((high - low + 1) / columns))
    spans = tuple((a, min(a + width - 1, high)) for a in range(low, high + 1, width))
    units, by, names = _units(source, every, rows)
    first = source.first.rank if source.first is not None else None
    laid = tuple(
        Row(_label(u, names), u, tuple(_squares(source, u, spans)), first is not None and first in u)
        for u in units
    )
    per = "each column is one step" if width == 1 else f"each column is {width:,} steps"
    return Grid(spans, laid, len(every), f"{by}, {per}")


def _units(
    source: Source, every: Sequence[int], rows: int
) -> tuple[list[tuple[int, ...]], str, dict[tuple[int, ...], str]]:
    """The rows of a map: ranks, else nodes, else several nodes or a block of ranks each."""
    if len(every) <= rows:
        return [(r,) for r in every], "each row is one rank", {}
    allowed = set(every)
    groups = {n: tuple(r for r in m if r in allowed) for n, m in nodes(source.seen.ranks).items()}
    groups = {n: m for n, m in groups.items() if m}
    if groups and sum(map(len, groups.values())) == len(every) and len(groups) < len(every):
        members = list(groups.values())
        if len(members) <= rows:
            return members, "each row is one node", {m: n for n, m in groups.items()}
        each = math.ceil(len(members) / rows)
        blocks = [tuple(r for m in members[i : i + each] for r in m) for i in range(0, len(members), each)]
        return blocks, f"each row is {each:,} nodes", {}
    size = 2 ** math.ceil(math.log2(len(every) / rows))
    blocks = [tuple(every[i : i + size]) for i in range(0, len(every), size)]
    return blocks, f"each row is {size:,} ranks", {}


def _squares(source: Source, ranks: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[Square]:
    """The squares of a row. Ranks without any cell that recorded the same steps are looked at once."""
    alike: dict[RankSeen, list[int]] = {}
    odd = []
    for r in ranks:
        if r in source.bad:
            odd.append(r)
        else:
            s = source.seen.ranks.get(r, NOTHING)
            alike.setdefault(RankSeen(first=s.first, last=s.last, holes=s.holes), []).append(r)
    out = []
    for a, b in spans:
        found = source.square(odd, a, b) if odd else None
        there, stopped, nothing = 0, 0, 0
        for members in alike.values():
            kind, _ = source.rank(members[0], a, b)
            there += len(members) if kind == "fine" else 0
            stopped += len(members) if kind == "stopped" else 0
            nothing += len(members) if kind == "nothing" else 0
        if found is None or found.kind not in ("first", "tie", "bad"):
            more = found.there if found else 0
            gone = stopped + (len(odd) if found and found.kind == "stopped" else 0)
            kind = "stopped" if gone else "fine" if there + more else "nothing"
            word, text = words_of(kind, None, 0, gone, there + more, len(ranks))
            out.append(Square(kind, 0, there + more, len(ranks), word, text))
        else:
            out.append(Square(found.kind, found.bad, there + found.there, len(ranks), found.word, found.text))
    return out


@dataclass(frozen=True)
class Grids:
    """The two forms of the grid of one first bad cell."""

    around: Grid | None
    map: Grid | None
    source: Source = field(repr=False)

    @classmethod
    def of(cls, found: schemas.FirstBad, cells: Cells) -> Grids:
        """Lay out the grids of a first bad cell."""
        if found.cell is None:
            raise ValueError("a grid is laid out around a first bad cell, and there is none")
        segment = found.cell.segment
        source = Source.of(found, cells.of(segment), cells.seen.get(segment, Seen()))
        return cls(around(source), overview(source), source)

    def in_letters(self, columns: int = 64, rows: int = 24) -> Grid:
        """The map again, small enough for lines of text."""
        found = overview(self.source, rows=rows, columns=columns)
        assert found is not None, "there is a map, so there is a smaller one"
        return found
