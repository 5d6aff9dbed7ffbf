"""The journal writer: append-only, hash-chained, fsynced, one writer per file.

`append` returns after the line is on the disk. When the disk refuses, the file is cut back to its last
newline, the record waits in memory and is written before the next one; nothing is raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from uuid6 import uuid7

from .._rooms import schemas
from . import layout


@dataclass(frozen=True)
class Draft:
    """A record that has an id and a time, and no place in the chain yet."""

    id: str
    payload: Any
    step: int | None
    at: datetime
    mono: float
    caused_by: tuple[str, ...]
    supersedes: str | None


def line_digest(raw: bytes) -> str:
    """Digest of a raw line without its newline: what the next line's `prev` holds."""
    return "sha256:" + hashlib.sha256(raw).hexdigest()


class Journal:
    """One writer's journal file in a ledger folder.

    Args:
        ledger: the run's ledger folder.
        run: lineage run id.
        segment: segment uid.
        rank: global rank.
        place: node, local rank, device and pid of this process.
        fsync: whether `append` waits for the disk. Switched off only in benchmarks.
        on_trouble: called with (exception, where) once when writing begins to fail.

    A forked child never writes to its parent's file: `append` returns the record and leaves it at that.
    A record that comes after `close` is not lost: it opens a new file.
    """

    def __init__(
        self,
        ledger: Path,
        run: str,
        segment: str,
        rank: int,
        place: schemas.Place,
        *,
        fsync: bool = True,
        previous: Sequence[schemas.Head] = (),
        set_aside: Sequence[str] = (),
        on_trouble: Callable[[Exception, Path], None] = lambda error, where: None,
    ) -> None:
        self.ledger, self.run, self.segment, self.rank, self.place = ledger, run, segment, rank, place
        self._fsync = fsync
        self._on_trouble = on_trouble
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._waiting: deque[Draft] = deque()
        self._fd: int | None = None
        self._start = 0
        self._good = 0
        self._ragged = False
        self._troubled = False
        self._refusal = "unknown"
        self.seq = -1
        self.head: str | None = None
        self.path = self._name()
        self._written: schemas.Envelope | None = None
        header = schemas.JournalHeader(place=place, previous=list(previous), set_aside=list(set_aside))
        self.append(header)

    def _name(self) -> Path:
        self._start = max(time.time_ns() // 1000, self._start + 1)
        name = f"{self.place.node}-{self.rank:05d}-{os.getpid()}-{self._start}.jsonl"
        return layout.journal_folder(self.ledger) / self.segment / name

    def append(
        self,
        payload: Any,
        *,
        step: int | None = None,
        caused_by: Sequence[str] = (),
        supersedes: str | None = None,
    ) -> schemas.Envelope:
        """Write one record and return it when it is durable, or when it waits for the disk.

        A record that still waits comes back with the place in the chain that it would have had.
        """
        draft = self._draft(payload, step, caused_by, supersedes)
        if os.getpid() != self._pid:
            return self._envelope(draft, self.seq + 1, self.head)
        with self._lock:
            self._waiting.append(draft)
            if self.flush() == 0 and self._written is not None:
                return self._written
            return self._envelope(draft, self.seq + len(self._waiting), self.head)

    def _draft(
        self,
        payload: Any,
        step: int | None = None,
        caused_by: Sequence[str] = (),
        supersedes: str | None = None,
    ) -> Draft:
        return Draft(
            id=str(uuid7()),
            payload=payload,
            step=step,
            at=schemas.now(),
            mono=time.monotonic(),
            caused_by=tuple(caused_by),
            supersedes=supersedes,
        )

    def flush(self) -> int:
        """Write what waits; return how many records still wait."""
        if os.getpid() != self._pid:
            return 0
        with self._lock:
            if self._waiting and self._fd is None and self.seq >= 0:
                self.move_to(self.ledger)  # closed before: a closed file is not opened again
            while self._waiting:
                draft = self._waiting[0]
                try:
                    if self._written is None or self._written.id != draft.id:
                        self._write(draft)
                except OSError as e:
                    self._refusal = f"{type(e).__name__}: {e.strerror or e}"
                    if not self._troubled:
                        self._troubled = True
                        self._on_trouble(e, self.path)
                    break
                self._waiting.popleft()
            return len(self._waiting)

    def _write(self, draft: Draft) -> None:
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self._put_back()
        if self._fd is None:
            self._open()
        assert self._fd is not None
        if self._ragged:
            self._cut_back()
        envelope = self._envelope(draft, self.seq + 1, self.head)
        raw = envelope.to_line()
        data = raw + b"\n"
        self._ragged = True  # until the line is whole: an interrupt may come at any point of it
        try:
            done = 0
            while done < len(data):
                done += os.write(self._fd, data[done:])
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            self._cut_back()
            raise
        good, seq, head = self._good + len(data), self.seq + 1, line_digest(raw)
        self._good, self.seq, self.head, self._written, self._ragged = good, seq, head, envelope, False

    def _put_back(self) -> None:
        """Somebody deleted the file under its writer: its lines are still held open, and are written again."""
        assert self._fd is not None
        content = Path(f"/proc/self/fd/{self._fd}").read_bytes()[: self._good]
        self._on_trouble(FileNotFoundError(f"{self.path} was deleted; it is written again"), self.path)
        os.close(self._fd)
        self._fd = None
        self._open()
        fd = self._fd
        assert fd is not None
        done = 0
        while done < len(content):
            done += os.write(fd, content[done:])
        os.fdatasync(fd)

    def _cut_back(self) -> None:
        """Cut the file back to its last newline. Where that fails too, it is tried before the next line."""
        assert self._fd is not None
        os.ftruncate(self._fd, self._good)
        os.lseek(self._fd, self._good, os.SEEK_SET)
        self._ragged = False

    def _envelope(self, draft: Draft, seq: int, prev: str | None) -> schemas.Envelope:
        """Put a draft in its envelope."""
        return schemas.Envelope(
            id=draft.id,
            run=self.run,
            segment=self.segment,
            rank=self.rank,
            step=draft.step,
            at=draft.at,
            mono=draft.mono,
            seq=seq,
            prev=prev,
            payload=draft.payload,
            caused_by=list(draft.caused_by),
            supersedes=draft.supersedes,
        )

    def _open(self) -> None:
        folder = layout.make_folder(self.path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while self._fd is None:
            try:
                self._fd = os.open(self.path, flags, layout.FILE_MODE)
            except FileExistsError:  # another's file is never touched, even where the clock stood still
                self.path = self._name()
        layout.hold(self._fd)
        if self._fsync:
            layout.fsync_folder(folder)
            layout.fsync_folder(folder.parent)

    def move_to(self, ledger: Path) -> None:
        """Go on in another ledger folder, from a new file whose first line is this journal's header.

        For a folder that cannot be written. The records that wait are written there, after one (LIN-J012)
        that says where the earlier ones are.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._close_file()
            self._good, self._troubled = 0, False
            opening = [self._waiting.popleft()] if self.seq < 0 else [self._continued()]
            if ledger != self.ledger:
                opening.append(self._draft(self._moved()))
            self._waiting.extendleft(reversed(opening))
            self.seq, self.head, self.ledger = -1, None, ledger
            self.path = self._name()
            self.flush()

    def _continued(self) -> Draft:
        head = schemas.Head(file=self.file, seq=self.seq, digest=self.head or "")
        return self._draft(schemas.JournalHeader(place=self.place, previous=[head]))

    def _moved(self) -> schemas.Degraded:
        return schemas.Degraded(
            code="LIN-J012",
            part="journal",
            error=self._refusal,
            consequence=f"records of {self.file} before this one are in {self.ledger}, where it took them",
        )

    @property
    def file(self) -> str:
        """The file's path relative to the journal folder."""
        return f"{self.segment}/{self.path.name}"

    def waiting(self) -> int:
        """How many records wait for the disk."""
        return len(self._waiting)

    def close(self) -> int:
        """Write what waits and close the file; return how many records could not be written."""
        if os.getpid() != self._pid:
            return 0
        with self._lock:
            left = self.flush()
            self._close_file()
            return left

    def _close_file(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):  # all that was acknowledged is on the disk already
                os.close(self._fd)
        self._fd, self._ragged = None, False
