"""Which records a tracker has shown: a plain list beside the ledger, so that `lineage sync` shows the rest."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems answer that know no locks."""


class Busy(Exception):
    """Another process brings this page up to date now."""


class Delivered:
    """The ids of the records that one tracker run has shown."""

    def __init__(self, ledger: Path, alias: schemas.TrackerAlias) -> None:
        name = hashlib.sha256(" ".join(key(alias)).encode()).hexdigest()[:12]
        self.path = ledger / "delivered" / f"{alias.tracker}-{name}.txt"
        self._lock = threading.Lock()
        self._kept: list[str] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only process that brings this page up to date: two that number its tags would meet.

        The lock ends with the process that has it. Raises `Busy`; where the file system knows no locks, nothing is
        kept out.
        """
        layout.make_folder(self.path.parent)
        fd = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, layout.FILE_MODE)
        try:
            self._take(fd)
            yield
        finally:
            os.close(fd)

    def _take(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another `lineage sync` is at work on this page ({self.path.stem})") from None
        except OSError as e:
            if e.errno not in NO_LOCKS:
                raise

    def keep(self, record: str) -> None:
        """Note a record as shown; where the disk takes nothing, hold the note for the next time. Never raises."""
        with self._lock:
            self._kept.append(record)
        try:
            self._write_kept()
        except OSError:
            return  # at worst it is shown once more, which changes nothing

    def _write_kept(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        try:
            self.add("\n".join(kept))
        except OSError:
            with self._lock:
                self._kept = [*kept, *self._kept]
            raise

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
