"""Declared mitigations: in effect only with evidence, from which step to which.

A record of an effect speaks for one stretch of steps in one segment. When the stretch ends, a record that
supersedes the first says where it ended. A resume on which the value still holds begins a stretch of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from uuid6 import uuid7

from .._rooms import schemas
from ..capture import effective, secrets
from ..judge import drift as drift_
from ..judge import graph
from ..judge.values import same
from ..ledger.reader import Ledger
from .contain import log
from .findings import say

if TYPE_CHECKING:
    from .recorder import Recorder
    from .writer import Writer


def text(value: str | None) -> str | None:
    """Free text of a person's, with secrets masked; the record, and so its digest, never holds them."""
    return None if value is None else secrets.mask(str(value))[0]


def scalar(concept: str, value: Any) -> schemas.Scalar | None:
    """A value that a person declared, with secrets masked."""
    if value is None:
        return None
    try:
        found = schemas.Scalar.of(secrets.mask_value(concept, value)[0])
    except Exception as e:  # an object of the user's may do anything when it is read
        return schemas.Scalar(type="repr", value=f"<could not be read: {type(e).__name__}>")
    masked = secrets.mask(found.text())[0] if found.type in ("repr", "list") else found.text()
    return found if masked == found.text() else schemas.Scalar.of(masked)


def concept_of(name: str, consequence: str = "its effect cannot be shown") -> str:
    """The concept of the catalogue that a name or a config key stands for; the name, masked, where there is none."""
    known = schemas.catalogue().concepts
    by_key = schemas.catalogue().find(name)  # "clip", "wd" and config keys too
    if name in known or by_key is not None:
        return name if name in known else by_key.id  # type: ignore[union-attr]
    shown = secrets.mask(name)[0]
    near = difflib.get_close_matches(name, known, 3)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    log.warning("lineage: %r is no concept of the catalogue, so %s%s", shown[:200], consequence, meant)
    return shown


def declare(concept: str, **said: Any) -> schemas.Mitigation:
    """A mitigation as a record: free text and values without secrets."""
    found = concept_of(str(concept))
    before, after = (scalar(found, said.pop(side)) for side in ("before", "after"))
    return schemas.Mitigation(
        uid=str(uuid7()),
        concept=found,
        before=before,
        after=after,
        **{k: text(v) for k, v in said.items()},
    )


def meant(declared: Sequence[drift_.Declared], held: schemas.Effective | None) -> list[drift_.Declared]:
    """Declared mitigations as they are meant: a bare clip threshold in the mode in which clipping is done."""
    clip = held.values.get("grad_clip") if held else None
    if clip is None or not clip.value.text().endswith(" by value"):
        return list(declared)
    number = schemas.Scalar.of(clip.value.text().removesuffix(" by value"))

    def in_mode(m: schemas.Mitigation) -> schemas.Mitigation:
        bare = m.concept == "grad_clip" and m.after is not None and same(m.after, number)
        return m.model_copy(update={"after": clip.value}) if bare else m

    return [replace(d, mitigation=in_mode(d.mitigation)) for d in declared]


@dataclass(frozen=True)
class Stretch:
    """One record that says that a mitigation is in effect, with the mitigation itself."""

    record: schemas.Record
    declared: drift_.Declared

    @property
    def effect(self) -> schemas.MitigationEffect:
        """What the record says."""
        found: schemas.MitigationEffect = self.record.payload
        return found

    def holds(self, held: drift_.Side) -> bool | None:
        """Whether the live value is still the mitigation's; None where no value was ever shown."""
        if self.effect.effective is None or held.effective is None:
            return None
        concept = self.declared.mitigation.concept
        now = held.value(concept)
        if now is None and concept not in held.effective.unseen:
            return None  # an event at one step, such as a reset: no object holds it afterwards
        return now is not None and same(now.value, self.effect.effective)


def open_stretches(ledger: Ledger, segment: str) -> list[Stretch]:
    """What is in effect in a segment, as far as its records say: stretches without an end."""
    declared = {r.payload.uid: drift_.Declared(r.id, r.payload) for r in ledger.of("mitigation")}
    return [
        Stretch(r, declared[r.payload.mitigation])
        for r in _standing(ledger, segment)
        if r.payload.to_step is None and r.payload.mitigation in declared
    ]


def _standing(ledger: Ledger, segment: str) -> Iterator[schemas.Record]:
    """Records of a segment that say "in effect", and that no later record supersedes."""
    found = ledger.of("mitigation_effect", segment)
    gone = {r.supersedes for r in found}
    return (r for r in found if r.id not in gone and r.payload.in_effect == "yes")


def judge(
    w: Writer,
    declared: Sequence[drift_.Declared],
    drift: schemas.Drift | None,
    held: schemas.Effective | None,
    step: int,
    records: Sequence[str] = (),
) -> None:
    """Write for each declared mitigation whether the live values bear it out from `step` on.

    Ends those that were in effect and are no longer. Nothing is written that is on record already: that one is
    still in effect, still is not, or is not any more.
    """
    end(w, drift_.Side(effective=held), step, records)
    ledger = Ledger(w.ledger)
    lasting = {s.effect.mitigation for s in open_stretches(ledger, w.ids.segment)}
    known = {r.payload.mitigation: r.payload for r in ledger.of("mitigation_effect", w.ids.segment)}
    for d in declared:
        if d.mitigation.uid in lasting:
            continue
        changes = drift.changes if drift else []
        in_effect, words, value = drift_.effect(d.mitigation, changes, drift_.Side(effective=held))
        last = known.get(d.mitigation.uid)
        if last is not None and in_effect != "yes" and last.in_effect in ("yes", in_effect):
            continue
        w.write(
            schemas.MitigationEffect(
                mitigation=d.mitigation.uid,
                in_effect=in_effect,
                from_step=step if in_effect == "yes" else None,
                effective=value,
                text=words,
                evidence=list(records),
            ),
            step=step,
            caused_by=[d.record],
        )
        if in_effect == "no":
            _say_not_in_effect(w, d, words, step)


def _say_not_in_effect(w: Writer, d: drift_.Declared, words: str, step: int) -> None:
    """What somebody believes to be in effect is not: it goes to the log and to where people look."""
    m = d.mitigation
    found = schemas.Finding(
        code="LIN-D003",
        check="mitigation-in-effect/1",
        severity="warning",
        subject=m.concept,
        text=f"a declared mitigation is not in effect: {words}",
        values={
            k: v for k, v in (("declared before", m.before), ("declared after", m.after)) if v is not None
        },
        remedy="apply it in the training code, or take the declaration for what it is: no change",
    )
    say(w, found, step, [d.record])


def end(w: Writer, held: drift_.Side, step: int, records: Sequence[str] = ()) -> None:
    """End the stretches whose value is another one from `step` on."""
    for s in open_stretches(Ledger(w.ledger), w.ids.segment):
        if s.holds(held) is False:
            _write_end(w, s, step - 1, f"in effect up to step {step - 1:,}; {_now(s, held)}", records)


def carry_on(w: Writer, parent: schemas.Checkpoint, held: schemas.Effective | None, step: int) -> None:
    """At a resume: what was in effect at the save either goes on, or ended with it."""
    ledger = Ledger(w.ledger)
    g = graph.build(ledger.records)
    declared = {r.payload.uid: drift_.Declared(r.id, r.payload) for r in ledger.of("mitigation")}
    standing: dict[str, Stretch] = {}
    for part in g.path_to(parent.uid):
        upto = parent.step if part.upto is None else part.upto
        for r in _standing(ledger, part.segment):
            began, ended = r.payload.from_step or 0, r.payload.to_step
            standing.pop(r.payload.mitigation, None)
            if began <= upto and (ended is None or ended >= upto) and r.payload.mitigation in declared:
                standing[r.payload.mitigation] = Stretch(r, declared[r.payload.mitigation])
    side = drift_.Side(effective=held)
    for s in standing.values():
        holds = s.holds(side)
        if holds is None:
            continue
        last = None if holds else parent.step
        words = (
            f"still in effect: {s.effect.text}"
            if holds
            else f"in effect up to step {last:,}; {_now(s, side)}"
        )
        w.write(
            s.effect.model_copy(update={"to_step": last, "text": words}),
            step=step,
            caused_by=[s.declared.record, s.record.id],
        )


def close(w: Writer, held: schemas.Effective, step: int) -> None:
    """At the end of a segment: say of all that is still in effect up to which step it was seen to be."""
    ledger, side = Ledger(w.ledger), drift_.Side(effective=held)
    for s in open_stretches(ledger, w.ids.segment):
        if (
            s.holds(side) is False
        ):  # it left without being noticed: the last record that still shows it decides
            last = _last_seen(ledger, s)
            words = f"last seen in effect at step {last:,}; {_now(s, side)}"
        else:
            last, words = step, f"in effect up to the end of the segment at step {step:,}: {s.effect.text}"
        _write_end(w, s, last, words)


def _last_seen(ledger: Ledger, s: Stretch) -> int:
    shown = [
        r.step or 0
        for r in ledger.of("effective", s.record.segment)
        if s.holds(drift_.Side(effective=r.payload)) and (r.step or 0) >= (s.effect.from_step or 0)
    ]
    return max(shown, default=s.effect.from_step or 0)


def _now(s: Stretch, held: drift_.Side) -> str:
    """What holds instead, in words."""
    now = held.value(s.declared.mitigation.concept)
    if now is None:
        return f"no live object shows {s.declared.mitigation.concept} any more"
    return f"{now.read_from} holds {now.value.text()} now"


def _write_end(w: Writer, s: Stretch, last: int, words: str, records: Sequence[str] = ()) -> None:
    ended = s.effect.model_copy(
        update={"to_step": last, "text": words, "evidence": [*s.effect.evidence, *records]}
    )
    w.write(ended, step=w.step, caused_by=[s.declared.record], supersedes=s.record.id)


def settle(rec: Recorder, w: Writer) -> None:
    """At the end of a segment: judge what no boundary has shown to be in effect, and end what is."""
    if rec.world.rank != 0:
        return
    shown = {r.payload.mitigation for r in _standing(Ledger(w.ledger), w.ids.segment)}
    left = [d for d in rec._declared if d.mitigation.uid not in shown]
    if not left and not shown:
        return
    held = effective.capture(rec.watched, rec.seen, "in_run", rec.steps.done)
    close(w, held, rec.steps.done)
    judge(w, meant(left, held), None, held, rec.steps.done)
    close(w, held, rec.steps.done)
