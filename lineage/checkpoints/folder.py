"""The files of a checkpoint, here or in a store, and reading pieces of them: never all of a big file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

from .errors import Damaged, Refused, Unreadable
from .sources import Remote, Source
from .stores import Store

MOST_JSON = 256 << 20
MOST_PICKLE = 1 << 30
"""Bytes of text or pickle that describe tensors; what is larger describes none."""
_POINTER = b"version https://git-lfs.github.com/spec/"
_MOST_AHEAD = 64 << 20
"""Bytes that are fetched from a store before they are asked for, and held."""

_RECENT = 16
"""Files in a store of which some stretches are kept after they were closed."""


@dataclass(frozen=True)
class Entry:
    """A file as the folder lists it."""

    name: str
    """relative to the checkpoint, with forward slashes"""
    size: int
    mtime: int
    """nanoseconds; 0 in a store, where it is when the file was copied there"""
    place: str
    """the path that is opened"""


@dataclass
class Folder:
    """A checkpoint folder, or the folder of one file (then only that file is listed)."""

    root: Path
    """the folder; of a store its path there, of which only the last part counts"""
    only: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """name -> why it is not looked into"""
    store: Store | None = None
    """where the bytes come from, if not from this machine's files"""
    opened: int = 0
    """files that were opened so far"""
    bytes_read: int = 0
    patience: int = MOST_PICKLE
    """bytes of one pickle that the caller has time for: they are read by Python, see docs/checkpoints.md"""
    every: bool = False
    """whether each of very many shards is taken apart, not some of them"""
    taken: dict[str, Any] = field(default_factory=dict)
    """name -> the file taken apart, where several readers ask for it"""
    _ahead: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    _recent: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @cached_property
    def _by_folder(self) -> dict[str, list[str]]:
        """Folder directly in this one -> the files below it at any depth; "" -> those directly in this one."""
        out: dict[str, list[str]] = {"": []}
        for name in self.entries:
            out.setdefault(name.partition("/")[0] if "/" in name else "", []).append(name)
        return out

    def names(self, under: str = "") -> list[str]:
        """The files directly in the folder, or directly in a folder of it; sorted."""
        prefix = under + "/" if under else ""
        held = self._by_folder.get(under.partition("/")[0], ())
        return sorted(n for n in held if n.startswith(prefix) and "/" not in n[len(prefix) :] and n != prefix)

    def folders(self) -> list[str]:
        """The folders directly in it that hold files at any depth; sorted."""
        return sorted(filter(None, self._by_folder))

    def has(self, name: str) -> bool:
        """Whether a file of that name is there."""
        return name in self.entries

    def named_inside(self, name: object) -> str:
        """A name that the checkpoint gives, when it stays in the folder. Raises `Refused`."""
        text = str(name)
        parts = text.split("/")
        bad = not text or text.startswith("/") or "\\" in text or "\0" in text or ":" in parts[0]
        if bad or ".." in parts or not isinstance(name, str):
            raise Refused(
                f"it names {text[:120]!r}, which leads out of the checkpoint; nothing there was opened"
            )
        return "/".join(p for p in parts if p not in ("", "."))

    def sub(self, under: str) -> Folder:
        """A folder in it, as a checkpoint of its own; it counts what it reads for itself."""
        prefix = under + "/"
        entries = {}
        for name in self._by_folder.get(under.partition("/")[0], ()):
            if name.startswith(prefix):
                e = self.entries[name]
                entries[name[len(prefix) :]] = Entry(name[len(prefix) :], e.size, e.mtime, e.place)
        made = Folder(self.root / under, None, entries, store=self.store, patience=self.patience)
        made.every = self.every
        return made

    def read(self, name: str, start: int = 0, length: int | None = None, *, most: int = MOST_PICKLE) -> bytes:
        """Bytes of a file. Raises `Unreadable`, or `Refused` where it is larger than `most`."""
        with self.open(name) as f:
            size = f.size - start if length is None else min(length, f.size - start)
            if size > most:
                raise Refused(
                    f"{name} has {size:,} bytes where a description is due; more than {most:,} are not read"
                )
            f.seek(start)
            return f.read(max(size, 0))

    def json(self, name: str) -> Any:
        """A JSON file. Raises `Unreadable`, `Damaged`."""
        return parse_json(self.read(name, most=MOST_JSON), name)

    def open(self, name: str) -> Source | Remote:
        """Open a file for reading pieces of it. Raises `Unreadable`."""
        entry = self.entries.get(name)
        if entry is None:
            raise Unreadable(f"{name} is not there")
        if self.store is not None:
            self.opened += 1
            return Remote(
                name, entry.size, partial(self._fetch, self.store, entry.place), self._remembered(name)
            )
        try:
            number = os.open(entry.place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            raise Unreadable(f"{name} cannot be read ({e.strerror})") from None
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            os.close(number)
            raise Unreadable(f"{name} is no regular file any more")
        self.opened += 1
        if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime):
            os.close(number)
            raise Unreadable(f"{name} changed while the checkpoint was looked at: it is still being written")
        return Source(name, number, found.st_size, found.st_mtime_ns, self._count)

    def ahead(self, names: Iterable[str], first: int = 0, last: int = 0) -> None:
        """Fetch the first and the last bytes of files that are going to be opened, many requests at a time.

        Of files here nothing is read ahead. What cannot be fetched is left to be asked for, which says what is wrong.
        """
        if self.store is None:
            return
        wanted: list[tuple[str, int, int]] = []
        left = _MOST_AHEAD
        for name in names:
            e = self.entries.get(name)
            if e is None or not e.size or name in self._ahead:
                continue
            ends = [(name, 0, min(first, e.size))] if first else []
            ends += [(name, max(e.size - last, 0), min(last, e.size))] if last else []
            left -= sum(n for _, _, n in ends)
            if left < 0:
                break
            wanted += ends
        if len(wanted) < 2:
            return
        try:
            found = self.store.pieces([(self.entries[n].place, a, length) for n, a, length in wanted])
        except Unreadable:
            return
        for (name, start, _), data in zip(wanted, found, strict=True):
            self._ahead.setdefault(name, []).append((start, data))
            self._count(len(data))

    def _remembered(self, name: str) -> list[tuple[int, bytes]]:
        """What was fetched of a file in a store: a reader opens the same one several times, for a few bytes each."""
        with self._lock:
            kept = self._ahead.pop(name, None) or self._recent.pop(name, [])
            self._recent[name] = kept
            while len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            return kept

    def _fetch(self, store: Store, place: str, ranges: Any) -> list[bytes]:
        found = store.ranges(place, ranges)
        self._count(sum(map(len, found)))
        return found

    def _count(self, read: int) -> None:
        self.bytes_read += read


def parse_json(data: bytes, name: str) -> Any:
    """JSON from bytes of a file. Raises `Damaged`, and `Unreadable` for a Git LFS pointer in its place."""
    if data.startswith(_POINTER):
        raise Unreadable(f"{name} is a Git LFS pointer: the file itself was not downloaded (`git lfs pull`)")
    if not data.strip(b"\0"):
        what = "is empty" if not data else "holds zeros alone"
        raise Damaged(f"{name} {what}: it was never written to the disk, as after a loss of power")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Damaged(f"{name} is not whole JSON ({str(e)[:100] or type(e).__name__})") from None


def pointer(head: bytes) -> bool:
    """Whether a file begins as a Git LFS pointer (git-lfs/docs/spec.md)."""
    return head.startswith(_POINTER)
