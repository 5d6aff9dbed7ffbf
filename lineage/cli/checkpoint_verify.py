"""`lineage checkpoint verify`: whether a checkpoint's files are still those that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..ledger import files, hashing
from ..ledger.file_check import Checked, Place, check
from . import checkpoint_state
from .checkpoint_recorded import place_of, saves, sidecar_of
from .common import CliError, Exit, Json, console, emit
from .progress import meter

NAME = "verify"
_SHOWN = 20


def verify(
    path: Annotated[
        str, typer.Argument(help="A checkpoint's folder or file, or its URL (s3://, gs://, memory://).")
    ],
    ledger: Annotated[
        Path | None, typer.Option(help="The run's ledger, where the checkpoint has no lineage.json.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that digest; all cores by default.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Read files again that an interrupted run has read already.")
    ] = False,
    state: Annotated[
        bool,
        typer.Option(
            "--state", help="Hold the tensors in the files against the live state at the save instead."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Digest the files again and name what changed, is missing, or is new.

    With --state it is not asked whether the files are those that were written, but whether they hold the state that was
    live at the save: weights, buffers and moments, tensor by tensor. It reads all of them, with NumPy alone.
    Exit code 0 where all is as recorded, 1 where it is not, 3 for a damaged lineage.json, 4 where nothing is recorded.
    """
    use = threads or hashing.ALL_CORES
    place = place_of(path, ledger, use, again=again)
    if state:
        checkpoint_state.verify(place, path, ledger, threads, as_json=as_json)
    known, source = _recorded(place, path, ledger)
    with meter() as progress:
        task = progress.add_task("digesting", total=None)
        found = check(
            place,
            known,
            begin=lambda total: progress.update(task, total=total),
            tell=lambda done: progress.update(task, advance=done),
        )
    if as_json:
        emit({"checkpoint": place.name, "recorded_in": source, "root": known.root, **_data(found)})
    else:
        _print(place.name, source, found)
    raise typer.Exit(Exit.OK if found.whole else Exit.FOUND)


def _recorded(place: Place, path: str, ledger: Path | None) -> tuple[schemas.Manifest, str]:
    """The manifest that was recorded, and where. A ledger that is named, or that is there, is believed first."""
    sidecar = sidecar_of(place)
    for book, node in saves(sidecar, path, ledger):
        if node.checkpoint.manifest is not None:
            return node.checkpoint.manifest, str(book.path)
    if sidecar is not None and sidecar.checkpoint.manifest is not None:
        manifest = sidecar.checkpoint.manifest
        if files.root_of(manifest.files) != manifest.root:
            raise CliError(
                f"the lineage.json of {path} was changed: its list of files is not its own", Exit.DAMAGED
            )
        return manifest, "lineage.json"
    raise CliError(
        f"no digests of the files of {path} are recorded: it has no lineage.json with them, and no ledger was found "
        "that has. Name the run's ledger: --ledger FOLDER",
        Exit.CANNOT_TELL,
    )


def _data(found: Checked) -> dict[str, object]:
    return {
        "whole": found.whole,
        "equal": found.equal,
        "changed": found.changed,
        "missing": found.missing,
        "new": found.new,
        "unreadable": found.unreadable,
        "bytes": found.bytes,
    }


def _print(name: str, source: str, found: Checked) -> None:
    word = "[green]as recorded[/]" if found.whole else "[bold red]NOT AS RECORDED[/]"
    console.print(f"{word}  {escape(name)}")
    console.print(f"  {found.equal:,} files equal ({found.bytes:,} bytes), recorded in {escape(source)}")
    rows = [("changed", p, text) for p, text in found.changed.items()]
    rows += [("missing", p, "") for p in found.missing]
    rows += [("new", p, "was not recorded") for p in found.new]
    rows += [("unreadable", p, text) for p, text in found.unreadable.items()]
    for word, path, text in rows[:_SHOWN]:
        console.print(f"  [bold]{word}[/] {escape(path)}{f': {escape(text)}' if text else ''}")
    if len(rows) > _SHOWN:
        console.print(f"  and {len(rows) - _SHOWN:,} more (--json lists them)")
