"""Clocks of machines beside the run: how far times lie from it, and when one is doubted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median

from .._rooms import schemas
from .events_run import Life, Placed

CLOCK_OFF = timedelta(minutes=15)
"""How far outside the run all events of a source lie before its clock is doubted in words."""
ANOTHER_TIME = timedelta(days=2)
"""Beyond this no zone and hardly a clock explains it."""
UNKNOWN_ZONE = timedelta(hours=14)
"""Zones lie between UTC-12 and UTC+14, so a time without one may be off by so much."""


def duration_words(length: timedelta) -> str:
    """`3 h 5 min`, `12 s`: the two largest units."""
    total = round(length.total_seconds())
    for big, small, size, unit in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if total >= big:
            rest = total % big // small
            return f"{total // big} {size}" + (f" {rest} {unit}" if rest else "")
    return f"{total} s" if total else f"{length.total_seconds():.2f} s"


def doubts(event: schemas.Event) -> list[str]:
    """What is not sure about the time of an event, in words."""
    out: list[str] = []
    if event.when is None:
        return out
    if event.zone == "assumed":
        out.append("its zone is not stated: read as UTC, it may be off by up to 14 hours")
    if event.shift is None:
        out.append("how far its clock is from the run's is not known")
    if (event.precision or 0) > 1:
        out.append(f"its time is known to {event.precision:g} s")
    return out


def outside(when: datetime, lives: Sequence[Life]) -> str:
    """How far outside all segments a time lies, in words."""
    if not lives:
        return "this ledger has no segment"
    before = [life for life in lives if life.last < when]
    after = [life for life in lives if life.first > when]
    told = []
    if before:
        nearest = max(before, key=lambda life: life.last)
        told.append(
            f"{duration_words(when - nearest.last)} after the last record of segment {nearest.number}"
        )
    if after:
        first = min(after, key=lambda life: life.first)
        told.append(f"{duration_words(first.first - when)} before segment {first.number} began")
    return "no segment ran at that time: " + " and ".join(told) if told else "no segment fits"


def clock_doubt(placed: Sequence[Placed], lives: Sequence[Life]) -> str | None:
    """Says that the clock of a source seems off by hours: all its events lie outside every segment."""
    timed = [p.event.when for p in placed if p.event.when is not None]
    if not timed or not lives:
        return None
    if any(life.first - CLOCK_OFF <= t <= life.last + CLOCK_OFF for t in timed for life in lives):
        return None
    away = [min(_distance(t, life) for life in lives) for t in timed]
    nearest = [min((_signed(t, life) for life in lives), key=abs) for t in timed]
    zones = {p.event.zone for p in placed if p.event.when is not None}
    middle = timedelta(seconds=median(n.total_seconds() for n in nearest))
    side = "after" if middle > timedelta(0) else "before"
    said = (
        f"LIN-E003: all {len(timed)} times lie outside the run, by {duration_words(min(away))} or more (in the middle "
        f"{duration_words(abs(middle))} {side} it)"
    )
    if min(away) > ANOTHER_TIME:
        return f"{said}. They look like those of another job"
    option = (
        "--zone says which zone they are of"
        if "assumed" in zones
        else "--clock-offset says by how much it is off"
    )
    return f"{said}. They may be of another job, or their clock is off: {option}"


def _signed(t: datetime, life: Life) -> timedelta:
    if t > life.last:
        return t - life.last
    return t - life.first if t < life.first else timedelta(0)


def _distance(t: datetime, life: Life) -> timedelta:
    return abs(_signed(t, life))
