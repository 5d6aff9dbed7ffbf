"""Which checkpoints must not be deleted, and why: the last good and the first bad one of what is not settled yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from .._rooms import schemas
from . import graph as graph_
from .firstbad import SHOWS_AFTER
from .graph import Graph, Node

KINDS = (
    "segment",
    "segment_end",
    "checkpoint",
    "checkpoint_mark",
    "alarm",
    "first_bad",
    "incident",
    "preserved",
)
"""The kinds of records that decide it; all others may be left out."""
_NO_CELL = ("slow_rise", "new_level")
"""Alarms that begin no bad cell: a healthy norm may rise too."""
_BY_HAND = ("held", "preserved", "released")


def everywhere(path: str) -> bool:
    """Every checkpoint is where its record says."""
    return True


@dataclass
class Protected:
    """What must be kept."""

    graph: Graph
    why: dict[str, str] = field(default_factory=dict)
    """checkpoint -> the reason, in words"""
    pending: dict[int, str] = field(default_factory=dict)
    """step of a save that is not on record as a whole yet -> why it would have to be kept"""
    there: Callable[[str], bool] = everywhere

    def gone(self, node: Node) -> bool:
        """Whether a checkpoint is known not to be there any more."""
        return node.deleted or (node.checkpoint.path is not None and not self.there(node.checkpoint.path))

    def keep(self, node: Node | None, why: str) -> None:
        """Keep a checkpoint; the first reason that is found stands."""
        if node is None:
            return
        if node.checkpoint.status == "pending":
            self.pending.setdefault(node.checkpoint.step, why)
        else:
            self.why.setdefault(node.uid, why)


def nothing_stored(location: str) -> bool:
    """No evidence is held anywhere."""
    return False


def protected(
    records: Iterable[schemas.Record],
    stored: Callable[[str], bool] = nothing_stored,
    there: Callable[[str], bool] = everywhere,
) -> Protected:
    """Say which checkpoints of a ledger must not be deleted.

    Those are: the last good and the first bad one of each incident that is not closed, and the newest one between
    the two; where an alarm is on record and the first bad cell is not named yet, the newest complete one before it,
    the newest one whose state cannot be in doubt, and the first one after it; and what a person holds or preserved.

    Args:
        records: those of `KINDS`, in any order.
        stored: whether a copy is held at the location of a `preserved` record; what is copied need not be held too.
        there: whether a checkpoint is still at its path. In the place of one that is not, the next older one counts.
    """
    ordered = sorted(records, key=lambda r: (r.at, r.file, r.seq))
    found = Protected(graph_.build(ordered), there=there)
    incidents = _open(ordered)
    for held in incidents.values():
        _of_incident(found, ordered, held)
    _of_alarms(found, ordered, incidents)
    _by_hand(found, ordered, stored, incidents=bool(incidents))
    return found


def _open(ordered: Sequence[schemas.Record]) -> dict[str, list[schemas.Record]]:
    """Incidents that are not closed: uid -> their records, oldest first."""
    every: dict[str, list[schemas.Record]] = {}
    for r in ordered:
        if r.kind == "incident":
            every.setdefault(r.payload.uid, []).append(r)
    return {uid: rs for uid, rs in every.items() if rs[-1].payload.status != "closed"}


def _of_incident(found: Protected, ordered: Sequence[schemas.Record], held: Sequence[schemas.Record]) -> None:
    graph, latest = found.graph, held[-1].payload
    name = f'the open incident "{latest.title}"'
    causes = {cause for r in held for cause in r.caused_by}
    named = [r.payload for r in ordered if r.kind == "first_bad" and r.id in causes]
    good = [latest.last_good_checkpoint, *(f.last_good_checkpoint for f in named)]
    for uid in filter(None, good):
        found.keep(graph.nodes.get(uid), f"it is the last good checkpoint of {name}")
    for f in named:
        if f.first_bad_checkpoint:
            found.keep(graph.nodes.get(f.first_bad_checkpoint), f"it is the first bad checkpoint of {name}")
    segment, step = held[0].segment, latest.first_bad_step
    if step is not None:
        _around(found, segment, step, f"before the first bad step of {name}", f"after it ({name})")
        return
    if not any(good):
        told = "the newest complete checkpoint when this incident was opened, which names no step:"
        for node in _before(found, segment, None, _saved_by(ordered, held[0].at)):
            found.keep(node, f'{told} "{latest.title}"')


def _of_alarms(
    found: Protected, ordered: Sequence[schemas.Record], incidents: dict[str, list[schemas.Record]]
) -> None:
    """Alarms whose first bad cell is not named yet."""
    named: dict[str, datetime] = {}
    for r in ordered:
        if r.kind == "first_bad" and r.payload.cell is not None:
            named[r.payload.cell.segment] = r.at
    covered = {
        rs[0].segment: rs[-1].payload.first_bad_step
        for rs in incidents.values()
        if rs[-1].payload.first_bad_step is not None
    }
    onset: dict[str, schemas.Record] = {}
    for r in ordered:
        if r.kind != "alarm" or r.payload.phase != "onset" or r.payload.abnormal in _NO_CELL:
            continue
        if r.segment in named and r.at <= named[r.segment]:
            continue
        if r.segment in covered and covered[r.segment] <= (r.step or 0):
            continue
        if r.segment not in onset or (r.step or 0) < (onset[r.segment].step or 0):
            onset[r.segment] = r
    released = {r.payload.checkpoint: r.at for r in ordered if _is_mark(r, ("released",))}
    for segment, r in onset.items():
        step = r.step or 0
        text = f"the alarm at step {step:,} (rank {r.rank}: {r.payload.text}), whose first bad cell is not named yet"
        fresh = Protected(found.graph, there=found.there)
        _around(fresh, segment, step, f"before {text}", f"after {text}")
        for node in _before(found, segment, step - SHOWS_AFTER):
            fresh.keep(node, f"its state is not in doubt, as that of a later one may be, before {text}")
        for uid, why in fresh.why.items():
            if uid not in released or released[uid] < r.at:
                found.why.setdefault(uid, why)
        for pending, why in fresh.pending.items():
            found.pending.setdefault(pending, why)


def _around(found: Protected, segment: str, step: int, before: str, after: str) -> None:
    """Keep the newest complete checkpoint before a step on its branch, and the first one from that step on."""
    for node in _before(found, segment, step - 1):
        found.keep(node, f"it is the newest complete checkpoint {before}")
    later = [
        n
        for n in found.graph.nodes.values()
        if n.segment == segment and n.checkpoint.step >= step and n.checkpoint.status != "incomplete"
    ]
    if later:
        found.keep(
            min(later, key=lambda n: n.checkpoint.step), f"it is the first checkpoint saved at or {after}"
        )


def _before(found: Protected, segment: str, step: int | None, known: set[str] | None = None) -> list[Node]:
    """The newest complete checkpoint at or before a step on a segment's branch, and a newer one still pending.

    `known`: the records that count; all by default.
    """
    graph = found.graph
    upto = max((n.checkpoint.step for n in graph.nodes.values()), default=0) if step is None else step
    complete = [
        n
        for n in graph.before(segment, upto)
        if not n.bad and not found.gone(n) and (known is None or n.record in known)
    ]
    newest = complete[0].checkpoint.step if complete else -1
    pending = [
        n
        for n in graph.nodes.values()
        if n.segment == segment
        and n.checkpoint.status == "pending"
        and newest < n.checkpoint.step <= upto
        and segment == next(reversed(graph.segments), None)  # what is pending in an older one stays so
    ]
    return [*complete[:1], *pending]


def _saved_by(ordered: Sequence[schemas.Record], at: datetime) -> set[str]:
    return {r.id for r in ordered if r.kind == "checkpoint" and r.at <= at}


def _is_mark(r: schemas.Record, marks: Sequence[str]) -> bool:
    return r.kind == "checkpoint_mark" and r.payload.mark in marks


def _by_hand(
    found: Protected, ordered: Sequence[schemas.Record], stored: Callable[[str], bool], *, incidents: bool
) -> None:
    """What a person held or preserved and did not release, and marks that no incident of this ledger explains."""
    kept = {r.id: r.payload for r in ordered if r.kind == "preserved"}
    last: dict[str, schemas.Record] = {}
    for r in ordered:
        if _is_mark(r, _BY_HAND):
            last[r.payload.checkpoint] = r
        elif incidents and _is_mark(r, ("last_good", "first_bad")) and not r.payload.evidence:
            place = r.payload.mark.replace("_", " ")
            found.keep(
                found.graph.nodes.get(r.payload.checkpoint),
                f"it is marked as {place} while an incident is open",
            )
    for uid, r in last.items():
        if r.payload.mark == "released":
            continue
        copies = [kept[e] for e in r.payload.evidence if e in kept and kept[e].method != "moved"]
        if r.payload.mark == "preserved" and any(stored(p.location) for p in copies):
            continue
        found.keep(found.graph.nodes.get(uid), f"it is {r.payload.mark} by hand: {r.payload.why}")
