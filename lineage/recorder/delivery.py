"""Which records a tracker has shown: a plain list beside the ledger, so that `lineage sync` shows the rest."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from .._rooms import schemas
from ..ledger import layout


def key(alias: schemas.TrackerAlias) -> tuple[str, ...]:
    """What tells two pages apart: tracker, place and id, and at W&B the project, in which ids are unique.

    The place of an offline W&B segment is its folder, so each has notes of its own.
    """
    project = (alias.project or "",) if alias.tracker == "wandb" else ()
    return (alias.tracker, alias.uri or "", alias.id, *project)


def file_note(file: Path, name: str) -> str:
    """The note of a published file: its name on the page and its content, which a later report changes."""
    return f"file:{name}:{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"


class Delivered:
    """The ids of the records that one tracker run has shown."""

    def __init__(self, ledger: Path, alias: schemas.TrackerAlias) -> None:
        name = hashlib.sha256(" ".join(key(alias)).encode()).hexdigest()[:12]
        self.path = ledger / "delivered" / f"{alias.tracker}-{name}.txt"
        self._lock = threading.Lock()

    def add(self, record: str) -> None:
        """Note a record as shown. A note lost in a crash means that the record is shown once more."""
        with self._lock:
            layout.make_folder(self.path.parent)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, layout.FILE_MODE)
            with os.fdopen(fd, "a") as f:
                f.write(record + "\n")

    def ids(self) -> set[str]:
        """All records noted as shown."""
        try:
            return set(self.path.read_text().split())
        except FileNotFoundError:
            return set()
