"""`lineage check`: whether the logged series of a run show what happened."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge.series_health import Health
from ..ledger import health
from ..ledger.reader import SegmentView
from .common import Exit, Json, Run, Subject, console, damage, emit, ending, find, step_text, table

NAME = "check"
STYLE = {"fault": "red", "warning": "yellow", "note": "dim"}


def command(
    run: Run = None,
    segment: Annotated[int | None, typer.Option(help="Number of the segment; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Judge the logged losses and gradient norms: dead, stale, coarse, missing or hidden at NaN, of which scope.

    A resume from a quarantined checkpoint is named too. Exit code 1 where something is found, or a series does not show
    what happened, 4 where there is none to judge; notes do not count.
    """
    subject = find(run)
    chosen = [s for s in subject.ledger.segments if meant(subject, s, segment)]
    judged = [(s, health.check(subject.ledger, s)) for s in chosen]
    for s, h in judged:
        h.findings += health.of_checkpoints(subject.ledger, s.uid)
    if as_json:
        emit({"run": subject.ledger.run, "segments": [_data(s, h) for s, h in judged]})
    else:
        for s, h in judged:
            _print(s, h)
            if h.looked_at and health.copied(subject.ledger, s):
                console.print(f"[dim]{COPIES}[/]")
        if not any(h.looked_at for _, h in judged):
            console.print(f"Cannot tell: {NOTHING}")
    raise ending(_code([h for _, h in judged]), damage(subject.ledger), as_json=as_json)


COPIES = (
    "The layer's own signals of this segment are not here, so what a logged series shows cannot be told by "
    "comparing: not shown."
)
NOTHING = (
    "no series of a training loss or a gradient norm is on record. `lineage run -- python train.py` records what is "
    "logged, lineage.attach reads its own."
)


def meant(subject: Subject, s: SegmentView, number: int | None) -> bool:
    """Whether a segment is asked for: by its number, by what the subject names, else each."""
    if number is not None:
        return s.number == number
    return subject.segment in (None, s.uid)


def _code(found: list[Health]) -> int:
    if any(f.severity != "note" for h in found for f in h.findings):
        return Exit.FOUND
    return Exit.OK if any(h.looked_at for h in found) else Exit.CANNOT_TELL


def _data(s: SegmentView, h: Health) -> dict[str, object]:
    return {
        "segment": s.number,
        "series": [
            {
                "key": m.series.key,
                "by": m.series.by,
                "rank": m.series.rank,
                "rows": len(m.series.values),
                "steps": [m.series.steps[0], m.series.steps[-1]] if m.series.steps else [],
                "shows": sorted(m.names),
                "definition": m.text,
                "codes": [f.code for f in _of(m.series.said, m.series.rank, h)],
            }
            for m in h.looked_at
        ],
        "findings": h.findings,
        "not_judged": h.not_judged,
    }


def _of(said: str, rank: int, h: Health) -> list[schemas.Finding]:
    return [f for f in h.findings if said in f.names and f.values["rank"].plain() == rank]


def _print(s: SegmentView, h: Health) -> None:
    rows = table("series", "rank", "rows", "steps", "it is", "said", title=f"segment {s.number}")
    for m in h.looked_at:
        x = m.series
        steps = f"{step_text(x.steps[0])}-{step_text(x.steps[-1])}" if x.steps else "-"
        codes = ", ".join(f.code for f in _of(x.said, x.rank, h)) or "nothing"
        text = "a signal of the layer" if x.own else m.text
        rows.add_row(escape(x.said), str(x.rank), f"{len(x.values):,}", steps, text, codes)
    if h.looked_at:
        console.print(rows)
    for f in sorted(h.findings, key=lambda f: schemas.severity_place(f.severity)):
        console.print(
            f"[{STYLE.get(f.severity, 'red')}]{f.severity}[/] {f.code} {escape(f.subject)}: {escape(f.text)}"
        )
        if f.remedy:
            console.print(f"  [dim]next: {escape(f.remedy)}[/]")
    for what in h.not_judged:
        console.print(f"[yellow]not judged:[/] {escape(what)}")
