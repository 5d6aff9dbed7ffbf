"""From rows to segments: a step that goes back, or a checkpoint that was loaded, begins another one.

Each rank of each file is followed for itself; the n-th life of one rank is that of the others, since a process group
lives and dies together. Rows that stand in several files, as the growing histories of checkpoints do, count once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from uuid6 import uuid7

from .numbers import same
from .rows import Note, Row
from .spacing import Spacing

MOST_KNOWN = 500_000
"""Rows that are kept in mind, to recognise them in the next file."""


@dataclass
class Part:
    """One segment as the logs show it."""

    number: int
    uid: str = field(default_factory=lambda: str(uuid7()))
    start: Literal["fresh", "resume", "rewind", "unknown"] = "unknown"
    from_step: int | None = None
    """completed updates of the state it started from"""
    exact: bool = True
    """False: the log's rows are so far apart that only the earliest possible state is known"""
    parent: Part | None = None
    loaded: bool = False
    """the log says which checkpoint was loaded"""
    spacing: dict[int, Spacing] = field(default_factory=dict)
    """rank -> its training rows"""

    @property
    def last(self) -> int:
        """The last step of any rank."""
        return max((s.last or 0 for s in self.spacing.values()), default=0)

    @property
    def first(self) -> int | None:
        """The first step of any rank; None without a training row."""
        return min((s.first for s in self.spacing.values() if s.first is not None), default=None)


@dataclass
class _File:
    """What is known of one file while it is read."""

    name: str
    generation: int = 0
    rows_since: bool = False
    loaded: int | None = None
    part_of: dict[int, int] = field(default_factory=dict)
    generation_of: dict[int, int] = field(default_factory=dict)
    last_of: dict[tuple[int, str], int] = field(default_factory=dict)
    newest: dict[int, Row] = field(default_factory=dict)
    unique: dict[int, int] = field(default_factory=dict)
    first_part: int | None = None


class Cutter:
    """Tells for each row which segment it is of, in the order in which files and rows come."""

    def __init__(self, *, files: int = 1) -> None:
        self.parts: list[Part] = []
        self.twice = 0
        """rows that were known already"""
        self.joined: list[str] = []
        """files that go on where an earlier one ended"""
        self.again: set[int] = set()
        """steps that stand several times with other values, in one segment"""
        self._files: dict[str, _File] = {}
        self._known: dict[tuple[int, int, str], tuple[int, int]] | None = {} if files > 1 else None

    def note(self, file: str, note: Note) -> None:
        """A checkpoint was loaded: the next rows of all ranks in this file are of another segment."""
        if note.kind != "loaded" or note.number is None:
            return
        f = self._file(file)
        f.loaded = note.number
        if f.rows_since:
            f.generation += 1
            f.rows_since = False

    def place(self, file: str, rank: int, row: Row) -> Part | None:
        """The segment of a row; None for one that is known already."""
        f = self._file(file)
        if (known := self._in_mind(rank, row)) is not None and f.newest.get(rank) is None:
            f.part_of[rank] = known
            f.first_part = known if f.first_part is None else f.first_part
            self.twice += 1
            return None
        here = f.part_of.get(rank)
        if here is None:
            here = self._enter(f, rank, row)
        elif row.kind == "train" and self._restarts(f, rank, row):
            here = self._next(f, rank, row, here)
        elif self._repeated(f, rank, row):
            self.twice += 1
            return None
        f.part_of[rank] = here
        f.first_part = here if f.first_part is None else f.first_part
        part = self.parts[here]
        if row.kind == "train":
            self._follow(f, rank, row, part)
        if self._known is not None and len(self._known) < MOST_KNOWN:
            self._known[rank, row.step, row.kind] = here, _print(row.values)
        return part

    def _file(self, name: str) -> _File:
        return self._files.setdefault(name, _File(name))

    def _in_mind(self, rank: int, row: Row) -> int | None:
        found = self._known.get((rank, row.step, row.kind)) if self._known else None
        return found[0] if found is not None and found[1] == _print(row.values) else None

    def _follow(self, f: _File, rank: int, row: Row, part: Part) -> None:
        newest = f.newest.get(rank)
        if newest is not None and newest.step == row.step and newest.values.keys() & row.values.keys():
            if len(self.again) < MOST_KNOWN:
                self.again.add(row.step)
        else:
            f.unique[rank] = f.unique.get(rank, 0) + 1
        f.newest[rank] = row
        f.rows_since = True
        for key in row.values:
            f.last_of[rank, key] = row.step
        part.spacing.setdefault(rank, Spacing()).add(row.step)

    def _repeated(self, f: _File, rank: int, row: Row) -> bool:
        newest = f.newest.get(rank)
        return (
            row.kind == "train"
            and newest is not None
            and newest.step == row.step
            and same(newest.values, row.values)
        )

    def _restarts(self, f: _File, rank: int, row: Row) -> bool:
        """Whether a training row is of another life: a checkpoint was loaded, or a key's step goes back."""
        if f.generation_of.get(rank, 0) < f.generation:
            return True
        if any(row.step < f.last_of.get((rank, key), -1) for key in row.values):
            return True
        newest = f.newest.get(rank)
        held = self.parts[f.part_of[rank]].spacing.get(rank)
        if newest is None and held is not None and held.last is not None and row.step <= held.last:
            return True  # the file began as an earlier one did, and goes another way from here
        # A step that is made again right away: unless this log repeats its steps anyhow, as one per micro-batch does.
        return (
            newest is not None
            and newest.step == row.step
            and bool(newest.values.keys() & row.values.keys())
            and not same(newest.values, row.values)
            and not self.again
            and f.unique.get(rank, 0) >= 3
        )

    def _enter(self, f: _File, rank: int, row: Row) -> int:
        """The segment of a rank's first row in a file."""
        f.generation_of[rank] = f.generation
        if not self.parts:
            return self._begin(f, rank, row, None)
        if f.first_part is not None:  # other ranks of this file are there already
            return f.part_of[min(f.part_of)] if f.generation else f.first_part
        held = [p for p in self.parts if rank in p.spacing]
        if not held:
            return 0
        before = held[-1]
        if f.loaded is None and row.step > (before.spacing[rank].last or 0):
            self.joined.append(f.name)
            return before.number
        return self._begin(f, rank, row, before)

    def _next(self, f: _File, rank: int, row: Row, here: int) -> int:
        f.generation_of[rank] = f.generation
        for key in [k for k in f.last_of if k[0] == rank]:
            del f.last_of[key]
        f.unique[rank] = 0
        f.newest.pop(rank, None)
        if here + 1 < len(self.parts):
            return here + 1
        return self._begin(f, rank, row, self.parts[here])

    def _begin(self, f: _File, rank: int, row: Row, before: Part | None) -> int:
        part = Part(len(self.parts))
        self.parts.append(part)
        f.newest.pop(rank, None)
        interval = before.spacing[rank].interval if before and rank in before.spacing else 1
        if f.loaded is not None:
            part.from_step, part.loaded, part.start = f.loaded, True, "resume"
            f.loaded = None
        elif before is not None:
            first = self.parts[0].first
            part.from_step = max(0, row.step - interval)
            part.exact = interval == 1
            if part.from_step == 0 or (first is not None and row.step <= first):
                part.start, part.from_step, part.exact = "fresh", None, True
        if before is not None and part.from_step is not None:
            part.parent = self._holder(part.from_step, before)
            part.start = "rewind" if part.from_step < before.last else "resume"
        return part.number

    def _holder(self, step: int, before: Part) -> Part:
        """The newest segment whose own updates led to a state."""
        made = [p for p in reversed(self.parts[:-1]) if (p.from_step or 0) < step <= p.last]
        return made[0] if made else before


def _print(values: Mapping[str, float]) -> int:
    """A number that equal rows have alike, within this process; NaN equals NaN."""
    return hash(tuple((k, str(v)) for k, v in sorted(values.items())))


def settle_first(parts: list[Part]) -> None:
    """A first segment whose first row comes within one usual interval began from scratch."""
    if parts and parts[0].start == "unknown" and parts[0].first is not None:
        usual = max((s.interval for s in parts[0].spacing.values()), default=1)
        if parts[0].first <= max(1, usual):
            parts[0].start = "fresh"


def spans(gaps: Mapping[int, Spacing]) -> list[tuple[int, int]]:
    """The gaps of all ranks, each once, in order."""
    return sorted({g for s in gaps.values() for g in s.gaps})
