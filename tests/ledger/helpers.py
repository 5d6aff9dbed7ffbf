"""Journals, ledgers and a disk of 64 KiB, all real."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from uuid6 import uuid7

import schemas as s
from lineage.ledger import scan, seal
from lineage.ledger.journal import Journal

RUN = "run-under-test"


def place(node: str = "node1") -> s.Place:
    """This process on a node."""
    return s.Place(node=node, pid=os.getpid())


def journal(ledger: Path, rank: int = 0, *, segment: str | None = None, **more: Any) -> Journal:
    """A journal of one rank, in a new segment unless one is named."""
    return Journal(ledger, RUN, segment or str(uuid7()), rank, place(), **more)


def note(number: int, size: int = 0) -> s.Coverage:
    """A payload that can be told apart, padded to about `size` bytes."""
    return s.Coverage(recorded=[f"note {number}"], gaps=["x" * size] if size else [])


def segment(uid: str) -> s.Segment:
    """The record with which a training process begins a segment."""
    return s.Segment(uid=uid, place=place())


def sealed(ledger: Path, records: int = 4, rank: int = 0, uid: str | None = None) -> Path:
    """A journal file with a header, a segment, some notes and a seal of all of them; returns its path."""
    uid = uid or str(uuid7())
    j = journal(ledger, rank, segment=uid)
    j.append(segment(uid))
    for n in range(records):
        j.append(note(n))
    j.append(seal.seal(scan.heads(ledger)[0], "close"))
    j.close()
    return j.path


def lines(path: Path) -> list[bytes]:
    """The raw lines of a file, without newlines."""
    return path.read_bytes().split(b"\n")[:-1]


def put_lines(path: Path, raw: list[bytes]) -> None:
    """Write raw lines back."""
    path.write_bytes(b"".join(line + b"\n" for line in raw))


def read_whole(path: Path, ledger: Path) -> list[s.Record]:
    """The records of a file that must be undamaged."""
    found, damage = scan.read_file(path, ledger)
    assert damage == []
    return found


def notes_in(records: list[s.Record]) -> list[str]:
    """What the notes say, in their order."""
    return [r.payload.recorded[0] for r in records if r.kind == "coverage"]


_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def small_disk(at: Path, size: str = "64k") -> Iterator[Path]:
    """A real file system of that size. Skips the test where this process may not mount one."""
    at.mkdir()
    if _LIBC.mount(b"tmpfs", bytes(at), b"tmpfs", 0, f"size={size},mode=0700".encode()) != 0:
        pytest.skip(f"mounting a tmpfs needs CAP_SYS_ADMIN: {os.strerror(ctypes.get_errno())}")
    try:
        yield at
    finally:
        _LIBC.umount2(bytes(at), 2)  # MNT_DETACH


def fill(disk: Path) -> Path:
    """Take all the room that is left; removing the file gives it back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as f:
        while True:
            try:
                f.write(b"x" * 4096)
            except OSError:
                return ballast


def reap(pid: int) -> int:
    """Wait for a child; returns its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(pid: int) -> None:
    """End a process of our own as the kernel's out-of-memory killer does."""
    os.kill(pid, signal.SIGKILL)
