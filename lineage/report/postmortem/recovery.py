"""Sections on how it went on: the decision with its options and costs, and the repaired run against the one before."""

from __future__ import annotations

from collections.abc import Sequence

from ..._rooms import schemas, trackers
from ...judge import trajectory
from ...judge.carried_out import carried_out
from .. import boundaries, page, words
from ..blocks import Block, Bullets, Inline, Para, Section, Span, Style, Sub, Table
from ..course import coded
from .given import Given


def decision(g: Given) -> Section:
    """Every decision, the newest last: from where, with which changes, at what cost, and who was told."""
    section = Section("decision", "Recovery decision")
    if not g.decisions:
        text = "No decision is on record."
        if g.later:
            name = f"Segment{'s' * (len(g.later) > 1)} {words.numbers(g.later)}"
            text += f" {name} went on all the same: who decided it, and why, is not known."
        section.blocks.append(
            Para([text, " To write one down: ", Span(f"lineage recover {g.hour.run}", "code")])
        )
        return section
    for i, r in enumerate(g.decisions, 1):
        if len(g.decisions) > 1:
            newest = ", which stands" if i == len(g.decisions) else ""
            section.blocks.append(Sub(f"Decision {i} of {len(g.decisions)}{newest}"))
        section.blocks.extend(_decision(g, r))
    return section


def _decision(g: Given, r: schemas.Record) -> list[Block]:
    p: schemas.Recovery = r.payload
    told = "; ".join(f"{m.to}{f': {m.text}' if m.text else ''}" for m in p.messages)
    path: list[str | Span] = [", ", Span(p.restart.path, "code")] if p.restart.path else []
    where = f"step {p.restart.step:,} of {words.segment(g.hour.graph, p.restart.segment)}: {p.restart.why}"
    items: list[Inline] = [
        [Span("From: ", "strong"), where, *path],
        [Span("With: ", "strong"), *_with(p)],
        [
            Span("Who: ", "strong"),
            f"owner {p.owner or 'nobody named'}; written down by {p.by or 'nobody named'}, {words.time(r.at)} UTC",
        ],
        [Span("Told with it: ", "strong"), told or Span("nobody on record", "warn")],
    ]
    items += [[Span("Speaks against this start: ", "bad"), f"{d}."] for d in p.restart.doubts]
    if p.override:
        missing = [
            f"{e.what} ({e.text})" for e in p.evidence if e.required and e.state in ("missing", "gone")
        ]
        items.append(
            [
                Span("Decided although evidence was missing: ", "bad"),
                f"{p.override}. Missing then: {'; '.join(missing) or 'not stated'}.",
            ]
        )
    if p.note:
        items.append([Span("Note: ", "strong"), p.note])
    out: list[Block] = [Bullets(items)]
    if p.mitigations:
        out.append(
            Table(
                "Changes that were decided, with what each does to what may be concluded",
                HEAD,
                [_change(m) for m in p.mitigations],
            )
        )
    formula: list[list[Inline]] = [[*_split(line)] for line in p.cost.formula]
    out.append(
        Table(
            "Options: to wait, or to resume from there. Each number with its formula",
            ("What", "Cost"),
            formula,
        )
    )
    out.append(
        Table("What may be concluded after it, as told then", ("Claims", "Verdict", "Why"), _claims(p.claims))
    )
    carried = g.carried
    if carried is not None and r is g.decisions[-1]:
        odd = carried_out(g.hour.records, p, carried.segment)
        number = g.hour.graph.number(carried.segment)
        if odd:
            out.append(Bullets([[Span(f"Segment {number} does otherwise: ", "bad"), f"{o}."] for o in odd]))
        else:
            out.append(Para(f"Segment {number} carries it out, as far as records tell."))
    return out


HEAD = ("What", "Change", "Why", "Effect on claims")


def _with(p: schemas.Recovery) -> list[str | Span]:
    if not p.mitigations:
        return ["nothing changed"]
    told = words.plural(len(p.mitigations), "change")
    if p.confounded:
        return [told, ", ", Span("confounded", "bad"), ": no effect can be traced to one of them"]
    return [told]


def _change(m: schemas.PlannedMitigation) -> list[Inline]:
    why = m.why
    why += f". Hypothesis: {m.hypothesis}" if m.hypothesis else ". No hypothesis is stated"
    why += f". Nothing smaller, because: {m.smallest_justified}" if m.smallest_justified else ""
    effects = "; ".join(f"{_title(e.claim)}: {trackers.text.WORDS[e.status]}" for e in m.effects)
    return [
        schemas.catalogue().concept(m.concept).title,
        boundaries.arrow(m.before, m.after),
        why,
        effects or "none",
    ]


def _title(claim: str) -> str:
    return trackers.text.CLAIM_TITLES.get(claim, claim)


def _split(line: str) -> tuple[str, str]:
    """`made again: 10 steps x ...` in two cells; a line without a colon stands in the second."""
    head, colon, rest = line.partition(": ")
    if colon:
        return head[:1].upper() + head[1:], rest
    return "Also", line


def _claims(claims: Sequence[schemas.ClaimEffect]) -> list[list[Inline]]:
    groups: dict[tuple[schemas.Status, str], list[str]] = {}
    for c in claims:
        groups.setdefault((c.status, c.reason), []).append(_title(c.claim))
    return [["; ".join(names), page.status(status), reason] for (status, reason), names in groups.items()]


POSITION: dict[str, tuple[str, Style]] = {
    "inside": ("as before", "good"),
    "above": ("ABOVE", "bad"),
    "below": ("BELOW", "bad"),
    "non_finite": ("NOT FINITE", "bad"),
    "not_reached": ("not reached", "quiet"),
    "not_shown": ("not shown", "warn"),
}


def compared(g: Given) -> Section:
    """The repaired run against the one before the incident, as it was recorded."""
    section = Section("compared", "The repaired run against the one before")
    if not g.life.trajectories:
        if g.later:
            text = "Not looked at: no comparison is on record, so whether it goes as before is not known. "
            section.blocks.append(
                Para([text, Span(f"lineage recover compare {g.hour.run} --record", "code")])
            )
        return section
    p: schemas.Trajectory = g.life.trajectories[-1].payload
    said = trajectory.summary(p.horizons)
    section.blocks.append(Para(Span(f"{said[:1].upper()}{said[1:]}.", "strong")))
    rows: list[list[Inline]] = []
    for h in p.horizons:
        word, style = POSITION.get(h.position, (h.position, "warn"))
        band = "none" if h.low is None or h.high is None else f"{h.low:.4g} to {h.high:.4g}"
        value = "-" if h.value is None else words.number(h.value)
        rows.append(
            [
                f"{h.signal}, {words.plural(h.steps, 'step')} after",
                Span(word, style),
                value,
                band,
                f"{h.moves:,}",
            ]
        )
    caption = f"From step {p.from_step:,}, up to step {p.reached:,}; bands of the run's own history"
    section.blocks.append(
        Table(caption, ("When", "Where it is", "Value", "Band", "Moves that the band is of"), rows)
    )
    notes: list[Inline] = [
        f"Made twice: step {words.interval(s.first, s.last)}. {s.text}." for s in p.same_steps
    ]
    notes += [[Span("Not shown by it: ", "warn"), *coded(f"{t}.")] for t in p.limits]
    section.blocks.append(Bullets(notes))
    return section
