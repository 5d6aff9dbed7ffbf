"""Code and environment, read on threads of their own and written once the ledger is open.

Git and the metadata of packages take time that no training thread has. Rank 0 reads them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ledger import blobs
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

PATIENCE = 10.0
"""Seconds for which a thread is waited for; what it finds later is left out."""


class Surroundings:
    """What the run of this process lives in: code and environment."""

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._threads: list[tuple[str, threading.Thread]] = []
        self._blobs: list[bytes] = []
        self._written = threading.Event()
        self.loaded_files: set[Path] = set()
        """files of the user's code that were loaded when the code was read"""

    def read(self) -> None:
        """Begin to read them. A failure is said once, and the field is left out."""
        for field, read in (("code", self._code), ("environment", self._environment)):
            thread = threading.Thread(
                target=self._run, args=(field, read), name=f"lineage-{field}", daemon=True
            )
            thread.start()
            self._threads.append((field, thread))

    def _run(self, field: str, read: Callable[[], Any]) -> None:
        try:
            setattr(self._rec.now, field, read())
        except Exception as e:
            self._rec.trouble("capture", e, f"the {field} is not recorded")

    def _code(self) -> Any:
        from ..capture import code, modules

        self.loaded_files = modules.of_the_user()  # before it is read: what comes later is looked at again
        return code.capture(blobs=self._keep)

    def _environment(self) -> Any:
        from ..capture import environment

        return environment.capture(world_size=self._rec.world.world_size)

    def _keep(self, data: bytes) -> str:
        """Keep a blob until the ledger is open, then in it."""
        self._blobs.append(data)
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def wait_read(self, timeout: float = PATIENCE) -> None:
        """Wait until they are read, `timeout` seconds for each at most."""
        for _, thread in self._threads:
            thread.join(timeout)

    def write(self, w: Writer) -> None:
        """On the worker thread: write them, with the blobs that they refer to."""
        try:
            for field, thread in self._threads:
                thread.join(PATIENCE)
                found = getattr(self._rec.now, field)
                while self._blobs:
                    blobs.put(w.ledger, self._blobs.pop())
                if found is not None:
                    w.write(found)
        finally:  # where the disk refuses them, nothing waits for them
            self._written.set()

    def wait_written(self, timeout: float) -> bool:
        """Wait until they are on record, as far as they could be read and written; tells whether they are."""
        return self._written.wait(timeout)
