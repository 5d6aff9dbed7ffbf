"""What the ledgers of this machine know: which of them holds a tracker's run, or a checkpoint that was read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from .._rooms import schemas
from ..judge import graph
from ..ledger import files, reader, scan

MOST = 500
"""Ledgers that are searched, those written to last first."""
LARGEST = 8 << 30
"""Bytes of a checkpoint that is digested to recognise it; a larger one is recognised by its place and sizes."""


@dataclass(frozen=True)
class Found:
    """A checkpoint that a ledger knows, and what it was recognised by."""

    ledger: reader.Ledger
    node: graph.Node
    evidence: Literal["content", "path"]


def by_alias(root: Path, alias: schemas.TrackerAlias) -> reader.Ledger | None:
    """The newest ledger that names this tracker run among its aliases.

    An offline run of W&B is another folder each time: there id and project decide.
    """
    for path in _ledgers(root):
        if not _mentions(path, json.dumps(alias.id, ensure_ascii=False).encode()):
            continue
        ledger = reader.Ledger(path)
        for r in ledger.of("run"):
            if any(_same(alias, known) for known in r.payload.aliases):
                return ledger
    return None


def _same(a: schemas.TrackerAlias, b: schemas.TrackerAlias) -> bool:
    if (a.tracker, a.id) != (b.tracker, b.id):
        return False
    if a.tracker == "mlflow":
        return a.uri == b.uri
    one, other = ((p or "").rpartition("/")[2] for p in (a.project, b.project))
    return one == other


def checkpoint(
    root: Path, path: Path, *, before: datetime, size: int | None = None, content: bool = True
) -> Found | None:
    """The checkpoint to which a file or folder that was read belongs: by its content, else by its place.

    `before` is the time of the call, `size` the bytes of the file then. `content=False` leaves the files unread:
    further ranks read what rank 0 has recognised. None where no ledger knows it, or where the place is known and
    held another content than was recorded.
    """
    digest = _digest(path) if content else None
    places = (str(path), str(path.parent))
    elsewhere: Found | None = None
    if digest is not None:
        for ledger in _ledgers(root):
            if _mentions(ledger, digest.encode()):
                found = _holding(reader.Ledger(ledger), digest, places)
                if found is not None and found.node.checkpoint.path in places:
                    return found
                elsewhere = elsewhere or found
    if elsewhere is not None:
        return elsewhere  # a copy, or renamed since
    for place in (path, path.parent):
        needle = json.dumps(str(place), ensure_ascii=False).encode()
        for ledger in _ledgers(root):
            if _mentions(ledger, needle):
                known = _at(reader.Ledger(ledger), place, before, digest, size if place == path else None)
                if known is not None:
                    return known
    return None


def _digest(path: Path) -> str | None:
    """The digest of the file, or of the first file of the folder."""
    try:
        listed = files.listing(path)
        if not listed or listed[0].stat().st_size > LARGEST:
            return None
        return files.file_digest(listed[0])
    except OSError:
        return None


def _holding(ledger: reader.Ledger, digest: str, places: tuple[str, ...]) -> Found | None:
    """The newest checkpoint with a file of this digest, one at the same place before others."""
    found = [
        n
        for n in graph.build(ledger.records).nodes.values()
        if n.checkpoint.manifest and any(f.digest == digest for f in n.checkpoint.manifest.files)
    ]
    best = max(found, key=lambda n: (n.checkpoint.path in places, n.uid), default=None)
    return Found(ledger, best, "content") if best else None


def _at(
    ledger: reader.Ledger, place: Path, before: datetime, digest: str | None, size: int | None
) -> Found | None:
    """The newest checkpoint saved at a place before then, where nothing shows that it held another content."""
    times = {r.payload.uid: r.at for r in reversed(ledger.of("checkpoint"))}
    found = [
        n
        for n in graph.build(ledger.records).nodes.values()
        if n.checkpoint.path == str(place) and times[n.uid] <= before
    ]
    if not found:
        return None
    newest = max(found, key=lambda n: n.uid)
    manifest = newest.checkpoint.manifest
    if manifest is not None and (digest is not None or not _as_big(manifest, size)):
        return None
    return Found(ledger, newest, "path")


def _as_big(manifest: schemas.Manifest, size: int | None) -> bool:
    """Whether a single file had the size that was recorded; of folders that is not asked."""
    return size is None or len(manifest.files) != 1 or manifest.files[0].size == size


def _ledgers(root: Path) -> Iterator[Path]:
    yield from reader.find(root)[:MOST]


def _mentions(ledger: Path, needle: bytes) -> bool:
    """Whether a text stands in the journal: a look at the raw bytes, before anything is parsed."""
    for file in scan.journal_files(ledger):
        try:
            if needle in file.read_bytes():
                return True
        except OSError:
            continue
    return False
