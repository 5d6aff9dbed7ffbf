"""Which entries of a logbook tell of one and the same restart."""

from __future__ import annotations

import re

from .._rooms import schemas
from .reported_words import words

_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}")


def same_restart(a: schemas.Reported, b: schemas.Reported) -> bool:
    """Tell whether two entries of a run belong to one restart: two differences of one pair of configs, the
    same day, or the same start on no other day."""
    both = {w.concept for w in words(a.concept)} & {w.concept for w in words(b.concept)}
    if both and a.source.authority == b.source.authority:
        return False  # one restart sets a thing once: these are two attempts
    if a.comparison is not None and a.comparison == b.comparison:
        return True
    day_a, day_b = _day(a), _day(b)
    if day_a and day_b:
        return day_a == day_b and (
            None in (a.restart_from, b.restart_from) or a.restart_from == b.restart_from
        )
    same_state = a.restart_from is not None and a.restart_from == b.restart_from
    # From scratch, two entries next to each other are two runs as soon as one.
    return same_state and a.restart_from != 0 and abs(a.order - b.order) == 1


def _day(entry: schemas.Reported) -> str | None:
    found = _DAY.match(entry.date or "")
    return found[0] if found else None
