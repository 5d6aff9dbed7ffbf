"""What replays say of the families, as `lineage replay` recorded it with each of them.

A replay that flips with one condition changed is the strongest evidence there is. One that is clean under several
differences at once (one device, another torch) raises and lowers, and parts nothing by itself: a clean replay on one
device never acquits the batch.
"""

from __future__ import annotations

from dataclasses import replace

from ..._rooms import schemas
from .known import Known
from .rules import Evidence, Line


def lines(known: Known) -> list[Line]:
    """One line for each effect of the replays. Confounded and inconclusive ones say nothing of any family.

    Replays that say the same, as those of several ranks do, are one line with the records of all.
    """
    out: dict[Line, list[str]] = {}
    for record, r in known.replays:
        if r.confounded or r.result == "inconclusive":
            continue
        evidence: Evidence = "flip" if _flips(r) else "replay"
        for e in r.effects:
            aspect = f" ({e.aspect.replace('_', ' ')})" if e.aspect else ""
            line = Line(
                rule=f"replay/{e.rule}",
                family=e.family,
                side="for" if e.direction == "raises" else "against",
                evidence=evidence,
                text=f"replay{_what(r)}, {r.result.replace('_', ' ')}{aspect}: {e.text}",
                records=(),
                source=e.source,
            )
            out.setdefault(line, []).append(record)
    return [replace(line, records=tuple(records)) for line, records in out.items()]


def _flips(r: schemas.Replay) -> bool:
    """Whether the symptom shows in one of two replays that differ in one condition, which is shown to be in effect."""
    return r.flips is True and len(r.changes) == 1 and r.changes[0].in_effect == "yes"


def _what(r: schemas.Replay) -> str:
    if not r.changes:
        return " with nothing changed" if not r.given else f" with {', '.join(r.given[:3])}"
    names = ", ".join(f"{c.name}:{c.argument}" if c.argument else c.name for c in r.changes)
    return f" with {names}"
