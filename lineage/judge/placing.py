"""Placing reported entries on the steps of a run: by step, by restart, by neighbours; and what is odd about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._rooms import schemas
from . import reported_values as values
from .contradictions import contradictions, otherwise
from .reported_words import words

_DATE = re.compile(r"^(\d{4})(?:-(0[1-9]|1[0-2]))?(?:-(0[1-9]|[12]\d|3[01]))?(?:[T ].*)?$")


def place(entries: Sequence[schemas.Reported]) -> list[schemas.Reported]:
    """Return the entries of one run with their place and their problems; the order of the source stays.

    An entry with a step stands at it, one with a restart only at the state restarted from. One with neither is
    placed at the head that the run had reached by then, which is a lower bound.
    """
    out: list[schemas.Reported] = []
    head: int | None = None
    latest_date: str | None = None
    for entry in entries:
        at, by = _place(entry, head)
        problems = [*entry.problems, *_range_problems(entry)]
        if by == "step" and head is not None and entry.restart_from is None and entry.step is not None:
            problems += _backwards(entry.step, head)
        if (
            entry.restart_from is not None
            and head is not None
            and entry.restart_from > head
            and entry.step is None
        ):
            problems.append(f"it restarts from {entry.restart_from}; the run is known only up to {head}")
        problems += _date_problems(entry.date, latest_date)
        out.append(entry.model_copy(update={"placed_at": at, "placed_by": by, "problems": problems}))
        head = _head(entry, head)
        latest_date = _later(entry.date, latest_date)
    return _contradicted(out)


def loose(entry: schemas.Reported) -> bool:
    """Tell whether an entry stands at a lower bound: its own step is not known."""
    return entry.placed_by in ("neighbours", "nothing")


def known_instead(entries: Sequence[schemas.Reported]) -> str | None:
    """What is known instead of the step of entries that came together; None where their step is known."""
    if not all(loose(e) for e in entries):
        return None
    dates = dict.fromkeys(e.date for e in entries if e.date)
    return f"dated {', '.join(dates)}" if dates else "neither step nor date is given"


def _place(entry: schemas.Reported, head: int | None) -> tuple[int | None, str]:
    if entry.step is not None:
        return entry.step, "step"
    if entry.restart_from is not None:
        return entry.restart_from, "restart"
    return (head, "neighbours") if head is not None else (None, "nothing")


def _head(entry: schemas.Reported, head: int | None) -> int | None:
    if entry.restart_from is not None:
        return max(entry.restart_from, entry.step or 0)
    if entry.step is None:
        return head
    return entry.step if head is None else max(head, entry.step)


def _backwards(step: int, head: int) -> list[str]:
    if step >= head:
        return []
    return [f"step {step} stands after step {head} in the source, and no restart to or before it is named"]


def _date_problems(date: str | None, latest: str | None) -> list[str]:
    if not date or not latest or not _DATE.match(date):
        return []
    shared = min(len(_digits(date)), len(_digits(latest)))
    if _digits(date)[:shared] < _digits(latest)[:shared]:
        return [f"dated {date}, and stands after an entry dated {latest}"]
    return []


def _digits(date: str) -> tuple[str, ...]:
    found = _DATE.match(date)
    return tuple(p for p in found.groups() if p) if found else ()


def _later(date: str | None, latest: str | None) -> str | None:
    if not date or not _DATE.match(date):
        return latest
    return date if latest is None or _digits(date) >= _digits(latest) else latest


def _range_problems(entry: schemas.Reported) -> list[str]:
    if not any(w.concept == "batch_skip" for w in words(entry.concept)):
        return []
    return values.range_problems(entry.after, entry.restart_from)


def _contradicted(entries: Sequence[schemas.Reported]) -> list[schemas.Reported]:
    """Say beside each human entry where a machine's entry of the same concept and moment says otherwise."""
    against = contradictions(entries)
    return [
        e.model_copy(update={"problems": [*e.problems, *(otherwise(m) for m in against[e.uid])]})
        if e.uid in against
        else e
        for e in entries
    ]
