"""Where a machine's record and a person's account of the same matter differ. The machine's value stands."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from . import reported_values as values
from .reported_words import words


def contradictions(entries: Sequence[schemas.Reported]) -> dict[str, list[schemas.Reported]]:
    """Return, for the uid of each human entry that is contradicted, the machine's entries that do so.

    Two entries are of the same matter where they share a concept and a moment: the same step, or the same day.
    """
    machine = [e for e in entries if e.source.authority == "machine"]
    out: dict[str, list[schemas.Reported]] = {}
    for e in entries:
        if e.source.authority == "person":
            against = [m for m in machine if _same_matter(e, m) and not _agree(e, m)]
            if against:
                out[e.uid] = against
    return out


def otherwise(machine: schemas.Reported) -> str:
    """The sentence that stands beside the human entry."""
    before, after = (v.text() if v else "not stated" for v in (machine.before, machine.after))
    place = f"{machine.source.name}, {machine.source.place}" if machine.source.place else machine.source.name
    return f"{place} says otherwise: {before} -> {after}; the machine's value stands"


def _same_matter(a: schemas.Reported, b: schemas.Reported) -> bool:
    if not {w.concept for w in words(a.concept)} & {w.concept for w in words(b.concept)}:
        return False
    by_step = a.step is not None and a.step == b.step
    by_day = bool(a.date) and len(a.date or "") >= 10 and (a.date or "")[:10] == (b.date or "")[:10]
    return by_step or by_day


def _agree(a: schemas.Reported, b: schemas.Reported) -> bool:
    return all(
        values.equal(x, y)
        for x, y in ((a.before, b.before), (a.after, b.after))
        if values.stated(x) and values.stated(y)
    )
