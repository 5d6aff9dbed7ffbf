"""The life of each incident, from its records: which states it reached, when, by whom; who was told; what is linked.

Records add to one another, whoever wrote them and wherever: a later one that names an earlier state takes nothing back.
Only a record that says that a closed incident is open again begins a new life of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from .._rooms import schemas

ORDER: tuple[schemas.IncidentStatus, ...] = get_args(schemas.IncidentStatus)
WORDS = {
    "open": "opened",
    "contained": "contained",
    "evidence_held": "evidence held",
    "diagnosed": "diagnosed",
    "recovered": "recovered",
    "closed": "closed",
}
"""State -> the word that people read."""


@dataclass(frozen=True)
class Milestone:
    """A state that an incident reached."""

    status: schemas.IncidentStatus
    at: datetime
    by: str | None
    record: str
    text: str | None = None
    override: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """A note, or a word to somebody."""

    at: datetime
    by: str | None
    text: str
    to: str | None = None


@dataclass
class Life:
    """One incident."""

    uid: str
    segment: str
    """of its first record"""
    latest: schemas.Incident
    milestones: dict[schemas.IncidentStatus, Milestone] = field(default_factory=dict)
    notes: list[Said] = field(default_factory=list)
    messages: list[Said] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    """ids, oldest first"""
    causes: list[schemas.Record] = field(default_factory=list)
    recoveries: list[schemas.Record] = field(default_factory=list)
    trajectories: list[schemas.Record] = field(default_factory=list)
    causal: set[str] = field(default_factory=set)
    """records that its own name as what led to them, such as a first bad cell"""

    @property
    def status(self) -> schemas.IncidentStatus:
        """The furthest state that it reached."""
        return max(self.milestones, key=ORDER.index, default="open")

    @property
    def is_open(self) -> bool:
        """Nobody has closed it."""
        return "closed" not in self.milestones

    @property
    def opened(self) -> datetime:
        """When it was opened."""
        return self.milestones["open"].at

    def reached(self, status: schemas.IncidentStatus) -> Milestone | None:
        """When and by whom a state was reached; None where it was not."""
        return self.milestones.get(status)

    def adds(self, reached: schemas.IncidentStatus | None = None, **fields: Any) -> schemas.Incident:
        """The record that adds something to this incident: a state that it reached, words, a person, links."""
        kept = {name: getattr(self.latest, name) for name in _LASTING}
        return schemas.Incident(
            **{**kept, **{k: v for k, v in fields.items() if v is not None}},
            status=max((self.status, reached or "open"), key=ORDER.index),
            reached=reached,
        )


_LASTING = (
    "uid",
    "title",
    "opened_by",
    "owner",
    "concept",
    "first_bad_step",
    "first_bad_rank",
    "last_good_checkpoint",
    "code",
)
"""What each record of an incident repeats; all else is of one record."""


def lives(records: Iterable[schemas.Record]) -> list[Life]:
    """All incidents of a ledger, the one that was opened first first."""
    ordered = sorted(records, key=lambda r: (r.at, r.file, r.seq))
    found: dict[str, Life] = {}
    for r in ordered:
        if r.kind == "incident":
            _add(found, r)
    for r in ordered:
        if r.kind in ("root_cause", "recovery", "trajectory") and r.payload.incident in found:
            _attach(found[r.payload.incident], r)
    return list(found.values())


def _add(found: dict[str, Life], r: schemas.Record) -> None:
    p: schemas.Incident = r.payload
    life = found.get(p.uid)
    if life is None:
        life = found[p.uid] = Life(p.uid, r.segment, p)
        life.milestones["open"] = _milestone("open", r, p)
    elif p.reached == "open" and not life.is_open:
        life.milestones = {"open": _milestone("open", r, p)}
    life.latest = _together(life.latest, p)
    life.records.append(r.id)
    life.causal |= set(r.caused_by)
    new = p.reached if p.reached is not None and p.reached not in life.milestones else p.status
    if new not in life.milestones:
        life.milestones[new] = _milestone(new, r, p)
    if p.note and p.note not in (n.text for n in life.notes):
        life.notes.append(Said(r.at, p.by, p.note))
    for m in p.messages:
        if (m.to, m.text) not in {(s.to, s.text or None) for s in life.messages}:
            life.messages.append(Said(m.at or r.at, p.by, m.text or "", m.to))
    life.links += [link for link in p.links if link not in life.links]


def _together(before: schemas.Incident, now: schemas.Incident) -> schemas.Incident:
    """The newer record, with what only the older one tells."""
    gaps = {
        name: getattr(before, name)
        for name in ("owner", "concept", "first_bad_step", "first_bad_rank", "last_good_checkpoint", "code")
        if getattr(now, name) is None
    }
    return now.model_copy(update=gaps)


def _milestone(status: schemas.IncidentStatus, r: schemas.Record, p: schemas.Incident) -> Milestone:
    return Milestone(status, r.at, p.by, r.id, p.note, p.override, tuple(p.missing))


def _attach(life: Life, r: schemas.Record) -> None:
    """A cause, a decision or a comparison belongs to its incident."""
    if r.kind == "root_cause":
        life.causes.append(r)
        if "diagnosed" not in life.milestones:
            life.milestones["diagnosed"] = Milestone("diagnosed", r.at, r.payload.by, r.id, r.payload.text)
    elif r.kind == "recovery":
        life.recoveries.append(r)
        for m in r.payload.messages:
            life.messages.append(Said(m.at or r.at, r.payload.by, m.text or "", m.to))
    else:
        life.trajectories.append(r)


def of_segment(found: Sequence[Life], segment: str | None) -> list[Life]:
    """The incidents of one segment, or all."""
    return [life for life in found if segment in (None, life.segment)]


def ended(records: Sequence[schemas.Record], segment: str) -> str | None:
    """How a segment ended, in words; None while nothing tells that it did."""
    ends = [r for r in records if r.kind == "segment_end" and r.segment == segment]
    if not ends:
        return None
    first = min(ends, key=lambda r: r.rank).payload
    at = "" if first.last_step is None else f" at step {first.last_step:,}"
    return f"the segment ended{at} ({first.reason.replace('_', ' ')})"
