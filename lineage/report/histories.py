"""What runs without the layer would have been told: judgements, phases and branches of their logbooks, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .._rooms import schemas
from ..judge.scoring import Marked, Report
from . import as_markdown
from . import phases as phases_
from .blocks import Block, Inline, Outline, Para, Section, Span, Table
from .facts import Facts
from .outline import outline

_UID = re.compile(r" \([0-9a-f]{8}\)")
"""Ends of uids, which are new with each import and say nothing here."""

ANSWER = {
    "yes": Span("new regime", "bad"),
    "no": Span("no change", "quiet"),
    "cannot_tell": Span("cannot tell", "warn"),
}
MARK = {True: "changed", False: "not changed", None: "undecidable"}


def render(marked: Sequence[Marked], facts: Mapping[str, Facts], report: Report | None) -> str:
    """Return one page for all runs: the score first, where there are marks, then a section per run."""
    sections = [_score(report)] if report else []
    sections += [_run(run, [m for m in marked if m.run == run], facts.get(run)) for run in _runs(marked)]
    body = as_markdown.sections(sections)
    return _UID.sub("", body)


def _runs(marked: Sequence[Marked]) -> list[str]:
    return list(dict.fromkeys(m.run for m in marked))


def _score(report: Report) -> Section:
    rows: list[list[Inline]] = [
        [s.name, _share(s.precision), _share(s.recall), f"{s.hits}", f"{s.false_alarms}", f"{s.misses}"]
        for s in report.scores
    ]
    head = ("Rule", "Precision", "Recall", "Rightly flagged", "False alarms", "Missed")
    caption = (
        f"Over {report.decided} entries that a person could decide; {len(report.undecidable)} stand apart"
    )
    blocks: list[Block] = [Table(caption, head, rows)]
    for title, group in (
        ("Judged otherwise than marked", report.disagreements),
        (
            "Marked, but not to be told from the fields: not flagged, and said to be open",
            report.undecided_by_judge,
        ),
        ("Undecidable to the person too", report.undecidable),
    ):
        if group:
            blocks.append(Table(title, ("Run", "Entry", "Values", "Mark", "Judgement", "Why"), _named(group)))
    return Section("score", "Against the marks of a person", blocks)


def _named(group: Sequence[Marked]) -> list[list[Inline]]:
    return [
        [
            m.run,
            f"{m.entry.order + 1}: {m.entry.concept}",
            f"{_said(m.entry.before)} -> {_said(m.entry.after)}",
            MARK[m.mark],
            ANSWER[m.judgement.regime_change],
            m.judgement.reason,
        ]
        for m in group
    ]


def _run(run: str, own: Sequence[Marked], facts: Facts | None) -> Section:
    shown = [m for m in own if m.judgement.regime_change != "no"]
    silent = len(own) - len(shown)
    blocks: list[Block] = []
    if shown:
        head = ("Step", "Date", "Concept", "Judgement", "Why", "Claims broken from here", "Odd")
        blocks.append(Table("What the team would have been told", head, [_told(m) for m in shown]))
    if silent:
        blocks.append(
            Para(Span(f"{silent} of {len(own)} entries change nothing that results depend on.", "quiet"))
        )
    if facts and len(facts.phases) > 1:
        rows: list[list[Inline]] = [[*phases_.cells(p).values()] for p in facts.phases]
        blocks.append(Table("Phases", phases_.COLUMNS, rows))
        blocks.extend(Para(Span(f"{note}.", "quiet")) for note in phases_.notes(facts.phases))
    if facts and len(facts.segments) > 1:
        blocks.append(
            Outline("Branches, a side branch under the state it started from", outline(facts.roots))
        )
    return Section(run, run, blocks)


def _told(m: Marked) -> list[Inline]:
    e, j = m.entry, m.judgement
    broken = [c.replace("_", " ") for c, effect in j.effects.items() if effect == "broken"]
    beside = f" ({len(j.beside)} more at the same restart: confounded)" if j.beside else ""
    return [
        _place(e),
        e.date or "-",
        e.concept,
        ANSWER[j.regime_change],
        j.reason + beside,
        ", ".join(broken) or "-",
        "; ".join(e.problems) or "-",
    ]


def _place(e: schemas.Reported) -> str:
    if e.placed_at is None:
        return "not known"
    if e.placed_by == "neighbours":
        return f"{e.placed_at:,} or later"
    return f"{e.placed_at:,}"


def _said(value: schemas.Scalar | None) -> str:
    return "not stated" if value is None or value.type == "null" else value.text()


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
