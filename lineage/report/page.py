"""What stands on the page, in which order: the answer first, then why, then everything else."""

from __future__ import annotations

from .._rooms import schemas, trackers
from . import boundaries, course, events, words
from .answer import Tip
from .blocks import Block, Bullets, Inline, Para, Section, Span, Style, Table
from .facts import Facts

STYLE: dict[str, Style] = {"holds": "good", "caveat": "warn", "not_shown": "quiet", "broken": "bad"}


def title(facts: Facts) -> str:
    """The page's one heading."""
    name = f"{facts.name} ({facts.run})" if facts.name and facts.name != facts.run else facts.run
    return f"Lineage report: {name}"


def sections(facts: Facts) -> list[Section]:
    """All sections that have something to say."""
    found = [
        _answer(facts),
        _verdicts(facts),
        *course.first_bad(facts),
        *boundaries.sections(facts),
        *course.sections(facts),
        _findings(facts),
        events.section(facts.beside),
        unrecorded(facts),
        evidence(facts),
        _questions(facts),
        ledger(facts),
    ]
    return [s for s in found if s.blocks]


def status(value: schemas.Status) -> Span:
    """A status in words that are enough without colour."""
    word = trackers.text.WORDS[value]
    return Span(word.upper() if value == "broken" else word, STYLE[value])


def _answer(facts: Facts) -> Section:
    a = facts.answer
    blocks: list[Block] = []
    if facts.damage:
        blocks.append(
            Para(
                [
                    Span(f"The ledger is damaged in {words.plural(len(facts.damage), 'place')}.", "bad"),
                    " What follows rests on what could still be read; the places are listed at the end.",
                ]
            )
        )
    good: list[str | Span] = [a.last_good]
    if a.path:
        good += [", ", Span(a.path, "code")]
    style: Style = STYLE[a.status] if a.status else "warn"
    lines: list[Inline] = [
        [Span("Flagged: ", "strong"), Span(a.flagged, style), "."],
        [Span("Why: ", "strong"), a.because, "."],
        [Span("Other claims: ", "strong"), a.claims, "."],
        [Span("Last good checkpoint: ", "strong"), *good, "."],
        [
            Span("Do next: ", "strong"),
            f"{a.to_do}: ",
            Span(a.command, "code"),
            f". {a.then}." if a.then else ".",
        ],
    ]
    blocks.append(Bullets(lines))
    return Section("answer", "The answer", blocks)


def _verdicts(facts: Facts) -> Section:
    section = Section("verdicts", "What may still be concluded")
    for tip in facts.tips:
        section.blocks.extend(verdict(tip))
    return section


def verdict(tip: Tip) -> list[Block]:
    """What may still be concluded from one state, claim by claim."""
    titles = trackers.text.CLAIM_TITLES
    caption: list[str | Span] = [
        Span(f"Segment {tip.segment} ({tip.state}): ", "strong"),
        Span(trackers.headline(tip.verdict), STYLE[tip.verdict.status]),
        ".",
    ]
    if tip.verdict.confounded:
        caption += [
            " Several changes came at one restart: ",
            Span("confounded", "strong"),
            ". No effect can be traced to one of them.",
        ]
    # Claims that the same reason decides share a row, so that a reason is read once.
    groups: dict[tuple[schemas.Status, str], list[str]] = {}
    for c in tip.verdict.claims:
        groups.setdefault((c.status, c.reason), []).append(titles.get(c.claim, c.claim))
    rows: list[list[Inline]] = [
        ["; ".join(names), status(found), reason] for (found, reason), names in groups.items()
    ]
    out: list[Block] = [Table(caption, ("Claims", "Verdict", "Why"), rows)]
    notes: list[Inline] = [
        ["To show what is not shown: ", Span(s, "code")]
        for s in sorted({c.show for c in tip.verdict.claims if c.show})
    ]
    if tip.since_recorded:
        names = ", ".join(titles.get(c, c) for c in tip.since_recorded)
        notes.append(f"Judged otherwise than in the verdict recorded while the run went on: {names}.")
    reference = _reference(tip.verdict.reference)
    notes.append(Span(f"Compared with: {reference}. Policy {words.digest(tip.verdict.policy)}.", "quiet"))
    return [*out, Bullets(notes)]


def _reference(reference: str) -> str:
    return "this run's own first segment on the same path" if reference == "self" else reference


def _findings(facts: Facts) -> Section:
    section = Section("findings", "What checks found")
    style: dict[str, Style] = {"fault": "bad", "warning": "warn", "note": "quiet"}
    numbers = {s.uid: s.number for s in facts.segments}
    rows: list[list[Inline]] = [
        [
            Span(g.first.payload.severity, style.get(g.first.payload.severity, "bad")),
            Span(g.first.payload.code, "code"),
            f"{g.first.payload.subject}: {g.first.payload.text}",
            words.shorten(", ".join(g.first.payload.names)) or "-",
            f"{numbers[g.first.segment]} / {g.first.rank}, step {g.first.step or 0:,}"
            + (f", and {words.plural(g.others, 'more segment')}" if g.others else ""),
            g.first.payload.remedy or "-",
        ]
        for g in facts.findings
    ]
    if rows:
        header = ("Severity", "Code", "What", "Which", "Segment / rank, step", "Next")
        section.blocks.append(Table("Each is a state that was seen, and no cause", header, rows))
    return section


def unrecorded(facts: Facts) -> Section:
    """What is not recorded, with the line that would add it."""
    section = Section("unrecorded", "What is not recorded")
    if facts.coverage:
        section.blocks.append(
            Table(
                "Not recorded in the newest segment",
                ("What", "The line that would add it"),
                [[what, Span(line, "code")] for what, line in facts.coverage.items()],
            )
        )
    elif facts.segments and facts.tips:
        covered = any(s.ended and "no end on record" not in s.ended for s in facts.segments)
        text = "Nothing that this version can record is missing in the newest segment that ended."
        section.blocks.append(Para(text if covered else "Coverage is written when a segment ends; none has."))
    if facts.gaps:
        section.blocks.append(Bullets(list(facts.gaps)))
    if facts.notes:
        rows: list[list[Inline]] = [
            [
                words.time(n.at),
                f"{n.segment if n.segment is not None else '?'} / {n.rank}",
                Span(n.code, "code"),
                words.shorten(n.text),
                n.remedy or "-",
            ]
            for n in facts.notes[:100]
        ]
        caption = "What the layer or a tracker could not do"
        if len(facts.notes) > len(rows):
            caption += f" (the first {len(rows)} of {len(facts.notes)})"
        section.blocks.append(Table(caption, ("UTC", "Segment / rank", "Code", "What", "Remedy"), rows))
    return section


def evidence(facts: Facts) -> Section:
    """What is kept, with its digests, and evaluations."""
    section = Section("evidence", "Evidence kept")
    if facts.evidence:
        rows: list[list[Inline]] = [
            [
                p.what,
                Span(p.at or p.location, "code"),
                f"{p.files:,} / {p.bytes:,}",
                Span(p.root, "code"),
                "verified" if p.verified else Span("not yet: it was renamed", "warn"),
            ]
            for p in facts.evidence
        ]
        section.blocks.append(
            Table(
                "Held in the write-once store of the ledger, or where its manifest there says",
                ("What", "Place", "Files / bytes", "Digest", "Read back"),
                rows,
            )
        )
    elif facts.bads:
        section.blocks.append(
            Para(
                [
                    Span("No evidence is kept yet. ", "bad"),
                    "Keep it before any restart: ",
                    Span(facts.answer.command, "code"),
                ]
            )
        )
    if facts.evaluations:
        rows = [
            [uid, f"{e.evaluator} {e.evaluator_version}", words.digest(e.data), _results(e)]
            for uid, e in facts.evaluations
        ]
        section.blocks.append(Table("Evaluations", ("Checkpoint", "Evaluator", "Data", "Results"), rows))
    return section


def _results(e: schemas.Evaluation) -> str:
    return ", ".join(f"{k} {words.number(v)}" for k, v in e.results.items())


def _questions(facts: Facts) -> Section:
    return Section(
        "questions", "Open questions", [Bullets(facts.open_questions)] if facts.open_questions else []
    )


def ledger(facts: Facts) -> Section:
    """Where the page comes from, and damage."""
    section = Section("ledger", "The ledger")
    if facts.damage:
        rows: list[list[Inline]] = [
            [Span(d.file, "code"), f"{d.line:,}", Span(d.code, "code"), f"{d.title}: {d.text}"]
            for d in facts.damage
        ]
        section.blocks.append(Table("Damage", ("File", "Line", "Code", "What"), rows))
    else:
        section.blocks.append(Para("No damage was met while reading the journal."))
    rows = [["Run", Span(facts.run, "code")], ["Ledger", Span(facts.ledger, "code")]]
    rows += [[f"In {a.tracker}", _alias(a)] for a in facts.aliases]
    if facts.fork_of:
        rows.append(["Forked from run", Span(facts.fork_of, "code")])
    if facts.written:
        first, last = map(words.time, facts.written)
        rows.append(["Records", f"{facts.records:,}, from {first} to {last} UTC"])
    rows.append(["Read", f"{words.time(facts.read_at)} UTC, runlineage {schemas.VERSION}"])
    section.blocks.append(Table("Where this comes from", ("What", "Value"), rows))
    return section


def _alias(a: schemas.TrackerAlias) -> str:
    return ", ".join(x for x in (a.id, a.project, a.url or a.uri) if x)
