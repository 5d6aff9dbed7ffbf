"""`lineage checkpoint verify`: whether a checkpoint's files are still those that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from .._rooms import schemas
from ..judge import graph
from ..ledger import files, hashing, layout, reader, sidecars
from ..ledger.file_check import Checked, Here, InStore, Place, check
from .common import CliError, Exit, Json, console, emit, errors, root

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
    as_json: Json = False,
) -> None:
    """Digest the files again and name what changed, is missing, or is new.

    Exit code 0 where all is as recorded, 1 where it is not, 3 for a damaged lineage.json, 4 where nothing is recorded.
    """
    use = threads or hashing.ALL_CORES
    place = _place(path, ledger, use, again=again)
    known, source = _recorded(place, path, ledger)
    with Progress(
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as progress:
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


def _place(path: str, ledger: Path | None, threads: int, *, again: bool) -> Place:
    if "://" in path:
        return _in_store(path, threads)
    at = Path(path).expanduser().absolute()
    if not at.exists():
        raise CliError(f"there is no {at}. Name a checkpoint's folder or file.")
    kept = hashing.Kept(
        (ledger or root()) / layout.DIGESTS, f"verify {at}"
    )  # not what was digested at the save
    if again:
        kept.forget()
    return Here(at, kept, threads)


def _in_store(url: str, threads: int) -> Place:
    try:
        from fsspec.core import url_to_fs

        store, found = url_to_fs(url)
        if not store.exists(found):
            raise CliError(f"there is nothing at {url}. Name a checkpoint's URL.")
        return InStore(url, store, found, threads)
    except CliError:
        raise
    except ImportError as e:
        raise CliError(
            f"{url} cannot be read: {e}. pip install 'runlineage[read]'", Exit.CANNOT_TELL
        ) from None
    except Exception as e:  # each store has errors of its own
        raise CliError(f"{url} cannot be read: {type(e).__name__}: {e}", Exit.CANNOT_TELL) from None


def _recorded(place: Place, path: str, ledger: Path | None) -> tuple[schemas.Manifest, str]:
    """The manifest that was recorded, and where. A ledger that is named, or that is there, is believed first."""
    try:
        sidecar = place.sidecar()
    except sidecars.SidecarError as e:
        raise CliError(str(e), Exit.DAMAGED) from None
    uid = sidecar.checkpoint.uid if sidecar else None
    for folder in _ledgers(sidecar, ledger):
        found = _of_ledger(folder, uid, path)
        if found is not None:
            return found, str(folder)
    if ledger is not None and not layout.is_ledger(ledger):
        raise CliError(f"{ledger} is no ledger")
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


def _ledgers(sidecar: schemas.Sidecar | None, ledger: Path | None) -> list[Path]:
    if ledger is not None:
        return [ledger] if layout.is_ledger(ledger) else []
    if sidecar is not None:
        told = [Path(sidecar.ledger)] if sidecar.ledger else []
        return [p for p in [*told, root() / sidecar.run] if layout.is_ledger(p)]
    return list(reader.find(root())) if root().is_dir() else []


def _of_ledger(folder: Path, uid: str | None, path: str) -> schemas.Manifest | None:
    """The manifest of a checkpoint, known by its uid, or by the path to which it was saved last."""
    nodes = graph.build(reader.Ledger(folder).records).nodes
    if uid is not None:
        return nodes[uid].checkpoint.manifest if uid in nodes else None
    at = path if "://" in path else str(Path(path).expanduser().absolute())
    found = [n.checkpoint for n in nodes.values() if n.checkpoint.path == at and n.checkpoint.manifest]
    return found[-1].manifest if found else None


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
