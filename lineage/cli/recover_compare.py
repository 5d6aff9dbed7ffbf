"""`lineage recover compare`: the repaired run against the pre-incident one, at set horizons."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import trajectory
from . import incident_facts, judging, recover_gathered
from .common import Exit, Json, Run, console, emit, ending, find, step_text, table
from .incident_facts import Which
from .incident_writing import write
from .recover_gathered import Horizons

NAME = "compare"
WORDS = {
    "inside": "[green]as before[/]",
    "above": "[bold red]ABOVE[/]",
    "below": "[bold red]BELOW[/]",
    "non_finite": "[bold red]NOT FINITE[/]",
    "not_reached": "[dim]not reached[/]",
    "not_shown": "[cyan]not shown[/]",
}


def command(
    run: Run = None,
    at: Horizons = None,
    segment: Annotated[
        int | None,
        typer.Option(help="Number of the repaired run's first segment.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--record", help="Write the comparison into the ledger.")] = False,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Say at set horizons whether the repaired run goes on as the run went before the incident.

    The bands are of the run's own history. Exit code 1 where it is outside of one, 4 where nothing can be said yet.
    """
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    facts = incident_facts.facts(subject, life, name)
    found = recover_gathered.compare(subject, life, facts, segment, recover_gathered.horizons(at))
    if keep:
        write(subject, life.segment, [found.record], caused_by=life.records[-1:])
    if as_json:
        emit({"trajectory": found.record, "summary": trajectory.summary(found.record.horizons)})
    else:
        show(found.record, found.segment)
    raise ending(code(found.record), judging.damage(subject), as_json=as_json)


def code(t: schemas.Trajectory) -> Exit:
    """1 where it is not as before, 4 where nothing can be said."""
    if trajectory.outside(t.horizons):
        return Exit.FOUND
    return Exit.OK if trajectory.judged(t.horizons) else Exit.CANNOT_TELL


def show(t: schemas.Trajectory, segment: int) -> None:
    """Print a comparison."""
    console.print(
        f"[bold]segment {segment}, from step {step_text(t.from_step)}[/], against the run before the incident; "
        f"{step_text(t.reached - t.from_step)} steps are made\n"
    )
    rows = table("signal", "steps after", "value", "band of its own history", "", "moves")
    for h in t.horizons:
        band = "-" if h.low is None or h.high is None else f"{h.low:.4g} to {h.high:.4g}"
        value = "-" if h.value is None else f"{h.value:.4g}"
        rows.add_row(h.signal, step_text(h.steps), value, band, WORDS[h.position], f"{h.moves:,}")
    console.print(rows)
    for h in t.horizons:
        if h.position in ("not_shown", "non_finite"):
            console.print(f"  {h.signal} at {h.steps:,}: {escape(h.text)}")
    for s in t.same_steps:
        console.print(f"\nsteps {s.first:,} to {s.last:,} were made twice: {escape(s.text)}")
    console.print(f"\n{escape(trajectory.summary(t.horizons))}")
    for limit in t.limits:
        console.print(f"[dim]{escape(limit)}[/]")


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
