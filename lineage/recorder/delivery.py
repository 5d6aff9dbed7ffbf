"""Which records a tracker has shown: a plain list beside the ledger, so that `lineage sync` shows the rest."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from .._rooms import schemas
from ..ledger import layout


class Delivered:
    """The ids of the records that one tracker run has shown."""

    def __init__(self, ledger: Path, alias: schemas.TrackerAlias) -> None:
        name = hashlib.sha256(f"{alias.tracker} {alias.uri} {alias.id}".encode()).hexdigest()[:12]
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
