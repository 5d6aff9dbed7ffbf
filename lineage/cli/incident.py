"""`lineage incident`: evidence first."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.markup import escape
from rich.progress import Progress

from .._rooms import schemas
from ..ledger.evidence import EvidenceError
from . import judging
from .common import CliError, Exit, Json, Run, console, emit, ending, errors, find
from .preserving import plan, preserve_all

app = typer.Typer(
    name="incident", help="The first hour: preserve the evidence before anything else.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Hold the incident's commands."""


@app.command("preserve")
def preserve(run: Run = None, as_json: Json = False) -> None:
    """Copy the last good checkpoint, the first bad one and batch, and the rank files into the evidence store."""
    subject = find(run)
    found = judging.first_bads(subject)
    if not found:
        raise CliError(
            "no bad cell is known in this ledger, so it cannot be told which checkpoint is the last good one. "
            "`lineage first-bad` says what was looked at.",
            Exit.CANNOT_TELL,
        )
    segment, bad = list(found.items())[-1]
    items = plan(subject, segment, bad)
    total = sum(i.size for i in items)
    with Progress(console=errors, transient=True) as progress:
        bar = progress.add_task("preserving", total=total)
        kept, problems = preserve_all(subject, segment, bad, items, lambda n: progress.advance(bar, n))
    if as_json:
        emit({"preserved": kept, "problems": problems})
    else:
        _show(subject.ledger.path, kept, problems)
    raise ending(Exit.FOUND if problems else Exit.OK, judging.damage(subject), as_json=as_json)


def _show(ledger: Path, kept: list[schemas.Preserved], problems: list[str]) -> None:
    for p in kept:
        console.print(
            f"[green]kept[/] {escape(p.what)}: {p.files} files, {p.bytes:,} bytes, {p.method}, verified\n"
            f"     {ledger / p.location}"
        )
    for problem in problems:
        console.print(f"[bold red]not kept:[/] {escape(problem)}")
    size = sum(p.bytes for p in kept if p.method == "copy")
    console.print(
        f"\n{size:,} bytes of disk are used by it. The store is read-only; rotation does not reach it."
    )


__all__ = ["EvidenceError", "app"]
