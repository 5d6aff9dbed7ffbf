"""Which declared mitigations cover a phase: from which step to which, and whether anything shows them in effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .phase_cells import said
from .phase_spans import Span


@dataclass(frozen=True)
class Mitigated:
    """A declared mitigation, from which step to which, and whether anything shows it in effect."""

    concept: str
    title: str
    value: str
    first: int | None
    last: int | None
    """None while it lasts"""
    since: str | None
    """where `first` is only the earliest step, what is known instead"""
    until: str | None
    """where it ended at a step that is not known, what is known of that change instead"""
    in_effect: Literal["yes", "no", "not_shown"]
    who: str | None


class Mitigations:
    """Reads the mitigations of a run from its records."""

    def __init__(self, records: Sequence[schemas.Record]) -> None:
        self._declared: list[schemas.Record] = []
        self._effects: dict[str, list[schemas.Record]] = {}
        self._drifts: dict[str, list[schemas.Record]] = {}
        for r in sorted(records, key=lambda r: (r.at, r.seq)):
            if r.kind == "mitigation":
                self._declared.append(r)
            elif r.kind == "mitigation_effect":
                self._effects.setdefault(r.payload.mitigation, []).append(r)
            elif r.kind == "drift":
                self._drifts.setdefault(r.segment, []).append(r)

    def of(self, span: Span) -> tuple[Mitigated, ...]:
        """Declared mitigations that cover some step of a span, newest first.

        One that is shown to be in effect lasts as far as the evidence goes. One that is not, until its concept
        is changed again on the same path.
        """
        order = {s.segment: i for i, s in enumerate(span.path)}
        bounds = {s.segment: s.upto for s in span.path}
        last = order[span.pieces[-1].segment]
        changes = self._changes(span, order, bounds)
        out = []
        for record in self._declared:
            at = order.get(record.segment)
            if at is None or at > last:
                continue
            upto = bounds[record.segment]
            if upto is not None and (record.step or 0) > upto + 1:
                continue  # on the part of the segment that was left
            found = self._on(record.payload.uid, order)
            shown = _shown(found, order)
            if shown:
                out += [
                    _mitigated(record.payload, e)
                    for begin, end, e in shown
                    if _covers(span, order, begin, end)
                ]
                continue
            newest = found[-1].payload if found else None
            own = next((c for c in changes if c.mitigation == record.payload.uid), None)
            begin = at, _from(record, newest, own)
            if upto is not None and begin[1] > upto:
                continue
            place = (*begin, own.number if own else -1)
            again = [
                c
                for c in changes
                if c.concept == record.payload.concept
                and c.mitigation != record.payload.uid
                and (c.at, c.step, c.number) > place
            ]
            end, until = _end(min(again, key=lambda c: c.number) if again else None, last)
            if _covers(span, order, begin, end):
                told = newest or schemas.MitigationEffect(
                    mitigation=record.payload.uid, in_effect="not_shown", text=""
                )
                told = told.model_copy(update={"from_step": begin[1] or None, "to_step": end[1]})
                out.append(_mitigated(record.payload, told, own.loose if own else None, until))
        return tuple(reversed(out))

    def _changes(
        self, span: Span, order: Mapping[str, int], bounds: Mapping[str, int | None]
    ) -> list[_Change]:
        """The changes on a path, in its order."""
        out: list[_Change] = []
        for s in span.path:
            upto = bounds[s.segment]
            found = [
                r for r in self._drifts.get(s.segment, ()) if upto is None or r.payload.from_step <= upto
            ]
            for r in sorted(found, key=lambda r: r.payload.from_step):
                for c in r.payload.changes:
                    step, loose = r.payload.from_step, r.payload.lower_bound
                    out.append(_Change(order[s.segment], step, len(out), c.concept, c.mitigation, loose))
        return out

    def _on(self, mitigation: str, order: Mapping[str, int]) -> list[schemas.Record]:
        """What is known of its effect on a path, in the order of the path; corrected records count no more.

        Each record speaks for one stretch of steps in one segment.
        """
        found = self._effects.get(mitigation, [])
        gone = {r.supersedes for r in found}
        return sorted(
            (r for r in found if r.segment in order and r.id not in gone), key=lambda r: order[r.segment]
        )


@dataclass(frozen=True)
class _Change:
    """One change on a path."""

    at: int
    """place of its segment on the path"""
    step: int
    number: int
    """in the order of the path"""
    concept: str
    mitigation: str | None
    """the mitigation that it answers to"""
    loose: str | None
    """what is known instead of its step"""


Place = tuple[int, int | None]
"""Where on a path: the place of the segment, and the step; a step of None is its end."""


def _shown(
    found: Sequence[schemas.Record], order: Mapping[str, int]
) -> list[tuple[Place, Place, schemas.MitigationEffect]]:
    """The stretches over which a mitigation is shown to be in effect; one that a resume carried on is one."""
    out: dict[int, tuple[Place, Place, schemas.MitigationEffect]] = {}
    for r in found:
        e: schemas.MitigationEffect = r.payload
        if e.in_effect != "yes":
            continue
        key = e.from_step or 0
        begin = out[key][0] if key in out else (order[r.segment], key)
        out[key] = (begin, (order[r.segment], e.to_step), e)
    return list(out.values())


def _mitigated(
    m: schemas.Mitigation,
    effect: schemas.MitigationEffect,
    since: str | None = None,
    until: str | None = None,
) -> Mitigated:
    concept = schemas.catalogue().concept(m.concept)
    value = effect.effective if effect.effective is not None else m.after
    text = said(value) if value is not None else ""
    if effect.in_effect == "no" and m.after is not None and effect.effective is not None:
        text = f"{said(m.after)}, held {said(effect.effective)}"
    return Mitigated(
        concept=m.concept,
        title=concept.title if concept.id != "unclassified" else m.concept,
        value=text,
        first=effect.from_step,
        last=effect.to_step,
        since=since,
        until=until,
        in_effect=effect.in_effect,
        who=m.who,
    )


def _from(record: schemas.Record, effect: schemas.MitigationEffect | None, own: _Change | None) -> int:
    """From which step one that is not shown would count: the change that answers to it, else where it was declared."""
    if effect is not None and effect.from_step is not None:
        return effect.from_step
    return own.step if own is not None else (record.step or 0)


def _end(again: _Change | None, last: int) -> tuple[Place, str | None]:
    """Where one ends that is changed again; with what is known of that change where its step is not."""
    if again is None:
        return (last, None), None
    if again.loose is not None:
        return (again.at, again.step), again.loose
    return (again.at, again.step - 1), None


def _covers(span: Span, order: Mapping[str, int], begin: Place, end: Place) -> bool:
    """Whether what lasts from one place to another covers a step of a span."""
    first, last = span.pieces[0], span.pieces[-1]
    if begin[0] > order[last.segment]:
        return False
    same_segment = begin[0] == order[last.segment]
    if same_segment and last.last is not None and (begin[1] or 0) > last.last:
        return False
    if end[0] != order[first.segment]:
        return end[0] > order[first.segment]
    return end[1] is None or end[1] >= first.first
