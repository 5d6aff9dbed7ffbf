"""Where an event belongs: which segment, which ranks, between which steps, and how sure that is.

Nodes and devices survive restarts, ranks do not: so an event is placed by its device, its process or its node through
the places of the segments' ranks, and a rank that a source names counts only within the segment of that time. That an
event is placed beside a step says when it was, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .._rooms import schemas
from .events_clock import doubts, duration_words, outside
from .events_run import Life, Placed, RankPlace, Run, pci, uuid

OPEN_END = timedelta(hours=1)
"""How long after its last record a segment without an end on record is still taken to have run: a hang is cut off by a
timeout, of 10 to 30 minutes by default, and writes nothing until then."""


NO_DEVICE = ("cpu", "")
"""What a rank's place says where it trained without a GPU: no index of one is its own."""


def ranks_of(event: schemas.Event, run: Run) -> tuple[list[RankPlace], str, list[str]]:
    """The ranks of any segment that an event concerns, what tells so, and what is not sure about it."""
    notes: list[str] = []
    known = event.device_uuid and uuid(event.device_uuid)
    if not known and len(event.nodes) == 1:
        names = (pci(event.device_pci), None if event.device_index is None else f"index {event.device_index}")
        known = next(
            (run.devices[event.nodes[0], n] for n in names if n and (event.nodes[0], n) in run.devices), None
        )
    if known:
        found = run.by_device.get(known, [])
        if found:
            return found, "device", notes
        if run.by_device:
            notes.append("no rank of this run is known to have used this device")
    here = [p for node in event.nodes for p in run.by_node.get(node, ())]
    if event.pid is not None and here:
        found = [p for p in here if p.place.pid == event.pid]
        if found:
            return found, "process", notes
    if event.device_index is not None and not known and here:
        found = [
            p for p in here if p.place.local_rank == event.device_index and p.place.device not in NO_DEVICE
        ]
        if found:
            notes.append(
                f"the rank is the one with local rank {event.device_index}: that this is device {event.device_index} "
                "is not shown"
            )
            return found, "local rank", notes
    if here:
        return here, "node", notes
    if event.rank is not None and not event.nodes:
        return run.by_rank.get(event.rank, []), "rank", notes
    return [], "", notes


def place(event: schemas.Event, record: str, run: Run) -> Placed:
    """Place one event."""
    found, by, notes = ranks_of(event, run)
    if event.nodes and not found:
        return _at_time(event, record, run, _no_node(event), notes)
    if event.rank is not None and not found and not event.nodes:
        return _at_time(event, record, run, f"no segment of this run has a rank {event.rank}", notes)
    if event.when is None:
        return _timeless(event, record, run, found, by, notes)
    lives = [life for life in run.lives if not found or life.segment in {p.segment for p in found}]
    alive = _alive(event, lives)
    if alive is None:
        where = outside(event.when, run.lives)
        other = _alive(event, run.lives)
        if other is not None and found:
            where = (
                f"segment {other.number} ran at that time, and not with this {_by_word(by)}"
                if by != "rank"
                else f"segment {other.number} ran at that time, and has no rank {event.rank}"
            )
        return Placed(
            event,
            record,
            by=by,
            why=where + (_ranks_text(found, run) if by != "rank" else ""),
            notes=(*notes, *doubts(event)),
        )
    ranks = sorted({p.rank for p in found if p.segment == alive.segment})
    after, before = _steps(event, alive.segment, ranks, run)
    if event.when > alive.last:
        away = duration_words(event.when - alive.last)
        notes.append(f"{away} after the last record of the segment, of whose end nothing is on record")
    return Placed(
        event,
        record,
        segment=alive.segment,
        number=alive.number,
        ranks=tuple(ranks),
        by=by or "time",
        after=after,
        before=before,
        notes=(*notes, *doubts(event)),
    )


def _timeless(
    event: schemas.Event, record: str, run: Run, found: Sequence[RankPlace], by: str, notes: Sequence[str]
) -> Placed:
    """An event without a time: its segment is known only where one alone fits."""
    segments = {p.segment for p in found} if found else {life.segment for life in run.lives}
    life = next((x for x in run.lives if {x.segment} == segments), None)
    lacks = (
        "it has no time"
        if event.written is None
        else f"its time, written {event.written[:40]!r}, is not known"
    )
    if life is None:
        why = f"{lacks}, and more than one segment fits" + _ranks_text(found, run)
        return Placed(event, record, by=by, why=why, notes=tuple(notes))
    ranks = sorted({p.rank for p in found if p.segment == life.segment})
    doubt = f"{lacks}: that it was during this segment is taken from the run having no other that fits"
    return Placed(
        event,
        record,
        segment=life.segment,
        number=life.number,
        ranks=tuple(ranks),
        by=by or "time",
        notes=(*notes, doubt),
    )


def _at_time(event: schemas.Event, record: str, run: Run, why: str, notes: Sequence[str]) -> Placed:
    """An event of a node, or a rank, that is in no segment: what ran at that time is said, and it stays unplaced."""
    if event.when is not None:
        alive = _alive(event, run.lives)
        why += (
            f"; segment {alive.number} ran at that time" if alive else f"; {outside(event.when, run.lives)}"
        )
    return Placed(event, record, why=why, notes=(*notes, *doubts(event)))


def _no_node(event: schemas.Event) -> str:
    shown = ", ".join(event.nodes[:3]) + (f" and {len(event.nodes) - 3} more" if len(event.nodes) > 3 else "")
    return f"no segment of this run has a rank on {shown}"


def _by_word(by: str) -> str:
    return {"local rank": "device", "": "node"}.get(by, by)


def _ranks_text(found: Sequence[RankPlace], run: Run) -> str:
    told = sorted({(run.numbers[p.segment], p.rank) for p in found if p.segment in run.numbers})
    if not told:
        return ""
    words = ", ".join(f"rank {rank} of segment {number}" for number, rank in told[:4])
    return f" (it belongs to {words}{' and more' if len(told) > 4 else ''})"


def _slack(event: schemas.Event) -> timedelta:
    return timedelta(seconds=event.precision or 0.0)


def _alive(event: schemas.Event, lives: Sequence[Life]) -> Life | None:
    """The segment that ran when the event happened; of two, the one that began later."""
    assert event.when is not None
    low, high = event.when - _slack(event), max(event.until or event.when, event.when) + _slack(event)
    fitting = [life for life in lives if life.first <= high and low <= life.last]
    if not fitting:
        later = [life for life in lives if life.open and life.last < low <= life.last + OPEN_END]
        fitting = [x for x in later if not any(x.last < y.first <= low for y in lives)]
    return max(fitting, key=lambda life: life.first) if fitting else None


def _steps(
    event: schemas.Event, segment: str, ranks: Sequence[int], run: Run
) -> tuple[int | None, int | None]:
    assert event.when is not None
    for rank in ranks or sorted(r for s, r in run.steps if s == segment):
        steps = run.steps.get((segment, rank))
        if steps is not None and steps.at:
            slack = _slack(event)
            return steps.around(event.when - slack, max(event.until or event.when, event.when) + slack)
    return None, None
