"""`lineage pull`: a run's ledger from the tracker alone, on whichever machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..pull.pulling import pull
from ..pull.rebuild import AnchorsDiffer, Done
from ..pull.source import PullTrouble, parse
from .common import CliError, Exit, Json, console, damage_rows, emit, root

NAME = "pull"

Sources = Annotated[
    list[str],
    typer.Argument(
        help="The run's page: mlflow://TRACKING-URI/RUN-ID, wandb://ENTITY/PROJECT/RUN, the address of either page, a "
        "W&B run folder (offline-run-*), or a folder into which the run's lineage/ was downloaded. Several pages of "
        "one run make one ledger.",
        show_default=False,
    ),
]
Anchor = Annotated[
    list[str] | None,
    typer.Option(help="A root read from outside, for sources that have none, such as a download."),
]
Values = Annotated[
    bool, typer.Option("--values/--no-values", help="Whether to read what the training code logged, too.")
]


def command(
    sources: Sources,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the ledger; else the run's id in the folder of ledgers.", show_default=False
        ),
    ] = None,
    anchor: Anchor = None,
    values: Values = True,
    as_json: Json = False,
) -> None:
    """Rebuild a run's ledger from what its tracker has, and hold it against the anchors there.

    A run that never had the layer is read as far as its page goes. Nothing is written where the pull breaks off; a
    ledger that was pulled before and fits is never replaced by one that does not. Exit code 3 where what is there now
    does not fit its anchors, 4 where the pages lack lines that a seal names.
    """
    done = pulled(sources, root(), out=out, anchors=anchor or (), values=values)
    emit(_data(done)) if as_json else _show(done)
    raise typer.Exit(_code(done))


def pulled(
    sources: Sequence[str],
    where: Path,
    *,
    out: Path | None = None,
    anchors: Sequence[str] = (),
    values: bool = True,
) -> Done:
    """Pull, with errors for a person."""
    target = out.expanduser().absolute() if out is not None else None
    try:
        return pull([parse(s) for s in sources], where, out=target, anchors=anchors, with_values=values)
    except AnchorsDiffer as e:
        raise CliError(str(e), Exit.DAMAGED) from None
    except PullTrouble as e:
        raise CliError(str(e), Exit.CANNOT_TELL if e.away else Exit.USAGE) from None
    except ImportError as e:
        raise CliError(str(e)) from None
    except OSError as e:
        raise CliError(f"what was pulled cannot be written: {e}. Nothing is left half.") from None


def sound(done: Done) -> bool:
    """Whether what was pulled is whole, and fits its anchors."""
    return done.verification.whole and not done.conflicts


def _code(done: Done) -> Exit:
    if not sound(done):
        return Exit.DAMAGED
    return Exit.CANNOT_TELL if done.verification.unread else Exit.OK


def _data(done: Done) -> dict[str, Any]:
    v = done.verification
    return {
        "run": done.run,
        "ledger": done.ledger,
        "layer": done.layer,
        "changed": done.changed,
        "whole": sound(done),
        "unread": v.unread,
        "pages": [
            {"tracker": p.tracker, "id": p.id, "source": p.source, "anchors": [a.root for a in p.anchors()]}
            for p in done.pages
        ],
        "records": v.records,
        "seals": v.seals,
        "values": done.values,
        "damage": damage_rows(v.damage),
        "conflicts": done.conflicts,
        "notes": [*done.notes, *v.notes],
    }


def _show(done: Done) -> None:
    v = done.verification
    code = _code(done)
    words = {Exit.OK: "[green]whole[/]", Exit.CANNOT_TELL: "[yellow]not all there[/]"}
    word = words.get(code, "[bold red]DOES NOT FIT[/]")
    state = "" if done.changed else "; nothing new since the last pull"
    console.print(f"{word}  [bold]{escape(done.run)}[/] -> {escape(str(done.ledger))}{state}")
    for page in done.pages:
        roots = ", ".join(a.root for a in page.anchors()) or "no anchor on it"
        console.print(f"  {page.tracker} {escape(page.source)}: {escape(roots)}")
    kind = "" if done.layer else "; the layer was not there, so these are what the page tells"
    console.print(f"  {v.records:,} records, {v.seals:,} seals, {done.values:,} logged values{kind}")
    for d in v.damage:
        line = f" line {d.line}" if d.line else ""
        console.print(f"  [bold red]{d.code}[/] {d.title}\n    {escape(d.file)}{line}: {escape(d.text)}")
    for text in done.conflicts:
        console.print(f"  [bold red]contradiction:[/] {escape(text)}")
    for note in [*done.notes, *v.notes]:
        console.print(f"  [dim]note: {escape(note)}[/]")
    ledger = escape(str(done.ledger))
    console.print(f"  next: lineage audit {ledger}, lineage show {ledger}")
