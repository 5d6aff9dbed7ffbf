"""Sections on what the page rests on: evidence with digests, checkpoints, open questions, and the audit."""

from __future__ import annotations

from collections.abc import Sequence

from ...judge.audit import AuditFinding
from .. import page, questions, words
from ..blocks import Bullets, Inline, Para, Section, Span, Style, Table
from .given import Given

STATES: dict[str, tuple[str, Style]] = {
    "held": ("held", "good"),
    "missing": ("MISSING", "bad"),
    "gone": ("GONE", "bad"),
    "none": ("never recorded", "warn"),
}


def evidence(g: Given) -> Section:
    """Which evidence is held, where, and with which digests."""
    section = Section("evidence", "Evidence")
    rows: list[list[Inline]] = []
    for e in g.hour.gate.items:
        word, style = STATES.get(e.state, (e.state, "warn"))
        style = "quiet" if e.state == "none" and not e.required else style
        remedy: list[str | Span] = [". To hold it: ", Span(e.remedy, "code")] if e.remedy else []
        needed = "required" if e.required else "helps"
        rows.append([e.what, [Span(word, style), Span(f" ({needed})", "quiet")], [e.text, *remedy]])
    section.blocks.append(
        Table("What a cause needs, and whether it is held", ("Evidence", "State", "Where"), rows)
    )
    section.blocks.extend(page.evidence(g.facts).blocks)
    if g.bundles:
        section.blocks.append(
            Table(
                "Bundles: the bad step of one rank, with all that making it again needs", BUNDLES, _bundles(g)
            )
        )
    return section


BUNDLES = ("Rank, step", "Place", "Files / bytes", "Digest", "Left out")


def _bundles(g: Given) -> list[list[Inline]]:
    return [
        [
            f"rank {r.rank}, step {r.payload.first_bad_step:,}",
            Span(r.payload.location, "code"),
            f"{r.payload.files:,} / {r.payload.bytes:,}",
            Span(r.payload.root, "code"),
            "; ".join(f"{k}: {v}" for k, v in r.payload.left_out.items()) or "nothing",
        ]
        for r in g.bundles[:MOST]
    ]


MOST = 60


def checkpoints(g: Given) -> Section:
    """The checkpoints that it concerns: the last good one, and those from the first bad step on."""
    section = Section("checkpoints", "Checkpoints concerned")
    bad = g.hour.bad
    good = bad.last_good_checkpoint if bad else None
    first = bad.first_bad_checkpoint if bad else None
    rows: list[list[Inline]] = []
    for c in g.facts.checkpoints:
        later = c.segment == g.number and g.step is not None and c.checkpoint.step >= g.step
        if not (later or c.checkpoint.uid in (good, first)):
            continue
        role = (
            "last good"
            if c.checkpoint.uid == good
            else "first bad"
            if c.checkpoint.uid == first
            else "from after it"
        )
        style: Style = "good" if role == "last good" else "bad"
        rows.append(
            [
                f"{c.checkpoint.step:,}",
                Span(role, style),
                c.status,
                ", ".join(c.marks) or "none",
                Span(words.digest(c.checkpoint.manifest.root if c.checkpoint.manifest else None), "code"),
                Span(c.checkpoint.path or "-", "code"),
            ]
        )
    if rows:
        more = f" (the first {MOST} of {len(rows)})" if len(rows) > MOST else ""
        head = ("Step", "Which", "Status", "Marks", "Digest of its files", "Place")
        section.blocks.append(
            Table(f"Saved before the first bad step, and from it on{more}", head, rows[:MOST])
        )
    else:
        section.blocks.append(
            Para("None is on record: no checkpoint was saved before the first bad step, or from it on.")
        )
    return section


def open_questions(g: Given) -> Section:
    """What the ledger does not answer, of this incident and what came after it."""
    hour = g.hour
    mine = {g.life.segment, *(s.uid for s in g.facts.segments if s.number in g.later)}
    records = [r for r in hour.records if r.kind != "drift" or r.segment in mine]
    bads = {g.life.segment: hour.bad} if hour.bad is not None and hour.bad.cell is not None else {}
    found = questions.collect(records, hour.graph, g.facts.tips, bads, preserved=hour.gate.is_open)
    if g.life.causes:
        found = [q for q in found if not q.startswith("Why did rank")]
    items: list[Inline] = [*found]
    items += [f"{e.what}: {e.text}" for e in hour.gate.wanting if e.state != "held" and e.required]
    return Section(
        "questions", "Open questions", [Bullets(items) if items else Para("None that the ledger can name.")]
    )


SEVERITY: dict[str, Style] = {"fault": "bad", "warning": "warn", "note": "quiet"}


def audit(g: Given) -> Section:
    """What the audit finds in the run, the worst first, findings of one code together."""
    section = Section("audit", "Audit findings")
    by_code: dict[tuple[str, str], list[AuditFinding]] = {}
    for f in g.audit:
        by_code.setdefault((f.severity, f.code), []).append(f)
    rows = [_finding(severity, code, found) for (severity, code), found in by_code.items()]
    if rows:
        caption = "Of the whole run. Each is a habit or a state that was seen, and no cause"
        section.blocks.append(Table(caption, ("Severity", "Code", "What", "Next"), rows))
    else:
        section.blocks.append(Para("Nothing was found."))
    if g.not_judged:
        told = "; ".join(f"{code}: {why}" for code, why in g.not_judged.items())
        section.blocks.append(Para(f"Not judged, since this ledger was pulled from a tracker: {told}."))
    return section


def _finding(severity: str, code: str, found: Sequence[AuditFinding]) -> list[Inline]:
    text: list[str | Span] = [Span(f"{found[0].title}. ", "strong")]
    said = [f"{_where(f)}{words.shorten(f.text)}" for f in found[:FEW]]
    text.append("; ".join(said))
    text.append(f"; and {len(found) - FEW} more" if len(found) > FEW else "")
    return [Span(severity, SEVERITY.get(severity, "bad")), Span(code, "code"), text, found[0].remedy or "-"]


FEW = 3


def _where(f: AuditFinding) -> str:
    if not f.segment:
        return ""
    return f"segment {f.segment}{f', step {f.step:,}' if f.step is not None else ''}: "
