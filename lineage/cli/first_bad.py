"""`lineage first-bad`: the first bad cell, rank and step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import firstbad
from ..ledger import reader
from ..report import words
from . import judging
from .common import Exit, Json, Run, Subject, console, emit, ending, find, short, step_text

NAME = "first-bad"


def command(
    run: Run = None,
    segment: Annotated[
        int | None, typer.Option(help="Number of the segment; the newest one with a bad cell by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Name the first rank and step with a non-finite or abnormal value, and what came after it."""
    subject = find(run)
    damaged = judging.damage(subject)
    values = judging.points(subject)
    hand = by_hand(subject.ledger)
    if not as_json:
        show_by_hand(subject, hand)
    if not values and not subject.ledger.of("alarm"):
        why = nothing_to_judge(subject)
        if as_json:
            emit({"first_bad": None, "reason": why, "incidents": hand})
        else:
            console.print(f"Cannot tell: {escape(why)}")
        raise ending(Exit.CANNOT_TELL, damaged, as_json=as_json)
    found = judging.first_bads(subject)
    chosen = _choose(subject, found, segment)
    if chosen is None:
        if as_json:
            emit({"first_bad": None, "incidents": hand})
        else:
            steps = words.plural(len({(p.segment, p.step) for p in values}), "step")
            ranks = words.plural(len({p.rank for p in values}), "rank")
            console.print(f"No bad cell: {steps} of {ranks} lie in their range.")
        raise ending(Exit.OK, damaged, as_json=as_json)
    if as_json:
        emit(
            {
                "first_bad": chosen,
                "segment": subject.graph.number(chosen.cell.segment) if chosen.cell else None,
                "tensors": judging.tensors(subject, chosen.cell) if chosen.cell else [],
                "incidents": hand,
            }
        )
    else:
        show(subject, chosen, values)
    raise ending(Exit.FOUND, damaged, as_json=as_json)


def by_hand(ledger: reader.Ledger) -> list[schemas.Incident]:
    """The incidents that a person opened and nobody closed, as their last records say."""
    latest: dict[str, schemas.Incident] = {r.payload.uid: r.payload for r in ledger.of("incident")}
    return [i for i in latest.values() if i.opened_by == "person" and i.status != "closed"]


def show_by_hand(subject: Subject, found: list[schemas.Incident]) -> None:
    """Print what people said: it is a claim of theirs, and no value that was measured."""
    for i in found:
        where = "" if i.first_bad_step is None else f", bad from step {step_text(i.first_bad_step)}"
        where += "" if i.first_bad_rank is None else f" on rank {i.first_bad_rank}"
        where += f", about {i.concept}" if i.concept else ""
        owner = f" (owner: {i.owner})" if i.owner else ""
        console.print(
            f"[bold]incident {short(i.uid)}, opened by hand{escape(where)}:[/] {escape(i.title + owner)}"
        )


def nothing_to_judge(subject: Subject) -> str:
    """Why a ledger holds no value to judge, as far as it tells: none was given, or what was given was lost."""
    found = "this ledger holds no loss and no gradient norm."
    ledger, numbers = subject.ledger, {s.uid: s.number for s in subject.ledger.segments}
    told = {r.segment: r.payload for r in ledger.of("coverage") if r.segment in numbers}
    given = [
        str(numbers[uid])
        for uid, c in told.items()
        if {"loss", "grad_norm", "grad_norm_local"} & {*c.recorded}
    ]
    if given:
        return (
            f"{found} Segment {', '.join(given)} says that values were recorded, so their files are gone: "
            "see `lineage verify`, and look for series/ in a copy of this folder."
        )
    silent = [str(n) for uid, n in numbers.items() if uid not in told]
    if silent:
        return (
            f"{found} Segment {', '.join(silent)} left no word of its end (it was killed, or still runs), so it is "
            "not known whether values were given: the last steps before a kill can be lost. If the loop has no "
            "`st.loss(loss)`, add it."
        )
    return f"{found} None was given, as each segment says at its end. Add `st.loss(loss)` to the loop."


def _choose(
    subject: Subject, found: dict[str, schemas.FirstBad], segment: int | None
) -> schemas.FirstBad | None:
    order = list(subject.graph.segments)
    if segment is not None:
        if not 1 <= segment <= len(order):
            raise typer.BadParameter(f"this run has segments 1 to {len(order)}; not {segment}")
        return found.get(order[segment - 1])
    with_bad = [uid for uid in order if uid in found]
    return found[with_bad[-1]] if with_bad else None


def show(subject: Subject, found: schemas.FirstBad, values: list[firstbad.Point]) -> None:
    """Print the first bad cell for a person."""
    cell = found.cell
    assert cell is not None
    console.print(
        f"[bold red]First bad: rank {cell.rank}, step {step_text(cell.step)}[/] "
        f"(segment {subject.graph.number(cell.segment)})"
    )
    console.print(f"  {escape(cell.text)}")
    for tie in found.ties:
        console.print(f"  at the same point of the step also rank {tie.rank}: {escape(tie.text)}")
    node = subject.graph.nodes.get(found.last_good_checkpoint or "")
    console.print(f"\nlast good step        {step_text(found.last_good_step)}")
    if node:
        console.print(
            f"last good checkpoint  step {step_text(node.checkpoint.step)}, {short(node.uid)}, {node.checkpoint.path}"
        )
    else:
        console.print("last good checkpoint  none is recorded before that step")
    bad = subject.graph.nodes.get(found.first_bad_checkpoint or "")
    if bad:
        console.print(f"first bad checkpoint  step {step_text(bad.checkpoint.step)}, {bad.checkpoint.path}")
    console.print()
    for line in grid(subject, cell, values):
        console.print(line)
    tensors = judging.tensors(subject, cell)
    if tensors:
        console.print(f"\nby tensor, on rank {cell.rank}:")
        for line in tensors:
            console.print(f"  {escape(line)}")
    if found.spread:
        console.print("\nlater, not the beginning:")
        for line in found.spread:
            console.print(f"  {escape(line)}")
    for line in found.gaps:
        console.print(f"[yellow]gap:[/] {escape(line)}")
    console.print(f"\nnext: [bold]lineage incident preserve {subject.ledger.path}[/]  (before any restart)")


def grid(subject: Subject, cell: schemas.Cell, values: list[firstbad.Point], ranks: int = 16) -> list[str]:
    """The rank x step grid around the first bad cell."""
    steps = list(range(max(1, cell.step - 4), cell.step + 3))
    bad = {
        (c.rank, c.step): c
        for c in [*firstbad.cells(values), *firstbad.from_alarms(subject.ledger.records)]
        if c.segment == cell.segment
    }
    seen = {(p.rank, p.step) for p in values if p.segment == cell.segment}
    every = sorted({r for r, _ in seen} | {cell.rank})
    first = max(0, every.index(cell.rank) - ranks // 2)
    out = ["          " + "".join(f"{s:>9,}" for s in steps)]
    for rank in every[first : first + ranks]:
        cells = []
        for s in steps:
            if (rank, s) == (cell.rank, cell.step):
                cells.append(f"[bold white on red]{'FIRST':>9}[/]")
            elif (rank, s) in bad:
                word = "NaN/Inf" if bad[rank, s].abnormal == "non_finite" else "high"
                cells.append(f"[red]{word:>9}[/]")
            else:
                cells.append(f"{'ok' if (rank, s) in seen else '.':>9}")
        out.append(f"rank {rank:<5}" + "".join(cells))
    if len(every) > ranks:
        out.append(f"({len(every):,} ranks in all; those around rank {cell.rank} are shown)")
    return out
