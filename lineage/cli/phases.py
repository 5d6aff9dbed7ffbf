"""`lineage phases`: under which conditions a run was trained, interval by interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..judge.phases import Phase
from ..report import phases as phases_
from ..report import series
from . import oddities
from .common import Exit, Json, Run, console, damage, emit, ending, find, table

NAME = "phases"

NARROWEST = 16
"""Columns narrower than this many characters cannot be read: the phases are then listed below each other."""

FEW = 3
"""Mitigations that a cell of the table shows; the list and the report show more."""


def command(
    run: Run = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every column, also those that are the same in all phases.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the phase table: interval, data mix, learning rate, batch, mitigations and hardware of each phase.

    A phase lasts from one change of regime to the next, across restarts that change none. Abandoned branches
    follow the phase that they left. What no record shows is "not shown".
    """
    subject = find(run)
    ledger = subject.ledger
    found = phases_.phases(ledger.records, subject.graph, series.read(ledger), series.consumed(ledger))
    if as_json:
        emit([asdict(p) | {"steps": p.steps, "segments": p.segments} for p in found])
    else:
        show(found, every=every)
        oddities.tell(ledger.records)
    raise ending(Exit.OK if found else Exit.CANNOT_TELL, damage(ledger), as_json=as_json)


def show(found: Sequence[Phase], *, every: bool = False) -> None:
    """Print the table, or the phases below each other where the terminal is too narrow for it."""
    if not found:
        console.print("No step of training is on record, so there is no phase to show.")
        return
    same, silent = ({}, []) if every else phases_.told_once(found)
    columns = [c for c in phases_.COLUMNS if c not in same and c not in silent]
    width = console.width
    if len(found) > 1 and len(columns) * (NARROWEST + 3) <= width:
        console.print(_table(found, columns))
    else:
        for p in found:
            _block(p, columns)
    if same:
        console.print("\n[bold]The same in every phase[/]")
        rows = Table.grid(padding=(0, 2, 0, 0))
        for name, value in same.items():
            rows.add_row(f"  {name}", escape(value))
        console.print(rows)
    if silent:
        console.print(f"\n[cyan]not shown in any phase:[/] {', '.join(silent)}")
    for note in phases_.notes(found):
        console.print(f"[dim]{escape(note)}.[/]")


def _table(found: Sequence[Phase], columns: Sequence[str]) -> Table:
    rows = table(*columns)
    for p in found:
        cells = phases_.cells(p, FEW)
        rows.add_row(*(escape(cells[c]) for c in columns), style="dim" if p.abandoned else "")
    return rows


def _block(p: Phase, columns: Sequence[str]) -> None:
    cells = phases_.cells(p)
    head = f"phase {cells['Phase']}: step{'' if p.first == p.last else 's'} {cells['Steps']}"
    console.print(f"[{'dim' if p.abandoned else 'bold'}]{escape(head)}[/]")
    rows = Table.grid(padding=(0, 2, 0, 0))
    for c in columns:
        if c not in ("Phase", "Steps"):
            rows.add_row(f"  {c}", escape(cells[c]))
    console.print(rows)
    console.print()
