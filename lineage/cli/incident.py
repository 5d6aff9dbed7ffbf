"""`lineage incident`: evidence first."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..ledger import evidence
from ..ledger.evidence import EvidenceError
from ..ledger.evidence_files import Progress
from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, console, emit, ending, find
from .default_command import Walks
from .preserving import Item, costs, held_before, plan, preserve_all, used
from .progress import bar, size

app = typer.Typer(
    name="incident",
    cls=Walks,
    help="The first hour: a checklist of what is done and what is next; evidence before anything else.",
)

METHODS: tuple[evidence.Method, ...] = ("auto", "reflink", "copy", "move")
Method = Annotated[
    str,
    typer.Option(
        help="How a checkpoint is kept: auto (shared extents where the file system can, else a copy), reflink, copy, "
        "or move (renamed out of the rotation's reach, which takes no space)."
    ),
]


def method_of(text: str) -> evidence.Method:
    """The method that was asked for. Raises `CliError`."""
    found = next((m for m in METHODS if m == text), None)
    if found is None:
        raise CliError(f"--method takes {', '.join(METHODS)}; not {text!r}")
    return found


@app.callback()
def _group() -> None:
    """Hold the incident's commands."""


@app.command("preserve")
def preserve(
    run: Run = None,
    method: Method = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be kept and what it would take; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep the last good checkpoint, the first bad one and batch, and the rank files, where no rotation reaches them.

    Checkpoints from the first bad step on are marked as quarantined. An interrupted copy is gone on with by the next
    call.
    """
    how = method_of(method)
    subject = find(run)
    about = incident_facts.about(subject)
    if about is None:
        raise CliError(
            "no bad cell is known in this ledger, so it cannot be told which checkpoint is the last good one. "
            "`lineage first-bad` says what was looked at; `lineage incident open` says what is wrong all the same.",
            Exit.CANNOT_TELL,
        )
    segment, bad = about
    items = plan(subject, segment, bad)
    expected = costs(subject, items, how)
    if not as_json:
        _before(items, expected)
    if dry_run:
        if as_json:
            emit({"would_take": {k: c if isinstance(c, str) else vars(c) for k, c in expected.items()}})
        raise ending(Exit.OK, judging.damage(subject), as_json=as_json)
    notes: list[str] = []
    before = held_before(subject.ledger.path)
    with ExitStack() as stack:

        def progress(what: str) -> Progress:
            stack.close()
            return stack.enter_context(bar(what))

        kept, problems = preserve_all(subject, segment, bad, items, progress, method=how, say=notes.append)
    if as_json:
        emit({"preserved": kept, "problems": problems, "notes": notes})
    else:
        _show(subject.ledger.path, kept, problems, notes)
        console.print(
            f"\n{used(kept, before):,} bytes of disk are used by it. It is read-only; rotation does not reach it."
        )
    raise ending(Exit.FOUND if problems else Exit.OK, judging.damage(subject), as_json=as_json)


WAYS = {
    "reflink": "its extents are shared, so it takes no space until the original changes",
    "move": "it is renamed, which takes no space",
    "held": "it is held already",
}


def cost_text(cost: evidence.Cost) -> str:
    """What preserving would take, in words."""
    files = f"{cost.files:,} file{'s' if cost.files != 1 else ''}, {size(cost.bytes)}"
    if cost.way in WAYS:
        return f"{files}: {WAYS[cost.way]}"
    free = "" if cost.free is None else f" of {size(cost.free)} that are free"
    return f"{files}: a copy takes {size(cost.needed)}{free}"


def _before(items: list[Item], expected: dict[str, evidence.Cost | str]) -> None:
    for item in items:
        cost = expected[item.what]
        console.print(f"{escape(item.what)}: {escape(cost if isinstance(cost, str) else cost_text(cost))}")


def kept_text(ledger: Path, p: schemas.Preserved) -> str:
    """One thing that is kept, in words."""
    verified = "verified" if p.verified else "not read back"
    how = {"copy": "copied", "reflink": "extents shared", "moved": "moved"}[p.method]
    place = p.at or str(ledger / p.location)
    files = f"{p.files:,} file{'s' if p.files != 1 else ''}"
    return f"[green]kept[/] {escape(p.what)}: {files}, {p.bytes:,} bytes, {how}, {verified}\n     {escape(place)}"


def _show(ledger: Path, kept: list[schemas.Preserved], problems: list[str], notes: list[str]) -> None:
    for p in kept:
        console.print(kept_text(ledger, p))
    for note in notes:
        console.print(f"[dim]{escape(note)}[/]")
    for problem in problems:
        console.print(f"[bold red]not kept:[/] {escape(problem)}")


__all__ = ["EvidenceError", "app"]
