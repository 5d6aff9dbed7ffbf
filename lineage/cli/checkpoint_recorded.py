"""Where a checkpoint lies, what lies beside it, and which recorded save it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .._rooms import schemas
from ..checkpoints.errors import NoStore
from ..checkpoints.stores import Store, is_url
from ..judge import graph
from ..ledger import hashing, layout, reader, sidecars
from ..ledger.file_check import Here, InStore, Place
from .common import CliError, Exit, root


def place_of(path: str, ledger: Path | None, threads: int, *, again: bool) -> Place:
    """A checkpoint here or in a store. `again`: nothing that was digested before counts. Raises `CliError`."""
    if is_url(path):
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
        store = Store(url)
        if store.kind() is None:
            raise CliError(f"there is nothing at {store.url}. Name a checkpoint's URL.")
    except NoStore as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    return InStore(store.url, store.fs, store.root, threads)


def sidecar_of(place: Place) -> schemas.Sidecar | None:
    """What lies beside a checkpoint. Raises `CliError`."""
    try:
        return place.sidecar()
    except sidecars.SidecarError as e:
        raise CliError(str(e), Exit.DAMAGED) from None


def saves(
    sidecar: schemas.Sidecar | None, path: str, ledger: Path | None
) -> Iterator[tuple[reader.Ledger, graph.Node]]:
    """The saves that a checkpoint may be, each with its ledger: by its uid, or the last one at its path.

    Raises `CliError` where a ledger was named and is none.
    """
    if ledger is not None and not layout.is_ledger(ledger):
        raise CliError(f"{ledger} is no ledger")
    at = path if is_url(path) else str(Path(path).expanduser().absolute())
    for folder in _ledgers(sidecar, ledger):
        book = reader.Ledger(folder)
        nodes = graph.build(book.records).nodes
        if sidecar is not None:
            node = nodes.get(sidecar.checkpoint.uid)
        else:
            node = next((n for n in reversed(list(nodes.values())) if n.checkpoint.path == at), None)
        if node is not None:
            yield book, node


def _ledgers(sidecar: schemas.Sidecar | None, ledger: Path | None) -> list[Path]:
    if ledger is not None:
        return [ledger]
    if sidecar is not None:
        told = [Path(sidecar.ledger)] if sidecar.ledger else []
        return [p for p in [*told, root() / sidecar.run] if layout.is_ledger(p)]
    return list(reader.find(root())) if root().is_dir() else []
