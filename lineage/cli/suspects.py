"""`lineage suspects`: what fits each family of causes, what speaks against it, and the check that tells next."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge.suspects import EVIDENCE, WORDS, Line, Suspect, Suspects
from ..judge.suspects import suspects as judge
from ..ledger import suspects as ledger_suspects
from . import first_bad, judging
from .common import Exit, Json, Run, Subject, console, emit, ending, find, step_text

NAME = "suspects"
ORDER = (
    "The order is that of the classes of evidence (a replay that flips, bits and digests, timing, place, absence); it "
    "says nothing of likelihood. --all names rules and records; docs/suspects.md has their sources."
)
FEW = 3
"""Lines of one side that a family shows without `--all`."""


def command(
    run: Run = None,
    segment: Annotated[
        int | None, typer.Option(help="Number of the segment; the newest one with a bad cell by default.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every line, with its rule and the records that it rests on.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what of the record fits each family of causes, what speaks against it, and what to check next.

    Data, numerics, optimizer and schedule, distributed, hardware and software, code and config: in the order of the
    class of their evidence, which is no order of likelihood. Exit code 1 where there is a bad cell, 4 where there are
    no values to judge.
    """
    subject = find(run)
    damaged = judging.damage(subject)
    if not any(subject.cells.extent) and not subject.cells.found:
        why = first_bad.nothing_to_judge(subject)
        if as_json:
            emit({"suspects": None, "reason": why})
        else:
            console.print(f"Cannot tell: {escape(why)}")
        raise ending(Exit.CANNOT_TELL, damaged, as_json=as_json)
    chosen = first_bad.choose(subject, judging.first_bads(subject), segment)
    if chosen is None:
        if as_json:
            emit({"suspects": None, "reason": NOTHING_BAD})
        else:
            console.print(NOTHING_BAD)
        raise ending(Exit.OK, damaged, as_json=as_json)
    known = ledger_suspects.gather(subject.ledger, subject.graph, subject.cells, chosen, _name(subject))
    found = judge(known)
    if as_json:
        emit({"cell": chosen.cell, "segment": known.segment, **data(found)})
    else:
        _show(chosen, known.segment, found, every)
    raise ending(Exit.FOUND, damaged, as_json=as_json)


NOTHING_BAD = "No bad cell, so nothing is suspected of one. `lineage first-bad` says what was looked at."


def _name(subject: Subject) -> str:
    return str(subject.ledger.path)


def data(found: Suspects) -> dict[str, Any]:
    """The suspects as plain data."""
    return {
        "answer": found.answer,
        "unknown": found.unknown,
        "suspects": [
            {
                "family": s.family,
                "title": s.title,
                "place": s.place,
                "evidence": s.strongest,
                "fits": [asdict(n) for n in s.of("for")],
                "speaks_against": [asdict(n) for n in s.of("against")],
                "next": None if s.next is None else asdict(s.next),
                "not_shown": list(s.missing),
            }
            for s in found.found
        ],
        "not_shown": list(found.missing),
    }


def _show(first: schemas.FirstBad, segment: int, found: Suspects, every: bool) -> None:
    cell = first.cell
    assert cell is not None
    console.print(
        f"[bold]Suspects of the first bad cell[/]: rank {cell.rank}, step {step_text(cell.step)}, segment {segment}: "
        f"{escape(cell.text)}"
    )
    console.print(f"{escape(found.answer)}\n")
    for s in found.found:
        _family(s, every, alike=sum(o.place == s.place for o in found.found))
    for text in found.missing:
        console.print(f"[cyan]not shown:[/] {escape(text)}")
    console.print(f"\n[dim]{ORDER}[/]")


def _family(s: Suspect, every: bool, *, alike: int) -> None:
    what = "nothing fits" if s.strongest is None else EVIDENCE[s.strongest]
    tie = " (as others)" if alike > 1 and s.strongest is not None else ""
    number = f"{s.place}. " if s.strongest is not None else "-  "
    console.print(f"[bold]{number}{s.title}[/]{tie}: {what}")
    for side, style in (("for", "bold"), ("against", "dim")):
        lines = s.of(side)  # type: ignore[arg-type]
        for n in lines if every else lines[:FEW]:
            _line(n, style, every)
        if not every and len(lines) > FEW:
            console.print(
                f"   {len(lines) - FEW} more that {'fit' if side == 'for' else 'speak against'}: --all"
            )
    if s.next is not None and (every or s.strongest is not None):
        console.print(f"   next: {escape(s.next.text)}")
        if s.next.command:
            console.print(f"     [bold]{escape(s.next.command)}[/]")
    for text in s.missing if every or s.strongest is not None else ():
        console.print(f"   [cyan]not shown:[/] {escape(text)}")


def _line(n: Line, style: str, every: bool) -> None:
    console.print(f"   [{style}]{WORDS[n.side]}[/]: {escape(n.text)}")
    if every:
        where = f"; {', '.join(n.records)}" if n.records else ""
        console.print(f"     [dim]{n.rule} ({n.evidence}); {escape(n.source)}{escape(where)}[/]")
