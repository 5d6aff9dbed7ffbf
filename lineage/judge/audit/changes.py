"""Changes and what was said of them: mitigations that are not in effect, claims of persons, a weakened policy."""

from __future__ import annotations

from collections.abc import Iterable

from ..._rooms import schemas
from ..contradictions import contradictions, otherwise
from ..values import same
from .audited import Audited
from .rules import Told, rule


@rule(
    "LIN-U010",
    "mitigation-not-in-effect",
    "fault",
    "look which object holds the value, and what overwrote it (a loaded optimizer or scheduler state); "
    "then attach again",
)
def mitigation_not_in_effect(a: Audited) -> Iterable[Told]:
    """A declared mitigation that live values deny, or that no live value shows."""
    for r in a.of("mitigation"):
        m = r.payload
        effects = [e for e in a.of("mitigation_effect") if e.payload.mitigation == m.uid]
        if any(e.payload.in_effect == "yes" for e in effects):
            continue
        last = effects[-1] if effects else None
        denied = last is not None and last.payload.in_effect == "no"
        text = last.payload.text if last is not None else "nothing is on record of its effect"
        word = "is not in effect" if denied else "is not shown to be in effect"
        yield Told(
            f"the mitigation of {m.concept} ({_arrow(m)}) {word}: {text}",
            (r.id, *((last.id,) if last else ())),
            a.number(r.segment),
            r.step,
            severity=None if denied else "warning",
        )


@rule(
    "LIN-U011",
    "person-against-machine",
    "warning",
    "the machine's value stands; correct the account, and say since when it was wrong",
)
def person_against_machine(a: Audited) -> Iterable[Told]:
    """What a person said, and what machines recorded of the same matter, differ."""
    entries = {r.payload.uid: r for r in a.of("reported")}
    for uid, machines in contradictions([r.payload for r in entries.values()]).items():
        r = entries[uid]
        yield Told(
            f"{r.payload.source.name}{f', {r.payload.source.place}' if r.payload.source.place else ''} says of "
            f"{r.payload.concept}: {_sides(r.payload.before, r.payload.after)}; {otherwise(machines[0])}",
            (r.id, *(entries[m.uid].id for m in machines[:4])),
            a.number(r.segment),
            r.payload.step,
        )
    yield from _incidents(a)
    yield from _mitigations(a)


def _incidents(a: Audited) -> Iterable[Told]:
    """A first bad step that a person named, beside the one that the values show."""
    for life in a.lives:
        said, bad = life.latest.first_bad_step, a.bads.get(life.segment)
        if life.latest.opened_by != "person" or said is None or bad is None or bad.cell is None:
            continue
        if said != bad.cell.step:
            yield Told(
                f"the incident {life.latest.title!r} names step {said:,} as the first bad one; the values show step "
                f"{bad.cell.step:,}: {bad.cell.text}",
                tuple(life.records[:2]),
                a.number(life.segment),
                said,
            )


def _mitigations(a: Audited) -> Iterable[Told]:
    """The old value that a mitigation states, beside the one that was in effect."""
    declared = {r.payload.uid: r for r in a.of("mitigation")}
    for segment in a.graph.segments:
        for d in a.drifts(segment):
            for c in d.payload.changes:
                m = declared.get(c.mitigation or "")
                held = c.effective_before
                if m is None or m.payload.before is None or held is None or same(m.payload.before, held):
                    continue
                yield Told(
                    f"the mitigation of {c.concept} says that the value before was {m.payload.before.text()}; "
                    f"{held.text()} was in effect",
                    (m.id, d.id),
                    a.number(segment),
                    d.payload.from_step,
                )


@rule(
    "LIN-U012",
    "policy-weakened",
    "warning",
    "judge whether the reason holds for this run; `lineage catalogue CONCEPT` shows the cell",
)
def policy_weakened(a: Audited) -> Iterable[Told]:
    """A cell of the validity policy lets pass what the shipped policy does not, or verdicts were made
    under another."""
    verdicts = a.of("verdict")
    used = {r.payload.policy for r in verdicts}
    for w in a.weakened:
        yield Told(
            f"{w.concept} for {w.claim}: {w.status} instead of {w.was}, by {w.who} ({w.source}): {w.why}",
            tuple(r.id for r in verdicts if r.payload.policy == a.policy)[:4],
        )
    for digest in sorted(used - {a.policy, a.shipped} - {None}):
        those = [r for r in verdicts if r.payload.policy == digest]
        yield Told(
            f"{len(those):,} recorded verdicts were made under a policy ({digest[:19]}...) that is neither "
            "the shipped one "
            "nor the one in force here: whether it is weaker is not shown",
            tuple(r.id for r in those[:4]),
            severity="note",
            remedy="audit with the site's file that was in force then: LINEAGE_SITE=... lineage audit",
        )


@rule(
    "LIN-U013",
    "milder-then",
    "warning",
    "use today's verdict: lineage verdict {run}",
)
def milder_then(a: Audited) -> Iterable[Told]:
    """The last verdict that was recorded lets a claim pass that today's says is broken."""
    segments = [s for s in a.graph.segments if a.of("verdict", s)]
    if a.today is None or not segments:
        return
    last = a.of("verdict", segments[-1])[-1]
    if a.today.path and last.segment != a.today.path[-1]:
        return
    then = {c.claim: c.status for c in last.payload.claims}
    passed = [c for c in a.today.claims if c.status == "broken" and then.get(c.claim) in ("holds", "caveat")]
    if passed:
        names = "; ".join(f"{c.claim} was {then[c.claim]} and is broken" for c in passed[:4])
        yield Told(
            f"the recorded verdict is milder than today's: {names}: {passed[0].reason}",
            (last.id,),
            a.number(last.segment),
        )


def _arrow(m: schemas.Mitigation) -> str:
    return _sides(m.before, m.after)


def _sides(before: schemas.Scalar | None, after: schemas.Scalar | None) -> str:
    a, b = (v.text() if v is not None else "not stated" for v in (before, after))
    return f"{a} -> {b}"
