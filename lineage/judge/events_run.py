"""What of a ledger places events: which rank ran where and when, and an event with its place."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from .._rooms import schemas


@dataclass(frozen=True)
class RankPlace:
    """One rank of one segment, where it ran."""

    segment: str
    rank: int
    place: schemas.Place


@dataclass(frozen=True)
class Life:
    """When a segment was alive, as far as its records and series tell."""

    segment: str
    number: int
    first: datetime
    last: datetime
    open: bool = False
    """no end is on record: it was killed, or still runs, and `last` is only what reached the disk"""


@dataclass(frozen=True)
class Steps:
    """When one rank recorded its steps: `at[i]` is the first time at which a value of `step[i]` was written."""

    step: Sequence[int]
    at: Sequence[datetime]

    def around(self, low: datetime, high: datetime) -> tuple[int | None, int | None]:
        """The last step recorded by `low`, and the first recorded after `high`; None where there is none."""
        before = bisect.bisect_right(self.at, low)
        after = bisect.bisect_right(self.at, high)
        return (
            self.step[before - 1] if before else None,
            self.step[after] if after < len(self.at) else None,
        )


@dataclass(frozen=True)
class Run:
    """What of a ledger places events."""

    places: Sequence[RankPlace]
    lives: Sequence[Life]
    steps: Mapping[tuple[str, int], Steps] = field(default_factory=dict)
    """(segment, rank) -> its steps, for the ranks that were asked for"""
    devices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(node, PCI address or `index 3`) -> UUID, as events name both"""

    @cached_property
    def by_device(self) -> dict[str, list[RankPlace]]:
        """UUID -> the ranks that used that device, in every segment."""
        return _grouped(self.places, lambda p: None if p.place.device == "cpu" else uuid(p.place.device))

    @cached_property
    def by_node(self) -> dict[str, list[RankPlace]]:
        """Node -> the ranks that ran on it."""
        return _grouped(self.places, lambda p: p.place.node)

    @cached_property
    def by_rank(self) -> dict[int, list[RankPlace]]:
        """Rank -> where it ran, segment by segment."""
        return _grouped(self.places, lambda p: p.rank)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Segment -> its number."""
        return {life.segment: life.number for life in self.lives}


K = TypeVar("K")


def _grouped(places: Sequence[RankPlace], of: Callable[[RankPlace], K | None]) -> dict[K, list[RankPlace]]:
    out: dict[K, list[RankPlace]] = {}
    for p in places:
        key = of(p)
        if key is not None:
            out.setdefault(key, []).append(p)
    return out


@dataclass(frozen=True)
class Placed:
    """An event, and where it belongs. `segment` None: it is in none, and `why` says why."""

    event: schemas.Event
    record: str
    """id of the record"""
    segment: str | None = None
    number: int | None = None
    ranks: tuple[int, ...] = ()
    by: str = ""
    """what placed it: device, process, local rank, node, rank, time"""
    after: int | None = None
    before: int | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()

    def steps(self) -> str | None:
        """`between step 40 and 41`, as far as it is known."""
        if self.after is None and self.before is None:
            return None
        if self.before is None:
            return f"after step {self.after:,}, the last on record"
        if self.after is None:
            return f"before step {self.before:,}, the first on record"
        return f"between step {self.after:,} and {self.before:,}"


def identities(events: Iterable[schemas.Event]) -> dict[tuple[str, str], str]:
    """UUIDs by node and PCI address or index, from events that name a device in more than one way.

    What two events say otherwise (a device was replaced) is left out.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for e in events:
        if e.device_uuid is None or len(e.nodes) != 1:
            continue
        for name in (pci(e.device_pci), None if e.device_index is None else f"index {e.device_index}"):
            if name:
                found.setdefault((e.nodes[0], name), set()).add(uuid(e.device_uuid))
    return {key: next(iter(uuids)) for key, uuids in found.items() if len(uuids) == 1}


def uuid(text: str) -> str:
    """A device's UUID without its prefix, in lower case: torch writes it without `GPU-`."""
    return text.lower().removeprefix("gpu-")


def pci(text: str | None) -> str | None:
    """A PCI address without its function, with a domain of four digits."""
    if not text:
        return None
    parts = text.lower().partition(".")[0].split(":")
    return ":".join([parts[0][-4:].rjust(4, "0") if len(parts) == 3 else "0000", *parts[-2:]])
