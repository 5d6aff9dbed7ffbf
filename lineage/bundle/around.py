"""What stands beside a bad step: records of the run, events of the node, the tail of this process's logs."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..capture import secrets
from ..judge.events_near import WINDOW
from ..ledger import blobs, layout, scan

MOST_FILES, MOST_BYTES = 64, 32 << 20
"""Journal files, and bytes of them, that a training process reads for one bundle."""
KINDS = (
    "run",
    "segment",
    "config",
    "effective",
    "code",
    "environment",
    "regime",
    "agreement",
    "drift",
    "mitigation",
)
"""Kinds of records that say under which conditions the step ran."""
TAIL = 64 << 10
"""Bytes of each log that are kept."""
MOST_EVENTS = 200


def records(ledger: Path, segment: str, rank: int, node: str) -> tuple[list[schemas.Record], list[str]]:
    """The records of a segment by rank 0, by this rank, and by this node; and the files that were not read.

    A run of thousands of ranks has as many files: not every one of them is read by every rank.
    """
    found: list[schemas.Record] = []
    unread: list[str] = []
    total = 0
    wanted = [
        p for p in sorted((layout.journal_folder(ledger) / segment).glob("*.jsonl")) if _near(p, rank, node)
    ]
    wanted.sort(key=lambda p: (layout.writer_of(p.name) or ("", 0, 0))[1] not in (0, rank))
    for i, path in enumerate(wanted):
        size = path.stat().st_size
        if i >= MOST_FILES or total + size > MOST_BYTES:
            unread.append(path.name)
            continue
        total += size
        found += scan.read_file(path, ledger)[0]
    return sorted(found, key=lambda r: (r.at, r.file, r.seq)), unread


def _near(path: Path, rank: int, node: str) -> bool:
    writer = layout.writer_of(path.name)
    return writer is not None and (writer[1] in (0, rank) or writer[0] in (node, schemas.IMPORTED))


def conditions(found: Iterable[schemas.Record]) -> list[dict[str, Any]]:
    """The newest record of each kind that says how the run was set up; of drifts and mitigations all."""
    kept: dict[str, schemas.Record] = {}
    for r in found:
        if r.kind in KINDS:
            each = r.kind in ("drift", "mitigation", "agreement") or (r.kind == "segment" and r.rank)
            kept[r.id if each else r.kind] = r
    return [
        {
            "id": r.id,
            "kind": r.kind,
            "rank": r.rank,
            "step": r.step,
            "payload": r.payload.model_dump(mode="json", by_alias=True),
        }
        for r in kept.values()
    ]


def diff(ledger: Path, found: Iterable[schemas.Record]) -> tuple[str | None, str | None]:
    """(digest, masked text) of the code's difference from its revision, where there is one."""
    code = next((r.payload for r in reversed(list(found)) if r.kind == "code"), None)
    if code is None or code.diff is None:
        return None, None
    try:
        return code.diff, blobs.get(ledger, code.diff).decode("utf-8", errors="replace")
    except OSError:
        return code.diff, None


def checkpoints(
    found: Iterable[schemas.Record], step: int, parent: schemas.Checkpoint | None
) -> tuple[schemas.BundleCheckpoint | None, schemas.BundleCheckpoint | None]:
    """(the latest before the step, the first at or after it), of this segment or its parent; no incomplete one."""
    newest: dict[str, schemas.Checkpoint] = {}
    paths: dict[str, str] = {}
    for r in found:
        if r.kind == "checkpoint":
            newest[r.payload.uid] = r.payload
        elif r.kind == "checkpoint_mark" and getattr(r.payload, "path", None):
            paths[r.payload.checkpoint] = r.payload.path
    if parent is not None:
        newest.setdefault(parent.uid, parent)
    before = [c for c in newest.values() if c.step < step and c.status != "incomplete"]
    after = [c for c in newest.values() if c.step >= step]
    last = max(before, key=lambda c: (c.step, c.status == "complete"), default=None)
    return _reference(last, paths), _reference(min(after, key=lambda c: c.step, default=None), paths)


def _reference(c: schemas.Checkpoint | None, paths: dict[str, str]) -> schemas.BundleCheckpoint | None:
    if c is None:
        return None
    live = [schemas.ComponentDigest.model_validate(d.model_dump()) for d in c.live]
    path = paths.get(c.uid, c.path)
    return schemas.BundleCheckpoint(uid=c.uid, step=c.step, status=c.status, path=path, live=live)


def events(found: Iterable[schemas.Record], at: Any, window: timedelta = WINDOW) -> list[dict[str, Any]]:
    """Events of machines and software within ten minutes of the alarm, the nearest first. None is a cause by that."""
    near = []
    for r in found:
        if r.kind != "event" or r.payload.when is None or r.payload.zone == "assumed":
            continue
        until = max(r.payload.until or r.payload.when, r.payload.when)
        if r.payload.when - window <= at <= until + window:
            away = (
                0.0
                if r.payload.when <= at <= until
                else min(abs((at - t).total_seconds()) for t in (r.payload.when, until))
            )
            near.append((away, r))
    near.sort(key=lambda item: item[0])
    return [
        {"id": r.id, "seconds_away": away, "payload": r.payload.model_dump(mode="json")}
        for away, r in near[:MOST_EVENTS]
    ]


def logs() -> Iterator[dict[str, Any]]:
    """The last lines of each log file of this process that can be known, with secrets masked.

    Known are the files of Python's log handlers, and standard output and error where they go to a file. Several ranks
    may share such a file.
    """
    seen: set[tuple[int, int]] = set()
    for what, path in _files():
        try:
            info = os.stat(path)
            if not stat.S_ISREG(info.st_mode) or (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            lines, masked = tail(Path(path))
        except OSError:
            continue
        if lines:
            yield {
                "what": what,
                "path": secrets.mask(str(path))[0],
                "size": info.st_size,
                "masked": masked,
                "lines": lines,
            }


def _files() -> Iterator[tuple[str, str]]:
    held = [
        logging.root,
        *(x for x in list(logging.root.manager.loggerDict.values()) if hasattr(x, "handlers")),
    ]
    for logger in held:
        for handler in list(getattr(logger, "handlers", ())):
            name = getattr(handler, "baseFilename", None)
            if isinstance(name, str):
                yield f"logger {getattr(logger, 'name', '?')}", name
    for number, what in ((1, "standard output"), (2, "standard error")):
        link = Path(f"/proc/self/fd/{number}")
        if sys.platform == "linux" and link.exists():
            yield what, os.readlink(link)


def tail(path: Path, size: int = TAIL) -> tuple[list[str], int]:
    """The last lines of a file, masked, and how many secrets were. A line that is cut at its beginning is left out."""
    with path.open("rb") as f:
        end = f.seek(0, os.SEEK_END)
        f.seek(max(0, end - size))
        data = f.read(size)
    text = data.decode("utf-8", errors="replace")
    if end > size:
        text = text.partition("\n")[2]
    masked, count = secrets.mask(text)
    return masked.splitlines(), count
