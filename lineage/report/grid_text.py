"""The grid as lines of text, for a terminal and for Markdown. Letters alone tell what is what; colour repeats them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .grid import Grid, Kind, Row, Square

LETTER: dict[Kind, str] = {"first": "F", "tie": "f", "bad": "x", "stopped": "s", "fine": ".", "nothing": " "}
LEGEND = (
    "F first bad    f as early, on another rank   X all its ranks bad   x some bad",
    "s some stopped recording   . in range        (blank) no record",
)
LEAST = 40
"""Characters of a narrow terminal that a grid still fits in."""

Paint = Callable[[str, Kind], str]
"""Gives a text its colour."""


def plain(text: str, kind: Kind) -> str:
    """No colour."""
    return text


@dataclass(frozen=True)
class Fit:
    """What fits beside the labels of the rows."""

    label: int
    columns: int


def words(grid: Grid, width: int = 80, paint: Paint = plain) -> list[str]:
    """The grid in words, as wide as `width`; of columns that do not fit those around the first bad one stay."""
    label = min(max((len(r.label) for r in grid.rows), default=4), max(12, width // 3))
    each = (
        max([len(s.word) for r in grid.rows for s in r.squares] + [len(f"{a:,}") for a, _ in grid.columns])
        + 2
    )
    fits = max(1, (width - label - 2) // each)
    shown = _shown(grid, fits)
    out = [" " * (label + 2) + "".join(f"{f'{grid.columns[i][0]:,}':>{each}}" for i in shown)]
    for row in grid.rows:
        mark = ">" if row.first else " "
        squares = "".join(paint(f"{row.squares[i].word:>{each}}", row.squares[i].kind) for i in shown)
        out.append(f"{mark} {_cut(row.label, label):<{label}}{squares}")
    left = len(grid.columns) - len(shown)
    if left:
        out.append(f"({left:,} of {len(grid.columns):,} steps do not fit in {width} characters)")
    return out


def _shown(grid: Grid, fits: int) -> range:
    """The columns that fit: those around the first bad one."""
    n = len(grid.columns)
    if n <= fits:
        return range(n)
    at = next((i for i in range(n) for r in grid.rows if r.squares[i].kind == "first"), 0)
    begin = max(0, min(at - fits // 2, n - fits))
    return range(begin, begin + fits)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "~"


def letter(s: Square) -> str:
    """A square as one letter."""
    return "X" if s.kind == "bad" and s.bad == s.of else LETTER[s.kind]


def columns_of(width: int, grid: Grid) -> int:
    """How many squares of one letter fit beside the labels and the counts of a map with these rows."""
    label = max((len(r.label) for r in grid.rows), default=4)
    count = max((2 * len(f"{len(r.ranks):,}") + 7 if len(r.ranks) > 1 else 0 for r in grid.rows), default=0)
    return max(10, width - label - count - 4)


def map_lines(grid: Grid, paint: Paint = plain) -> list[str]:
    """The map, one letter for each square; the first bad row and column are pointed at."""
    label = max((len(r.label) for r in grid.rows), default=4)
    at = next((i for r in grid.rows for i, s in enumerate(r.squares) if s.kind == "first"), None)
    out = [" " * (label + 3) + _axis(grid)]
    if at is not None:
        out.append(" " * (label + 3 + at) + paint("v", "first"))
    for row in grid.rows:
        squares = "".join(paint(letter(s), s.kind) for s in row.squares)
        out.append(f"{'>' if row.first else ' '} {row.label:<{label}} {squares}{_count(row)}")
    return [*out, "", *LEGEND, f"({grid.note})"]


def _count(row: Row) -> str:
    return f"  {row.bad:,}/{len(row.ranks):,} bad" if row.bad and len(row.ranks) > 1 else ""


def _axis(grid: Grid) -> str:
    """Step numbers where there is room for them."""
    out, free = "", 0
    for i, (a, _) in enumerate(grid.columns):
        name = f"{a:,}"
        if i >= free and i % 10 == 0 and i + len(name) <= max(len(grid.columns), len(name)):
            out = out.ljust(i) + name
            free = i + len(name) + 1
    return out
