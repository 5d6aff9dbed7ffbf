"""The squares of the grid: what some ranks were in some steps, the worst of them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .._rooms import schemas
from ..judge import execution
from ..judge.seen import RankSeen, Seen

Kind = Literal["first", "tie", "bad", "stopped", "fine", "nothing"]
WORST: tuple[Kind, ...] = ("first", "tie", "bad", "stopped", "fine", "nothing")
"""Kinds of squares from the one that matters most to the one that matters least."""

SHORT = {
    "loss": "loss",
    "gradient": "local grad",
    "grad_norm_local": "local grad",
    "grad_norm": "reduced grad",
    "activation": "output",
}


@dataclass(frozen=True)
class Square:
    """Some ranks at some steps."""

    kind: Kind
    bad: int
    """ranks with an abnormal cell"""
    there: int
    """ranks that recorded anything"""
    of: int
    """ranks that it stands for"""
    word: str
    """what it is, in few characters"""
    text: str
    """what it is, for a page"""


@dataclass(frozen=True)
class Source:
    """What a grid is laid out from: the cells of a segment, and what is known of its ranks."""

    first: schemas.Cell | None
    ties: frozenset[tuple[int, int]]
    bad: Mapping[int, Mapping[int, schemas.Cell]] = field(repr=False)
    """rank -> step -> its first abnormal cell there"""
    seen: Seen = field(repr=False)
    ranks: tuple[int, ...] = ()
    end: int = 0
    """the last step of which any rank recorded a value"""
    _order: Mapping[int, int] = field(default_factory=dict, repr=False)
    """id of a cell -> its place in the order of execution"""
    _known: dict[tuple[int, int, int], tuple[Kind, schemas.Cell | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, found: schemas.FirstBad, cells: Iterable[schemas.Cell], seen: Seen) -> Source:
        """Take the cells of the segment of a first bad cell."""
        bad: dict[int, dict[int, schemas.Cell]] = {}
        order: dict[int, int] = {}
        for i, c in enumerate(sorted(cells, key=execution.key)):
            bad.setdefault(c.rank, {}).setdefault(c.step, c)
            order[id(c)] = i
        ties = frozenset((t.rank, t.step) for t in found.ties)
        every = tuple(sorted({*bad, *seen.ranks, *range(seen.world or 0)}))
        return cls(found.cell, ties, bad, seen, every, seen.end(), order)

    def limits(self) -> tuple[int, int]:
        """The first and the last step of which anything is recorded."""
        begin = [s.first for s in self.seen.ranks.values() if s.first is not None]
        steps = [s for by in self.bad.values() for s in by]
        return min([*begin, *steps], default=1), max([self.end, *steps], default=1)

    def rank(self, rank: int, a: int, b: int) -> tuple[Kind, schemas.Cell | None]:
        """What one rank was in some steps, and the cell that says so."""
        known = self._known.get((rank, a, b))
        if known is None:
            known = self._known[rank, a, b] = self._look(rank, a, b)
        return known

    def _look(self, rank: int, a: int, b: int) -> tuple[Kind, schemas.Cell | None]:
        found = self.bad.get(rank, {})
        first = self.first
        if first is not None and first.rank == rank and a <= first.step <= b:
            return "first", first
        cells = ([found[a]] if a in found else []) if a == b else [c for s, c in found.items() if a <= s <= b]
        if cells:
            tie = next((c for c in cells if (rank, c.step) in self.ties), None)
            return ("tie", tie) if tie is not None else ("bad", min(cells, key=self._place))
        s = self.seen.ranks.get(rank, NOTHING)
        if s.first is None or s.last is None or b < s.first:
            return "nothing", None
        if a > s.last:
            return ("stopped" if self.end >= a else "nothing"), None
        return ("fine" if _has(s, a, b) else "nothing"), None

    def _place(self, cell: schemas.Cell) -> int:
        return self._order.get(id(cell), len(self._order))

    def square(self, ranks: Sequence[int], a: int, b: int) -> Square:
        """What some ranks were in some steps: the worst of them, and how many."""
        kinds: dict[Kind, int] = {}
        worst: schemas.Cell | None = None
        for r in ranks:
            kind, cell = self.rank(r, a, b)
            kinds[kind] = kinds.get(kind, 0) + 1
            if cell is not None and worst is not self.first:
                worst = (
                    cell
                    if worst is None or kind == "first" or self._place(cell) < self._place(worst)
                    else worst
                )
        kind = next(k for k in WORST if k in kinds)
        bad = sum(kinds.get(k, 0) for k in ("first", "tie", "bad"))
        gone = kinds.get("stopped", 0) + kinds.get("nothing", 0)
        word, text = words_of(kind, worst, bad, kinds.get("stopped", 0), len(ranks) - gone, len(ranks))
        return Square(kind, bad, len(ranks) - gone, len(ranks), word, text)


NOTHING = RankSeen()
"""A rank that left nothing."""


def _has(s: RankSeen, a: int, b: int) -> bool:
    """Whether a rank that recorded from before to after recorded anything in some steps."""
    return not any(x <= a and b <= y for x, y in s.holes)


def words_of(
    kind: Kind, cell: schemas.Cell | None, bad: int, stopped: int, there: int, of: int
) -> tuple[str, str]:
    """A square in few characters, and for a page."""
    share = "" if of == 1 else "all " if bad == of else f"{bad:,}/{of:,} "
    if cell is not None:
        what = {"non_finite": execution.number(cell.value), "out_of_range": "high"}.get(
            cell.abnormal, "differs"
        )
        what = {"Infinity": "Inf", "+Infinity": "Inf", "-Infinity": "-Inf"}.get(what, what) + tag(cell.signal)
        signal = SHORT.get(cell.signal, execution.name(cell.signal).partition(" of ")[0])
        value = execution.number(cell.value) if cell.abnormal != "differs" else "differs"
        many = "" if of == 1 else f", all {of:,}" if bad == of else f", {bad:,} of {of:,} ranks"
        if kind == "first":
            return "[FIRST]", f"FIRST BAD: {signal} {value}{many}"
        return f"{share}{what}", ("FIRST TOO: " if kind == "tie" else "") + f"{signal} {value}{many}"
    if kind == "stopped":
        return ("gone" if stopped == of else f"{stopped:,}/{of:,} gone"), (
            "stopped" if stopped == of else f"{stopped:,} of {of:,} ranks stopped"
        )
    if kind == "nothing":
        return "-", "no record"
    return (
        ("ok", "ok") if there == of else (f"{there:,}/{of:,} ok", f"ok, {there:,} of {of:,} ranks recorded")
    )


TAGS = {
    "loss": "l",
    "gradient": "g",
    "grad_norm_local": "g",
    "grad_norm": "r",
    "activation": "o",
    "weight": "w",
}
"""Signal -> the letter that says in few characters what is abnormal."""
TAGGED = "l loss, g gradient before the reduction, r reduced gradient, o output of a block, w weight or other state"


def tag(signal: str) -> str:
    """The letter of a signal, after a colon."""
    if signal.startswith((execution.REPLICA, *execution.STATE)):
        return ":w"
    return f":{TAGS[signal]}" if signal in TAGS else ""
