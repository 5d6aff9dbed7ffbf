"""`lineage ranks`: whether the ranks of a run hold, take and read what they must, and resumed what was saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import rank_sets
from ..judge.agreement import Disagreement
from ..judge.resharded import Resharded
from ..ledger import beside, whole_states
from ..ledger.beside import Beside
from ..ledger.reader import SegmentView
from . import naming
from .check import STYLE, meant
from .common import Exit, Json, Run, Subject, console, damage, emit, ending, find, step_text, table

NAME = "ranks"
MOST = 20
"""Tensors that the table lists."""
_RESUMED = {"restored": "green", "differs": "red", "absent": "red", "not_recorded": "yellow"}


def command(
    run: Run = None,
    segment: Annotated[int | None, typer.Option(help="Number of the segment; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the ranks: replicas bit by bit, rates and clipping, what they started from, their data, their times.

    Of a segment that resumed, the state of all its ranks is held against the save, on however many ranks that was.
    Exit code 1 where ranks differ that must not, or a resume found another state; 4 where nothing could be compared;
    notes do not count.
    """
    subject = find(run)
    chosen = [s for s in subject.ledger.segments if meant(subject, s, segment)]
    found = [(s, beside.compare(subject.ledger, s), _resumed(subject, s)) for s in chosen]
    if as_json:
        emit({"run": subject.ledger.run, "segments": [_data(s, b, r) for s, b, r in found]})
    else:
        for s, b, r in found:
            _print(s, b, r)
    code = _code([b for _, b, _ in found], [r for _, _, r in found if r is not None])
    raise ending(code, damage(subject.ledger), as_json=as_json)


def _resumed(subject: Subject, s: SegmentView) -> Resharded | None:
    """What the segment found in memory against the save that it resumed from; None where it compared itself with none.

    A fork's save is in the ledger of another run, which is looked for beside this one and in the folder of ledgers.
    """
    told = [r.payload.checkpoint for r in subject.ledger.of("restore", s.uid)]
    if not told:
        return None
    return whole_states.of_resume(subject.ledger, s.uid, naming.saved_in(subject, told[-1]))


def _code(found: list[Beside], resumed: list[Resharded]) -> int:
    if any(f.severity != "note" for b in found for f in b.findings):
        return Exit.FOUND
    if any(r.status in ("differs", "absent") for r in resumed):
        return Exit.FOUND
    compared = any(b.state.tensors for b in found) or any(r.status == "restored" for r in resumed)
    return Exit.OK if compared else Exit.CANNOT_TELL


def _data(s: SegmentView, b: Beside, r: Resharded | None) -> dict[str, object]:
    return {
        "segment": s.number,
        "world_size": b.world,
        "tensors_compared": b.state.tensors,
        "steps": b.state.steps,
        "disagreements": [
            {
                "kind": d.kind,
                "tensor": d.tensor,
                "part": d.part,
                "step": d.step,
                "agreed_at": d.agreed,
                "again_at": d.until,
                "holders": [rank_sets.text(c) for c in d.classes],
                "odd_ranks": list(d.odd),
                "declared": d.declared,
            }
            for d in b.state.found
        ],
        "each_rank_its_own": b.state.own,
        "findings": b.findings,
        "not_compared": b.not_compared,
        "resume": None if r is None else _resume_data(r),
    }


def _resume_data(r: Resharded) -> dict[str, object]:
    return {
        "status": r.status,
        "saved_on": rank_sets.text(r.saved_ranks),
        "resumed_on": rank_sets.text(r.live_ranks),
        "wrote_nothing": {side: rank_sets.text(ranks) for side, ranks in r.missing.items() if ranks},
        "components": {name: asdict(c) for name, c in r.components.items()},
    }


def _print(s: SegmentView, b: Beside, r: Resharded | None) -> None:
    console.print(f"[bold]Segment {s.number}[/]: {_ranks(b)}")
    if r is not None:
        head, *rest = r.lines()
        console.print(f"  [{_RESUMED[r.status]}]{escape(head)}[/]")
        for line in rest:
            console.print(f"    {escape(line)}")
    if b.world < 2:
        return
    if b.state.tensors:
        steps = b.state.steps
        console.print(
            f"  {b.state.tensors:,} tensors compared bit by bit at {len(steps):,} steps "
            f"({step_text(steps[0])} to {step_text(steps[-1])}): {_agreed(b)}"
        )
    for f in sorted(b.findings, key=lambda f: schemas.severity_place(f.severity)):
        console.print(
            f"  [{STYLE.get(f.severity, 'red')}]{f.severity}[/] {f.code} {escape(f.subject)}: {escape(f.text)}"
        )
        if f.names:
            more = f" and {f.count - 4:,} more" if f.count and f.count > 4 else ""
            console.print(f"    {escape(', '.join(f.names[:4]))}{more}")
        if f.remedy:
            console.print(f"    [dim]next: {escape(f.remedy)}[/]")
    if b.state.found:
        console.print(_table(b.state.found))
    for what in b.not_compared:
        console.print(f"  [yellow]not compared:[/] {escape(what)}")


def _ranks(b: Beside) -> str:
    return "one rank: there is nothing to compare" if b.world < 2 else f"{b.world:,} ranks"


def _agreed(b: Beside) -> str:
    if not b.state.found:
        own = f"; {len(b.state.own):,} more are each rank's own" if b.state.own else ""
        return f"ranks agree on all of them{own}"
    return f"ranks disagree on {len({(d.kind, d.tensor, d.part) for d in b.state.found}):,} of them"


def _table(found: list[Disagreement]) -> object:
    """One row for each tensor, whatever of it differs."""
    rows = table("tensor", "what", "part", "agreed at", "differ at", "the same on", "since")
    same: dict[tuple[str, str, int, object], list[Disagreement]] = {}
    for d in found:
        same.setdefault((d.tensor, d.part, d.step, d.classes), []).append(d)
    for all_of in list(same.values())[:MOST]:
        d = all_of[0]
        rows.add_row(
            escape(d.tensor),
            ", ".join(x.kind for x in all_of),
            escape(d.part),
            "never" if d.agreed is None else step_text(d.agreed),
            step_text(d.step),
            " | ".join(rank_sets.text(c) for c in d.classes[:4]) + (" | ..." if len(d.classes) > 4 else ""),
            "it lasts" if d.until is None else f"until {step_text(d.until)}",
        )
    if len(same) > MOST:
        rows.caption = f"{len(same) - MOST:,} more (--json lists them)"
    return rows
