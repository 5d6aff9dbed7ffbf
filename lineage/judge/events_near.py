"""Events at the time of a bad step: on its node, and elsewhere. They stand beside it, and explain nothing by that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from .._rooms import schemas
from .events_clock import UNKNOWN_ZONE
from .events_run import Placed

WINDOW = timedelta(minutes=10)
"""How far before and after the bad step an event is still told as of the same time."""
LABEL = "same time, same node; not shown to be the cause"
ELSEWHERE = "same time, another node; not shown to be the cause"


@dataclass(frozen=True)
class Near:
    """One event beside a bad step."""

    placed: Placed
    seconds: float
    """after the bad step was recorded; before it where negative"""
    label: str

    def text(self) -> str:
        """The event in one line, with how far it is from the step."""
        e = self.placed.event
        side = "after" if self.seconds > 0 else "before"
        away = f"{abs(self.seconds):.0f} s {side} the step was recorded"
        code = f" {e.code}" if e.code else ""
        ranks = f", rank {', '.join(map(str, self.placed.ranks[:4]))}" if self.placed.ranks else ""
        return f"{e.severity}: {e.category}{code}: {e.text[:160]} ({away}{ranks}; {self.label})"


def near(
    placed: Iterable[Placed],
    segment: str,
    rank: int,
    node: str | None,
    at: datetime | None,
    window: timedelta = WINDOW,
) -> list[Near]:
    """Events within `window` of the time at which a bad step was recorded, those of its node first.

    `node` is the node of the rank, `at` the time of its first value of that step; without a time nothing is near.
    Events of no node are told as elsewhere. One whose zone is not stated is left out: its hour is not known.
    """
    if at is None:
        return []
    found: list[tuple[bool, Near]] = []
    for p in placed:
        e = p.event
        if e.when is None or e.zone == "assumed":
            continue
        slack = timedelta(seconds=e.precision or 0.0)
        until = max(e.until or e.when, e.when)
        if not (e.when - slack - window <= at <= until + slack + window):
            continue
        same = _same(p, segment, rank, node)
        if not same and e.severity == "note":
            continue
        seconds = 0.0 if e.when <= at <= until else ((e.when if at < e.when else until) - at).total_seconds()
        found.append((not same, Near(p, seconds, LABEL if same else ELSEWHERE)))
    found.sort(key=lambda f: (f[0], schemas.severity_place(f[1].placed.event.severity), abs(f[1].seconds)))
    return [n for _, n in found]


def _same(p: Placed, segment: str, rank: int, node: str | None) -> bool:
    return (p.segment == segment and rank in p.ranks) or (node is not None and node in p.event.nodes)


def unsure(placed: Sequence[Placed], at: datetime | None) -> int:
    """How many events may be of that time, and are not told since their zone is not stated."""
    if at is None:
        return 0
    return sum(
        p.event.when is not None and p.event.zone == "assumed" and abs(p.event.when - at) <= UNKNOWN_ZONE
        for p in placed
    )
