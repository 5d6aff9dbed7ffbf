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
    placed at the head that the run had reached by then, which is a lower bound. A state that lies after the entry's
    own step cannot be what it started from: that restart is kept as written, and places nothing.
    """
    out: list[schemas.Reported] = []
    head: int | None = None
    latest_date: str | None = None
    for given in entries:
        entry = _without_later_restart(given)
        at, by = _place(entry, head)
        problems = [*entry.problems, *_range_problems(given)]
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


def instead(entry: schemas.Reported, after: int = 0) -> str | None:
    """What is known instead of an entry's step, where the step at which it stands is only the earliest possible.

    `after` is the state from which its branch started: an entry with an earlier step is not placed by that step.
    """
    if entry.placed_by == "step" and (entry.placed_at or 0) < after:
        return f"written as step {entry.placed_at:,}, which is before the restart from {after:,}"
    if entry.placed_by in ("step", "restart"):
        return None
    return f"dated {entry.date}" if entry.date else "neither step nor date is given"


def known_instead(entries: Sequence[schemas.Reported], after: int = 0) -> str | None:
    """What is known instead of the step of entries that came together; None where their step is known."""
    found = [instead(e, after) for e in entries]
    return "; ".join(dict.fromkeys(f for f in found if f)) if all(found) else None


AS_WRITTEN = "restart_from_as_written"


def _without_later_restart(entry: schemas.Reported) -> schemas.Reported:
    restart, step = entry.restart_from, entry.step
    if restart is None or step is None or restart <= step:
        return entry
    problem = (
        f"it restarts from {restart}, which is after its own step {step}, so it cannot have started there: the "
        "restart is not used, and the entry stands at its step; correct one of the two in the source"
    )
    return entry.model_copy(
        update={
            "restart_from": None,
            "problems": [*entry.problems, problem],
            "extra": {**entry.extra, AS_WRITTEN: schemas.Scalar.of(restart)},
        }
    )


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
