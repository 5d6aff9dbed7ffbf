"""Sections on what changed: drift, restores, mitigations, regimes."""

from __future__ import annotations

from .._rooms import schemas
from ..judge.drift import requested_only
from . import words
from .blocks import Block, Inline, Para, Section, Span, Style, Table
from .facts import DriftFact, Facts, MitigationFact

CLASSES = {
    "R": "new regime",
    "C": "conditional",
    "B": "bitwise only",
    "O": "operational",
    "H": "evidence",
    "unclassified": "not classified",
}


MOMENT = {"resume": "at the resume", "in_run": "while it ran", "reported": "as a source reports it"}


def sections(facts: Facts) -> list[Section]:
    """What changed at each restart and within segments, and what was meant by it."""
    return [_drifts(facts), _restores(facts), _mitigations(facts), _regimes(facts)]


def _drifts(facts: Facts) -> Section:
    section = Section("changes", "What changed")
    for found in facts.drifts:
        section.blocks.extend(of_drift(found))
    compared = {d.segment for d in facts.drifts}
    for s in facts.segments:
        if s.start != "fresh" and s.number not in compared:
            section.blocks.append(
                Para(
                    f"Segment {s.number}: not compared with its parent checkpoint; what changed is not shown."
                )
            )
    if not section.blocks and facts.segments:
        section.blocks.append(Para("One uninterrupted segment; no change within it is on record."))
    return section


def of_drift(found: DriftFact) -> list[Block]:
    """What changed at one boundary, requested beside effective."""
    drift = found.drift
    begins = words.from_step(drift.from_step, drift.lower_bound)
    where = f"Segment {found.segment}, {MOMENT.get(drift.moment, drift.moment)}, {begins}"
    changes = [*drift.changes, *drift.unclassified]
    if not changes:
        return [Para([Span(f"{where}: ", "strong"), "nothing differs from the parent checkpoint."])]
    undeclared = sum(c.mitigation is None and not requested_only(c) for c in changes)
    line: list[str | Span] = [
        Span(f"{where}: ", "strong"),
        f"{words.plural(len(changes), 'change')}, {undeclared} undeclared.",
    ]
    if drift.confounded:
        line += [" ", Span("Confounded", "bad"), ": several of them alter results and came at once."]
    rows = [_change(c) for c in changes]
    head = ("What", "Requested", "In effect", "Kind", "Declared", "In words")
    out: list[Block] = [Table(line, head, rows)]
    if drift.not_shown:
        gaps: list[list[Inline]] = [[_title(k), v] for k, v in drift.not_shown.items()]
        out.append(Table(f"{where}: not shown", ("What", "Why not"), gaps))
    return out


def _change(c: schemas.Change) -> list[Inline]:
    name = c.title + (f" ({', '.join(c.keys[:4])})" if c.keys and c.keys != [c.title] else "")
    effective = arrow(c.effective_before, c.effective_after)
    if c.read_from:
        effective += f" (read from: {c.read_from})"
    declared: Inline = "declared" if c.mitigation else Span("undeclared", "warn")
    if requested_only(c):
        declared = Span("asked for, NOT in effect", "warn")
    return [
        name,
        arrow(c.requested_before, c.requested_after),
        effective,
        CLASSES.get(c.cls, c.cls),
        declared,
        words.shorten(c.text),
    ]


def arrow(before: schemas.Scalar | None, after: schemas.Scalar | None) -> str:
    """Both sides of a value; a digest by its beginning; nothing where neither side is known."""
    if before is None and after is None:
        return "not shown"
    return f"{_value(before)} -> {_value(after)}"


def _value(scalar: schemas.Scalar | None) -> str:
    text = words.value(scalar, 120) if scalar is not None else "none"
    return words.digest(text) if text.startswith("sha256:") else text


def _title(concept_id: str) -> str:
    known = concept_id in schemas.catalogue().concepts
    return schemas.catalogue().concept(concept_id).title if known else concept_id


RESTORED: dict[str, tuple[str, Style]] = {
    "restored": ("restored", "good"),
    "differs": ("DIFFERS", "bad"),
    "absent": ("NOT RESTORED", "bad"),
    "not_recorded": ("not shown", "warn"),
}


def _restores(facts: Facts) -> Section:
    section = Section("restored", "What was restored")
    for number in sorted({r.segment for r in facts.restores}):
        mine = [r for r in facts.restores if r.segment == number]
        order = {s: i for i, s in enumerate(("absent", "differs", "not_recorded", "restored"))}
        mine.sort(key=lambda r: (order.get(r.component.status, 2), r.component.component, r.ranks))
        rows: list[list[Inline]] = []
        for r in mine:
            word, style = RESTORED.get(r.component.status, (r.component.status, "warn"))  # of a newer version
            digests = f"{words.digest(r.component.saved)} / {words.digest(r.component.live)}"
            rows.append(
                [
                    _title(r.component.component),
                    Span(word, style),
                    words.numbers(r.ranks) if r.ranks else "together",
                    r.component.text,
                    Span(digests, "code"),
                ]
            )
        section.blocks.append(
            Table(
                f"Segment {number}, before its first step, against the save at {mine[0].checkpoint}",
                ("Component", "Status", "Ranks", "In words", "Digest saved / live"),
                rows,
            )
        )
    return section


IN_EFFECT: dict[str, tuple[str, Style]] = {
    "yes": ("in effect", "good"),
    "no": ("NOT in effect", "bad"),
    "not_shown": ("not shown", "warn"),
}


MITIGATION_HEAD = ("What", "Asked for", "Who and why", "In effect?", "Evidence")


def _mitigations(facts: Facts) -> Section:
    section = Section("mitigations", "Declared mitigations")
    rows = [mitigation_row(m) for m in facts.mitigations]
    if rows:
        caption = "Mitigations, and what shows that they are in effect"
        section.blocks.append(Table(caption, MITIGATION_HEAD, rows))
    elif any(d.drift.undeclared for d in facts.drifts):
        section.blocks.append(
            Para(
                [
                    "None was declared. A change is declared with ",
                    Span("rec.mitigate(concept=..., before=..., after=..., why=...)", "code"),
                    ".",
                ]
            )
        )
    return section


def mitigation_row(m: MitigationFact) -> list[Inline]:
    """One declared mitigation, and what shows that it is in effect."""
    asked = m.mitigation
    why = f"{asked.who or 'nobody named'}: {words.shorten(asked.why)}"
    if asked.hypothesis:
        why += f" Hypothesis: {words.shorten(asked.hypothesis)}."
    if asked.smallest_justified:
        why += f" Nothing smaller, because: {words.shorten(asked.smallest_justified)}."
    place = f"segment {m.segment}" + (f", step {m.step:,}" if m.step is not None else "")
    name = f"{_title(asked.concept)} ({place})"
    if not m.effects:
        return [
            name,
            arrow(asked.before, asked.after),
            why,
            Span("not shown", "warn"),
            "no effect was looked for yet",
        ]
    newest = m.effects[-1]
    word, style = IN_EFFECT.get(newest.in_effect, (newest.in_effect, "warn"))
    since = "" if newest.from_step is None else f" from step {newest.from_step:,}"
    since += "" if newest.to_step is None else f" to step {newest.to_step:,}"
    return [name, arrow(asked.before, asked.after), why, Span(word + since, style), newest.text]


def _regimes(facts: Facts) -> Section:
    section = Section("regimes", "Regimes")
    rows: list[list[Inline]] = [
        [
            f"{r.index}",
            f"{number}",
            f"{r.from_step:,}" + (f" or later ({r.lower_bound})" if r.lower_bound else ""),
            words.shorten("; ".join(r.because), 600) or "the run's first conditions",
            Span(words.digest(r.id), "code"),
        ]
        for number, r in facts.regimes
    ]
    if rows:
        head = ("Regime", "Segment", "From step", "Opened by", "Id")
        section.blocks.append(Table("Conditions under which results mean the same, by branch", head, rows))
    return section
