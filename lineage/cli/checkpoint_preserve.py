"""`lineage checkpoint preserve`, `hold` and `release`: what no rotation may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import graph as graph_
from ..ledger import evidence, evidence_store, hashing, layout, reader, sidecars
from ..ledger.file_check import InStore
from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder.protection import Protection
from ..recorder.quarantine import beside
from .common import CliError, Exit, Json, Subject, console, emit, root, step_text
from .incident import Method, cost_text, kept_text, method_of
from .preserving import held_before, open_journal, other_than_saved, record, used
from .progress import bar

Checkpoint = Annotated[
    str, typer.Argument(help="A checkpoint's folder or file, or its URL (s3://, gs://, memory://).")
]
Ledger = Annotated[
    Path | None,
    typer.Option(
        help="The run's ledger, where neither lineage.json nor the place tells it.", show_default=False
    ),
]
Why = Annotated[str | None, typer.Option(help="The reason, which goes on record.", show_default=False)]


@dataclass(frozen=True)
class Found:
    """A checkpoint that was named: where it is, its ledger, and its node there if the ledger knows it."""

    source: Path | str
    subject: Subject
    node: graph_.Node | None


def preserve(
    path: Checkpoint,
    method: Method = "auto",
    to: Annotated[
        str | None,
        typer.Option(
            help="A folder or URL for the copy, instead of the ledger's evidence store.", show_default=False
        ),
    ] = None,
    why: Why = None,
    ledger: Ledger = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep a checkpoint where neither rotation nor overwriting reaches it: verified, read-only, on record.

    An interrupted copy is gone on with by the next call. Content that is held already is verified, not copied again.
    Exit code 1 where it is not kept, and where the files are not those of the save: they are kept as they are then.
    """
    how = method_of(method)
    found = find(path, ledger)
    folder = found.subject.ledger.path
    notes: list[str] = []
    try:
        known = found.node.checkpoint.manifest if found.node else None
        expected = evidence.cost(folder, found.source, how, to=to, known=known)
        before = held_before(folder)
        if not as_json:
            console.print(escape(cost_text(expected)))
        if dry_run:
            if as_json:
                emit({"would_take": vars(expected)})
            return
        with bar("preserving") as progress:
            kept = evidence.preserve(
                folder,
                found.source,
                "checkpoint",
                method=how,
                to=to,
                threads=hashing.ALL_CORES,
                progress=progress,
                say=notes.append,
            )
    except evidence.EvidenceError as e:
        raise CliError(f"not kept: {e}", Exit.FOUND) from None
    except KeyboardInterrupt:
        text = "interrupted: what is copied so far stays, and the same command goes on"
        raise CliError(text, Exit.FOUND) from None
    wrong = _write(found, kept, why)
    if as_json:
        emit({"preserved": kept, "notes": notes, "problems": wrong})
    else:
        console.print(kept_text(folder, kept))
        console.print(f"     {used([kept], before):,} bytes of disk are used by it")
        for note in notes:
            console.print(f"[dim]{escape(note)}[/]")
        for text in wrong:
            console.print(f"[bold red]{escape(text)}[/]")
        if found.node is None:
            console.print(
                "[yellow]no save to this place is on record, so no checkpoint is marked as preserved[/]"
            )
    raise typer.Exit(Exit.FOUND if wrong else Exit.OK)


def _write(found: Found, kept: schemas.Preserved, why: str | None) -> list[str]:
    """Put it on record. Returns what is not as it was recorded at the save."""
    subject, node = found.subject, found.node
    journal = open_journal(subject, node.segment if node else subject.tip)
    record(journal, kept, node.uid if node else None, why)
    journal.append(seal(heads(subject.ledger.path)[0], "checkpoint"))
    journal.close()
    known = node.checkpoint.manifest if node else None
    return other_than_saved(subject.ledger.path, kept, known) if known else []


def hold(path: Checkpoint, why: Why = None, ledger: Ledger = None, as_json: Json = False) -> None:
    """Keep a checkpoint from the rotation of the integrations, in its place, until it is released. Copies nothing."""
    _mark(path, ledger, "held", why, as_json=as_json)


def release(path: Checkpoint, why: Why = None, ledger: Ledger = None, as_json: Json = False) -> None:
    """Take back `hold`, and what `preserve` keeps from the rotation. Evidence that is stored stays."""
    _mark(path, ledger, "released", why, as_json=as_json)


def _mark(path: str, ledger: Path | None, mark: Any, why: str | None, *, as_json: bool) -> None:
    if not why:
        raise CliError(f"a reason is needed, which goes on record: --why '...' (nothing was {mark})")
    found = find(path, ledger)
    if found.node is None:
        raise CliError(f"no save to {path} is on record in {found.subject.ledger.path}", Exit.CANNOT_TELL)
    fact = schemas.CheckpointMark(checkpoint=found.node.uid, mark=mark, why=why, by="person")
    journal = open_journal(found.subject, found.node.segment)
    journal.append(fact)
    journal.close()
    beside(Path(found.source), fact) if isinstance(found.source, Path) else None
    if as_json:
        emit({"mark": fact})
    else:
        step = step_text(found.node.checkpoint.step)
        console.print(f"{mark}: the checkpoint of step {step} ({found.node.uid})")
        if mark == "released" and (why_still := Protection(found.subject.ledger.path).holds(found.source)):
            console.print(f"rotation still leaves it: {escape(why_still)}")


def find(path: str, ledger: Path | None) -> Found:
    """The checkpoint that is meant, and its ledger. Raises `CliError`."""
    source = evidence_store.placed(path)
    source = source.expanduser().absolute() if isinstance(source, Path) else source
    if isinstance(source, Path) and not source.exists():
        raise CliError(f"there is no {source}. Name a checkpoint's folder or file.")
    told = _sidecar(source)
    for folder in _ledgers(told, ledger):
        subject = Subject(reader.Ledger(folder))
        node = _node(subject, told, str(source))
        if node is not None or ledger is not None:
            return Found(source, subject, node)
    if ledger is not None:
        raise CliError(f"{ledger} is no ledger")
    raise CliError(
        f"no ledger in {root()} tells of a save to {path}, and it has no lineage.json that leads to one. Name the "
        "run's ledger, where the evidence goes: --ledger FOLDER",
        Exit.CANNOT_TELL,
    )


def _sidecar(source: Path | str) -> schemas.Sidecar | None:
    try:
        if isinstance(source, Path):
            return sidecars.read(source)
        store = evidence_store.open_store(source)
        with store.said("read"):
            there = store.fs.exists(store.root)
        if not there:
            raise CliError(f"there is nothing at {source}. Name a checkpoint's URL.")
        with store.said("read"):
            return InStore(source, store.fs, store.root).sidecar()
    except sidecars.SidecarError:
        return None  # the checkpoint itself can be kept all the same
    except evidence.EvidenceError as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None


def _ledgers(told: schemas.Sidecar | None, ledger: Path | None) -> list[Path]:
    if ledger is not None:
        return [ledger] if layout.is_ledger(ledger) else []
    named = [Path(told.ledger)] if told and told.ledger else []
    named += [root() / told.run] if told else []
    here = [p for p in named if layout.is_ledger(p)]
    return here or (list(reader.find(root())) if root().is_dir() else [])


def _node(subject: Subject, told: schemas.Sidecar | None, path: str) -> graph_.Node | None:
    nodes = subject.graph.nodes
    if told is not None:
        return nodes.get(told.checkpoint.uid)
    found = [n for n in nodes.values() if n.checkpoint.path == path]
    return found[-1] if found else None
