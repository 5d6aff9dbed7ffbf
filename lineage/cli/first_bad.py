"""`lineage first-bad`: the first bad cell over ranks, steps, layers and tensors, and what came after it."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge.quarantined import quarantine
from ..ledger import reader
from ..report import words
from . import events, first_bad_shown, judging
from .common import Exit, Json, Run, Subject, console, emit, ending, find, short, step_text

NAME = "first-bad"


def command(
    run: Run = None,
    segment: Annotated[
        int | None, typer.Option(help="Number of the segment; the newest one with a bad cell by default.")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Show the map of all ranks and steps.")] = False,
    ranks: Annotated[str | None, typer.Option(help="Only these ranks in the grid, as 64-127.")] = None,
    steps: Annotated[str | None, typer.Option(help="Only these steps in the grid, as 40-60.")] = None,
    as_json: Json = False,
) -> None:
    """Name the first rank, step, layer and tensor with a non-finite or abnormal value, and what came after it."""
    subject = find(run, urls=True)
    zoom = first_bad_shown.Zoom(grid, _interval(ranks, "--ranks"), _interval(steps, "--steps"))
    damaged = judging.damage(subject)
    hand = by_hand(subject.ledger)
    if not as_json:
        show_by_hand(subject, hand)
    if not any(subject.cells.extent) and not subject.cells.found:
        why = nothing_to_judge(subject)
        if as_json:
            emit({"first_bad": None, "reason": why, "incidents": hand})
        else:
            console.print(f"Cannot tell: {escape(why)}")
        raise ending(Exit.CANNOT_TELL, damaged, as_json=as_json)
    found = judging.first_bads(subject)
    chosen = choose(subject, found, segment)
    if chosen is None:
        if as_json:
            emit({"first_bad": None, "incidents": hand, "not_judged": subject.cells.notes})
        else:
            _nothing_bad(subject, zoom, segment)
        raise ending(Exit.OK, damaged, as_json=as_json)
    if as_json:
        emit(
            {
                "first_bad": chosen,
                "segment": subject.graph.number(chosen.cell.segment) if chosen.cell else None,
                "tensors": judging.tensors(subject, chosen.cell) if chosen.cell else [],
                "events_at_that_time": _events(subject, chosen),
                "not_judged": subject.cells.notes,
                "incidents": hand,
            }
        )
    else:
        first_bad_shown.show(subject, chosen, zoom, _events(subject, chosen))
        _unmarked(subject, found)
    raise ending(Exit.FOUND, damaged, as_json=as_json)


def _unmarked(subject: Subject, found: dict[str, schemas.FirstBad]) -> None:
    """Say which checkpoints from the first bad step on carry no mark yet, and the command that marks them."""
    due = quarantine(subject.ledger.records, graph=subject.graph, bads=found).unmarked
    if due:
        steps = ", ".join(step_text(q.node.checkpoint.step) for q in due[:8] if q.node)
        more = f" and {len(due) - 8} more" if len(due) > 8 else ""
        console.print(
            f"\n[bold]not marked:[/] checkpoints of step {steps}{more} hold a state from after it, and a resume from "
            "one is not warned of: [bold]lineage quarantine[/] marks them"
        )


def _interval(text: str | None, option: str) -> tuple[int, int] | None:
    """`64-127` or `77` as two numbers. Raises `typer.BadParameter` for anything else."""
    if text is None:
        return None
    found = re.fullmatch(r"([\d,]+)(?:\s*-\s*([\d,]+))?", text.strip())
    if found is None:
        raise typer.BadParameter(f"{option} takes one number or two, as 64-127; not {text!r}")
    a = int(found[1].replace(",", ""))
    b = int((found[2] or found[1]).replace(",", ""))
    if b < a:
        raise typer.BadParameter(f"{option} {text}: the first number is larger than the second")
    return a, b


def _nothing_bad(subject: Subject, zoom: first_bad_shown.Zoom, segment: int | None) -> None:
    """Say that nothing is abnormal, of how much; and what the ledger does not show."""
    steps, ranks = subject.cells.extent
    console.print(
        f"No bad cell: {words.plural(steps, 'step')} of {words.plural(ranks, 'rank')} lie in their range."
    )
    order = list(subject.graph.segments)
    uid = order[segment - 1] if segment is not None and segment <= len(order) else order[-1] if order else ""
    seen = subject.cells.seen.get(uid)
    if seen is not None:
        first_bad_shown.gaps(first_bad_shown.gaps_of(seen), subject.cells.notes)
        if zoom.wanted:
            first_bad_shown.grids(first_bad_shown.source(subject, uid, schemas.FirstBad(cell=None)), zoom)


def _events(subject: Subject, found: schemas.FirstBad) -> list[str]:
    """Events of machines and software at the time of the first bad cell, in words."""
    cell = found.cell
    return events.near(subject, cell.segment, cell.rank, cell.step) if cell else []


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


def choose(
    subject: Subject, found: dict[str, schemas.FirstBad], segment: int | None
) -> schemas.FirstBad | None:
    """The one that is meant: of the segment that was named, else of the newest one that went bad.

    The newest is the one that no other descends from: clocks may be off, so times alone do not decide.
    """
    order = list(subject.graph.segments)
    if segment is not None:
        if not 1 <= segment <= len(order):
            raise typer.BadParameter(f"this run has segments 1 to {len(order)}; not {segment}")
        return found.get(order[segment - 1])
    with_bad = [uid for uid in order if uid in found]
    if not with_bad:
        return None
    newest = with_bad[-1]
    for uid in with_bad[:-1]:
        if any(s.segment == newest for s in subject.graph.path_to_segment(uid)):
            newest = uid
    return found[newest]
