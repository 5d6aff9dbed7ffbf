"""`lineage import`: a run that had no layer, from its training logs, logbook, launch scripts or configs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..imports import FORMATS, Book, ImportTrouble, Judged, into_ledger, judge, read, read_configs
from . import import_logs
from .common import CliError, Exit, Json, console, emit, root

NAME = "import"

Sources = Annotated[
    list[Path],
    typer.Argument(
        help="Training logs of one run, logbooks (JSON, JSON lines, CSV, YAML), or configs in order."
    ),
]


def command(
    sources: Sources,
    run: Annotated[
        str | None, typer.Option("--run", help="Name of the run, where the source names none.")
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", help="auto, log, logbook, launch (versions of a script), or configs (in order)."
        ),
    ] = "auto",
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where ledgers go; one folder per run.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Read what a run without the layer left behind into a ledger, each value with its source."""
    if format_ not in FORMATS:
        raise CliError(f"--format {format_} is none of {', '.join(FORMATS)}")
    where = (folder or root()).expanduser().absolute()
    try:
        if format_ in ("auto", "log") and (logs := import_logs.divide(sources, format_)):
            made = import_logs.imported(logs, run, where)
            if as_json:
                emit(made)
            else:
                import_logs.show(made)
            found = made["findings"] or made["alarms"] or made["problems"]
            raise typer.Exit(Exit.FOUND if found else Exit.OK)
        books = [read_configs(sources, run)] if format_ == "configs" else merged(sources, format_, run)
        done = [_imported(b, where) for b in books]
    except ImportTrouble as e:
        raise CliError(str(e)) from None
    if as_json:
        emit(done)
    else:
        for d in done:
            _show(d)
    raise typer.Exit(Exit.FOUND if any(d["problems"] for d in done) else Exit.OK)


def merged(sources: list[Path], format_: str, run: str | None) -> list[Book]:
    """Read all sources; entries of one run from several files stand in one book, ordered by date where given."""
    books: dict[str, Book] = {}
    for path in sources:
        for book in read(path, format_, run):
            known = books.setdefault(book.run, Book(book.run))
            at = len(known.entries)
            known.configs += [(at + n, config) for n, config in book.configs]
            known.entries += [e.model_copy(update={"order": at + i}) for i, e in enumerate(book.entries)]
            known.problems += book.problems
    return list(books.values())


def _imported(book: Book, where: Path) -> dict[str, Any]:
    judged = judge(book)
    return _summary(book, judged, into_ledger(book, where, judged))


def _summary(book: Book, judged: Judged, ledger: Path) -> dict[str, Any]:
    entries = judged.entries
    answers = [j.regime_change for j in judged.judgements]
    problems = [(e.order + 1, p) for e in entries for p in e.problems]
    return {
        "run": book.run,
        "ledger": str(ledger),
        "entries": len(entries),
        "regime_changes": answers.count("yes"),
        "no_change": answers.count("no"),
        "cannot_tell": answers.count("cannot_tell"),
        "unplaced": sum(e.placed_by in ("neighbours", "nothing") for e in entries),
        "problems": [
            *(f"entry {n}: {p}" for n, p in problems),
            *(f"config {i}: {p}" for i, (_, config) in enumerate(book.configs, 1) for p in config.problems),
            *book.problems,
        ],
    }


def _show(done: dict[str, Any]) -> None:
    console.print(f"[bold]{escape(done['run'])}[/]: {done['entries']} entries -> {escape(done['ledger'])}")
    console.print(
        f"  {done['regime_changes']} change the regime, {done['no_change']} do not, "
        f"of {done['cannot_tell']} it cannot be told; {done['unplaced']} give neither step nor restart"
    )
    for problem in done["problems"][:12]:
        console.print(f"  [yellow]odd:[/] {escape(problem)}")
    if len(done["problems"]) > 12:
        console.print(f"  ... and {len(done['problems']) - 12} more (--json lists them)")
    console.print(f"  next: lineage show {escape(done['ledger'])}")
