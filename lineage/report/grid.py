"""The rank x step grid around a first bad cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from ..judge.firstbad import ORDER
from . import words
from .series import Curves

BEFORE, AFTER = 4, 3
"""Steps shown before and after the first bad one."""

MOST_RANKS = 12

Kind = Literal["first", "tie", "bad", "fine", "nothing"]

SHORT = {"loss": "loss", "grad_norm_local": "local grad", "grad_norm": "reduced grad"}


@dataclass(frozen=True)
class Square:
    """One square: a rank at a step. The words alone say what it is; colour only repeats them."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Grid:
    """Ranks as rows, steps as columns."""

    steps: list[int]
    rows: list[tuple[int, list[Square]]]
    more: str | None
    """which ranks are not shown, in words"""


def grid(bad: schemas.FirstBad, found: Sequence[schemas.Cell], curves: Curves) -> Grid | None:
    """Lay the abnormal cells of the first bad cell's segment out around it."""
    cell = bad.cell
    if cell is None:
        return None
    here = [c for c in found if c.segment == cell.segment]
    steps = list(range(max(1, cell.step - BEFORE), cell.step + AFTER + 1))
    recorded = {
        (rank, step)
        for signal in ORDER
        for rank, values in curves.of(cell.segment, signal).items()
        for step in values
    }
    known = [cell.step, *(s for _, s in recorded)]
    steps = [s for s in steps if min(known) <= s <= max(known)]
    every = sorted({r for r, _ in recorded} | {c.rank for c in here})
    shown = _shown(every, cell, here, steps)
    rows = [(rank, [_square(rank, step, bad, here, recorded) for step in steps]) for rank in shown]
    more = None
    if len(shown) < len(every):
        more = (
            f"{len(every):,} ranks are recorded; the {len(shown)} shown are those that went bad first here, "
            "then the lowest ones"
        )
    return Grid(steps, rows, more)


def _shown(
    every: Sequence[int], first: schemas.Cell, here: Sequence[schemas.Cell], steps: Sequence[int]
) -> list[int]:
    """The ranks to show: the first bad one, then those that went bad in the window, then the lowest."""
    window = sorted((c for c in here if c.step in steps), key=_order)
    ranked = dict.fromkeys([first.rank, *(c.rank for c in window), *every])
    return sorted(list(ranked)[:MOST_RANKS])


def _order(c: schemas.Cell) -> tuple[int, int, int]:
    return c.step, ORDER.get(c.signal, 9), c.rank


def _square(
    rank: int,
    step: int,
    bad: schemas.FirstBad,
    here: Sequence[schemas.Cell],
    recorded: set[tuple[int, int]],
) -> Square:
    first = bad.cell
    mine = sorted((c for c in here if (c.rank, c.step) == (rank, step)), key=_order)
    if not mine:
        return Square("fine", "ok") if (rank, step) in recorded else Square("nothing", "no record")
    text = f"{SHORT.get(mine[0].signal, mine[0].signal)} {words.number(mine[0].value)}"
    if first is not None and (rank, step) == (first.rank, first.step):
        return Square(
            "first", f"FIRST BAD: {SHORT.get(first.signal, first.signal)} {words.number(first.value)}"
        )
    if any((t.rank, t.step) == (rank, step) for t in bad.ties):
        return Square("tie", f"FIRST TOO: {text}")
    return Square("bad", text)
