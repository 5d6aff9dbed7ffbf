"""`lineage events`: what happened to machines and software around a run, beside its steps."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..imports import ImportTrouble
from ..imports.events import FORMATS, Done, Told, into_ledger, read, times
from ..imports.events.draft import Found
from ..judge.events_clock import clock_doubt
from ..judge.events_run import Placed
from ..ledger import events as ledger_events
from ..ledger.reader import Ledger
from ..report import events as words
from .common import CliError, Exit, Json, Run, Subject, console, damage, emit, ending, find

app = typer.Typer(
    name="events",
    help="Errors of machines, links and software beside a run's steps. Same time, and no cause.",
    no_args_is_help=True,
)

Sources = Annotated[
    list[Path],
    typer.Argument(
        help="Kernel logs, nvidia-smi, DCGM, flight-recorder dumps, Slurm, a table (CSV, JSON); told apart by content."
    ),
]


@app.callback()
def _group() -> None:
    """Hold the commands of events."""


@app.command("import")
def import_(
    sources: Sources,
    into: Annotated[
        str | None,
        typer.Option(
            "--into", help="The run: ledger folder, id or name; the latest by default.", show_default=False
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "auto",
    node: Annotated[
        str | None,
        typer.Option(help="Host name of the machine, where the files do not name it.", show_default=False),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(help="Zone of times that have none: Europe/Paris, +02:00.", show_default=False),
    ] = None,
    clock_offset: Annotated[
        str | None,
        typer.Option(help="Add to the files' times to get the run's clock: -2h, 90s, 0.", show_default=False),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="When a file without times was taken: 2026-11-30T02:51:27Z.", show_default=False),
    ] = None,
    booted: Annotated[
        str | None,
        typer.Option(help="When the machine booted, for dmesg's seconds (`uptime -s`).", show_default=False),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="field=column of a table; repeatable.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read events into a run's ledger; what it has already is not written twice."""
    if format_ not in FORMATS:
        raise CliError(f"--format {format_} is none of {', '.join(FORMATS)}")
    told, given = _told(node, zone, clock_offset, at, booted), _mapped(columns or [])
    subject = find(into)
    found, refused = _read(sources, format_, given)
    if not found:
        raise CliError("; ".join(refused))
    try:
        done = into_ledger(subject.ledger, found, told)
    except ImportTrouble as e:
        raise CliError(str(e)) from None
    after = ledger_events.read(Ledger(subject.ledger.path))
    placed = {p.event.key: p for p in after.placed}
    for d in done:
        doubt = clock_doubt([placed[k] for k in d.keys if k in placed], after.run.lives)
        d.problems += [doubt] if doubt else []
    if as_json:
        emit({"ledger": subject.ledger.path, "files": [_plain(d, placed) for d in done], "refused": refused})
    else:
        _report(subject, done, placed, refused)
    odd = any(p.startswith("LIN-") for d in done for p in d.problems)
    raise typer.Exit(Exit.FOUND if refused or odd else Exit.OK)


@app.command("show")
def show(
    run: Run = None,
    every: Annotated[bool, typer.Option("--all", help="Notes too, and no limit.")] = False,
    as_json: Json = False,
) -> None:
    """List a run's events in order of time, each with the steps that it lies between."""
    subject = find(run)
    placed = ledger_events.read(subject.ledger).placed
    if as_json:
        emit([plain(p) for p in placed])
    else:
        _show(placed, every)
        for line in ledger_events.watch(subject.ledger):
            console.print(f"[dim]{escape(line)}[/]")
    raise ending(Exit.OK, damage(subject.ledger), as_json=as_json)


def _told(node: str | None, zone: str | None, offset: str | None, at: str | None, booted: str | None) -> Told:
    try:
        where = times.zone(zone) if zone else None
        shift = times.duration(offset) if offset is not None else None
    except ValueError as e:
        raise CliError(str(e)) from None
    return Told(node, where, shift, _moment("--at", at, where), _moment("--booted", booted, where))


def _moment(option: str, text: str | None, zone: tzinfo | None) -> datetime | None:
    if text is None:
        return None
    found = times.parse(text)
    if found.at is None or not found.year:
        raise CliError(f"{option} {text} is no time; write 2026-11-30T02:51:27Z")
    if found.at.tzinfo is None and zone is None:
        raise CliError(f"{option} {text} has no zone; write 2026-11-30T02:51:27Z, or give --zone")
    return (found.at if found.at.tzinfo else found.at.replace(tzinfo=zone)).astimezone(UTC)


def _mapped(columns: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for told in columns:
        field, equals, column = told.partition("=")
        if not equals or not column:
            raise CliError(f"--map {told}: write field=column, such as node=hostname")
        out[field] = column
    return out


def _read(
    sources: list[Path], format_: str, given: dict[str, str]
) -> tuple[list[tuple[Path, Found]], list[str]]:
    found: list[tuple[Path, Found]] = []
    refused: list[str] = []
    for path in sources:
        try:
            found.append((path, read(path, format_, given)))
        except ImportTrouble as e:
            refused.append(str(e))
    return found, refused


def _report(subject: Subject, done: list[Done], placed: dict[str, Placed], refused: list[str]) -> None:
    for d in done:
        more = f", {d.corrected} corrected" if d.corrected else ""
        console.print(
            f"[bold]{escape(d.file)}[/] ({d.format}): {_units(d.read, d.unit)} read, {d.events:,} events, {d.new:,} new"
            f"{more}, {d.known:,} there already"
        )
        here = [placed[k] for k in d.keys if k in placed]
        outside = [p for p in here if p.segment is None]
        console.print(f"  {len(here) - len(outside):,} placed in a segment, {len(outside):,} in none")
        for why, n in Counter(p.why or "" for p in outside).most_common(3):
            console.print(f"  [yellow]LIN-E001:[/] {n:,} in no segment: {escape(why)}")
        for problem in d.problems[:12]:
            console.print(f"  [yellow]odd:[/] {escape(problem)}")
        if len(d.problems) > 12:
            console.print(f"  ... and {len(d.problems) - 12} more (--json lists them)")
    for text in refused:
        console.print(f"[bold red]not read:[/] {escape(text)}")
    console.print(f"next: [bold]lineage events show {escape(str(subject.ledger.path))}[/]")


def _units(n: int, unit: str) -> str:
    many = f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"
    return f"{n:,} {unit if n == 1 else many}"


def _plain(d: Done, placed: dict[str, Placed]) -> dict[str, Any]:
    here = [placed[k] for k in d.keys if k in placed]
    told = {k: v for k, v in d.__dict__.items() if k != "keys"}
    return {
        **told,
        "placed": sum(p.segment is not None for p in here),
        "in_no_segment": [plain(p) for p in here if p.why],
    }


def plain(p: Placed) -> dict[str, Any]:
    """An event with its place, as plain data. It says when and where, and no more."""
    return {
        "segment": p.number,
        "ranks": list(p.ranks),
        "placed_by": p.by or None,
        "after_step": p.after,
        "before_step": p.before,
        "in_no_segment": p.why,
        "not_sure": list(p.notes),
        "event": p.event,
    }


MOST_SHOWN = 60


def _show(placed: Any, every: bool) -> None:
    if not placed:
        console.print("no event is on record. [bold]lineage events import FILE... --into RUN[/] reads some")
        return
    console.print(f"{words.counted(placed)}. {words.NO_CAUSE}\n")
    chosen = list(placed) if every else [p for p in placed if p.event.severity != "note"][:MOST_SHOWN]
    for p in chosen:
        _print(p)
    if chosen:
        console.print()
    if len(chosen) < len(placed):
        console.print(f"{len(placed) - len(chosen):,} more, notes among them: --all lists them")
    for line in words.uncertain(placed):
        console.print(f"[cyan]not sure:[/] {escape(line)}")


def _print(p: Placed) -> None:
    """One event: when, what and where on the first line, its words, and what the code stands for, below."""
    style = {"fault": "bold red", "warning": "yellow", "note": "dim"}.get(p.event.severity, "bold red")
    place = words.place_words(p)
    steps = f", {p.steps()}" if p.steps() else ""
    where = f"{escape(place + steps)}  [dim]{escape(words.where(p))}[/]"
    console.print(f"{words.when(p)}  [{style}]{escape(words.what(p))}[/]  {where}")
    times_ = f" ({p.event.count:,} times)" if p.event.count > 1 else ""
    console.print(f"    {escape(p.event.text[:400] + times_)}")
    for label, told in (
        ("stands for", p.event.meaning),
        ("in no segment", p.why),
        ("odd", "; ".join(p.event.problems)),
    ):
        if told:
            console.print(f"    [dim]{label}: {escape(told)}[/]")


def tell(subject: Subject) -> None:
    """The events of a run in a few lines, for `lineage show`; nothing where there is none."""
    placed = ledger_events.read(subject.ledger).placed
    if not placed:
        return
    console.print(f"\nevents beside the run: {words.counted(placed)}. {words.NO_CAUSE}")
    worst = [p for s in ("fault", "warning") for p in placed if p.event.severity == s]
    for p in worst[:5]:
        where = ", ".join(x for x in (words.place_words(p), p.steps()) if x)
        console.print(
            f"  {words.when(p)}  {escape(words.what(p))}: {escape(words.text(p, 100))} [dim]({escape(where)})[/]"
        )
    if len(worst) > 5 or len(worst) < len(placed):
        console.print(f"  all: [bold]lineage events show --all {escape(str(subject.ledger.path))}[/]")


def near(subject: Subject, segment: str, rank: int, step: int) -> list[str]:
    """Events at the time of a bad step, in words, apart from what is known of it. Empty where there is none."""
    found, unsure = ledger_events.beside(subject.ledger, segment, rank, step)
    out = [n.text() for n in found[:8]]
    if len(found) > 8:
        out.append(f"and {len(found) - 8} more: lineage events show {subject.ledger.path}")
    if unsure:
        out.append(f"{unsure} events may be of that time: their zone is not stated")
    return out
