"""What a ledger holds of the ranks of a segment, in sum: enough to say what is missing, without all
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .._rooms import schemas
from .execution import ranks as ranks_

CLOCK = 300.0
"""Seconds by which a rank's clock may differ from the others' before it is said."""


@dataclass(frozen=True)
class RankSeen:
    """One rank of one segment."""

    first: int | None = None
    """the first step with a value; None where there is none"""
    last: int | None = None
    signals: frozenset[str] = frozenset()
    """signals of the series of which it has any value, and kinds of rows of the tensors"""
    journal: bool = True
    """whether it left a journal: a process that was there"""
    place: schemas.Place | None = None
    holes: tuple[tuple[int, int], ...] = ()
    """steps between `first` and `last` without any value: (first, last), at most the first few"""
    ended: int | None = None
    """the last step that its process said it had reached when it ended; None where it said nothing"""
    clock: float | None = None
    """seconds by which its clock is ahead of the middle one of the ranks"""
    twins: tuple[int, int] | None = None
    """the steps that more than one process wrote as this rank"""

    def has(self, step: int) -> bool:
        """Whether it recorded anything at a step, as far as this summary tells."""
        if self.first is None or self.last is None or not self.first <= step <= self.last:
            return False
        return not any(a <= step <= b for a, b in self.holes)


@dataclass(frozen=True)
class Seen:
    """What is known of a segment beside its abnormal cells. All of it may be left out."""

    ranks: Mapping[int, RankSeen] = field(default_factory=dict)
    world: int | None = None
    """ranks of the process group; None where that is not known"""
    values_at: Callable[[schemas.Cell], Mapping[int, float]] | None = None
    """rank -> value of a cell's signal at its step, over all ranks that recorded it"""
    unread: tuple[str, ...] = ()
    """files of the segment that cannot be read, in words"""
    layout: tuple[str, ...] = ()
    """how the model is divided over ranks, as far as it is recorded: `fsdp`, `tensor`, `pipeline`,
    `expert`"""
    same_until: Mapping[int, int] = field(default_factory=dict)
    """step -> the last of the steps after it at which the very same values are not finite; their cells are left out"""
    state_read: Callable[[schemas.Cell], int | None] | None = None
    """the last step before a cell's at which its rank read weights or moments; None where it did at none"""

    def end(self) -> int:
        """The last step of which any rank recorded a value; 0 without any."""
        return max((r.last for r in self.ranks.values() if r.last is not None), default=0)

    def has_values(self, signal: str) -> list[int]:
        """The ranks that have a signal at all."""
        return sorted(r for r, s in self.ranks.items() if signal in s.signals)

    def has_values_at(self, signal: str, step: int) -> list[int]:
        """The ranks that have a signal, and were recording at a step."""
        return [r for r in self.has_values(signal) if self.ranks[r].has(step)]

    def count(self) -> int:
        """Ranks that should be there: of the process group, or those that left anything."""
        return max(self.world or 0, len(self.ranks))


def gaps(seen: Seen, step: int | None) -> list[str]:
    """What the ledger does not show of a segment's ranks up to a step (None: to its end), in words."""
    end = seen.end() if step is None else step
    absent = [r for r in range(seen.world or 0) if r not in seen.ranks]
    values = any(s.last is not None for s in seen.ranks.values())
    silent = [r for r, s in seen.ranks.items() if s.last is None] if values else []
    out = []
    if absent:
        out.append(f"{ranks_(absent)} left nothing in this ledger: no journal and no values")
    if silent:
        out.append(f"{ranks_(silent)} left a journal, and recorded no values in this segment")
    out += _stopped(seen, end)
    late: dict[int, list[int]] = {}
    begin = min((s.first for s in seen.ranks.values() if s.first is not None), default=0)
    for r, s in seen.ranks.items():
        if s.first is not None and begin < s.first <= end:
            late.setdefault(s.first, []).append(r)
    out += [
        f"{ranks_(behind)} recorded nothing before step {first:,}; others did from step {begin:,} on"
        for first, behind in sorted(late.items())[:MOST]
    ]
    holes: dict[tuple[int, int], list[int]] = {}
    for r, s in seen.ranks.items():
        for hole in s.holes:
            if hole[0] <= end:
                holes.setdefault(hole, []).append(r)
    for (a, b), missing in sorted(holes.items())[:MOST]:
        upto = f"s {a:,} to {b:,}" if b > a else f" {a:,}"
        out.append(f"{ranks_(missing)} recorded nothing at step{upto}")
    return [*out, *_twins(seen), *_clocks(seen), *(f"{f}" for f in seen.unread[:MOST])]


MOST = 4
"""Lines of one kind; more say nothing more."""


def _stopped(seen: Seen, end: int) -> list[str]:
    """Ranks that stopped before the step, by the step at which they did."""
    groups: dict[tuple[int, bool], list[int]] = {}
    for r, s in seen.ranks.items():
        if s.last is not None and s.last < end - 1:
            groups.setdefault((s.last, s.ended is not None), []).append(r)
    out = []
    for (last, said), stopped in sorted(groups.items())[:MOST]:
        how = "" if said else ", without a word of the end (killed, hanging, or the layer off)"
        out.append(f"{ranks_(stopped)} stopped recording after step {last:,}{how}")
    more = len(groups) - MOST
    if more > 0:
        n = sum(len(r) for _, r in sorted(groups.items())[MOST:])
        out.append(f"{n:,} further ranks stopped recording before step {end:,}")
    return out


def unended(seen: Seen) -> list[str]:
    """That ranks said nothing of an end, as a kill leaves them, and where each of them stopped."""
    open_ = {
        r: s
        for r, s in seen.ranks.items()
        if s.last is not None and s.ended is None and s.journal and s.place is not None
    }
    if not open_ or any(s.place is not None and s.place.node == schemas.IMPORTED for s in open_.values()):
        return []
    by_step: dict[int, list[int]] = {}
    for r, s in open_.items():
        by_step.setdefault(s.last or 0, []).append(r)
    where = [f"{ranks_(found)} after step {last:,}" for last, found in sorted(by_step.items())[:MOST]]
    more = f", and {len(by_step) - MOST:,} further steps" if len(by_step) > MOST else ""
    return [f"no end is on record (still running, killed, or hanging); last values: {', '.join(where)}{more}"]


def _twins(seen: Seen) -> list[str]:
    groups: dict[tuple[int, int], list[int]] = {}
    for r, s in seen.ranks.items():
        if s.twins is not None:
            groups.setdefault(s.twins, []).append(r)
    return [
        f"{ranks_(r)}: steps {a:,} to {b:,} were written by more than one process; each is judged by "
        "itself, and "
        "which of them trained what was saved is not shown"
        for (a, b), r in sorted(groups.items())[:MOST]
    ]


def _clocks(seen: Seen) -> list[str]:
    off = {r: s.clock for r, s in seen.ranks.items() if s.clock is not None and abs(s.clock) > CLOCK}
    if not off:
        return []
    worst = max(off, key=lambda r: abs(off[r]))
    hours = off[worst] / 3600
    return [
        f"the clock of {ranks_(off)} differs from the others' (rank {worst} by {hours:+.1f} hours): "
        "cells are ordered "
        "by step, not by time, so this decides nothing here; events of that node cannot be placed by time"
    ]


def nodes(seen: Mapping[int, RankSeen]) -> dict[str, list[int]]:
    """Node -> its ranks, in order of the lowest rank; empty where any rank's place is unknown."""
    out: dict[str, list[int]] = {}
    for r in sorted(seen):
        place = seen[r].place
        if place is None:
            return {}
        out.setdefault(place.node, []).append(r)
    return out


def same_device(a: schemas.Place | None, b: schemas.Place | None) -> bool:
    """Whether two places are one device: a GPU by its UUID, anything else by node and local rank."""
    if a is None or b is None or a.device == "cpu" or b.device == "cpu":
        return (
            a is not None
            and b is not None
            and (a.node, a.local_rank, a.device) == (b.node, b.local_rank, b.device)
        )
    return a.device == b.device


def of_ranks(found: Iterable[int], last: Mapping[int, int] | None = None) -> dict[int, RankSeen]:
    """A summary from the little that is known: ranks that left a journal, and the last step of some."""
    ends = last or {}
    return {r: RankSeen(first=1 if r in ends else None, last=ends.get(r)) for r in {*found, *ends}}
