"""The files of a checkpoint, and reading pieces of them: never outside the folder, and never all of a big file.

Only regular files are opened. A link to a folder is not followed, so that no loop of links can be entered; a link to a
file is followed where it stays in the folder, or in the blobs of the Hugging Face cache that the folder is a snapshot
of (`models--*/snapshots/<revision>/name -> ../../blobs/<hash>`, huggingface_hub's file_download.py).
"""

from __future__ import annotations

import io
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Damaged, Refused, Unreadable

MOST_FILES = 500_000
MOST_DEPTH = 16
MOST_JSON = 256 << 20
MOST_PICKLE = 1 << 30
"""Bytes of text or pickle that describe tensors; what is larger describes none."""
_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Entry:
    """A file as the folder lists it."""

    name: str
    """relative to the checkpoint, with forward slashes"""
    size: int
    mtime: int
    """nanoseconds"""
    place: str
    """the path that is opened"""


@dataclass
class Folder:
    """A checkpoint folder, or the folder of one file (then only that file is listed)."""

    root: Path
    only: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """name -> why it is not looked into"""
    opened: int = 0
    """files that were opened so far"""
    bytes_read: int = 0
    patience: int = MOST_PICKLE
    """bytes of one pickle that the caller has time for: they are read by Python, a megabyte in about 0.3 s"""

    def names(self, under: str = "") -> list[str]:
        """The files directly in the folder, or directly in a folder of it; sorted."""
        prefix = under + "/" if under else ""
        return sorted(
            n for n in self.entries if n.startswith(prefix) and "/" not in n[len(prefix) :] and n != prefix
        )

    def folders(self) -> list[str]:
        """The folders directly in it that hold files at any depth; sorted."""
        return sorted({n.partition("/")[0] for n in self.entries if "/" in n})

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
        entries = {
            n[len(prefix) :]: Entry(n[len(prefix) :], e.size, e.mtime, e.place)
            for n, e in self.entries.items()
            if n.startswith(prefix)
        }
        return Folder(self.root / under, None, entries, patience=self.patience)

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

    def open(self, name: str) -> Source:
        """Open a file for reading pieces of it. Raises `Unreadable`."""
        entry = self.entries.get(name)
        if entry is None:
            raise Unreadable(f"{name} is not there")
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
        return Source(self, entry, number, found.st_size, found.st_mtime_ns)


class Source(io.RawIOBase):
    """A file opened for reading pieces; counts what is read, and notices when the file changes meanwhile."""

    def __init__(self, folder: Folder, entry: Entry, number: int, size: int, mtime: int) -> None:
        self._folder, self._entry, self._number = folder, entry, number
        self.size, self._mtime, self._at = size, mtime, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The place in it, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        base = (0, self._at, self.size)[whence]
        if base + offset < 0:
            raise OSError("a place before the file")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes from here. Raises `Unreadable`."""
        wanted = max(self.size - self._at, 0) if size < 0 else size
        pieces = []
        while wanted > 0:
            try:
                piece = os.pread(self._number, min(wanted, 1 << 26), self._at)
            except OSError as e:
                raise Unreadable(f"{self._entry.name} cannot be read ({e.strerror})") from None
            if not piece:
                break
            pieces.append(piece)
            self._at += len(piece)
            wanted -= len(piece)
        data = b"".join(pieces)
        self._folder.bytes_read += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return how many bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close it; raises `Unreadable` when the file is another than it was at the start."""
        if self.closed:
            return
        now = os.fstat(self._number)
        os.close(self._number)
        super().close()
        if (now.st_size, now.st_mtime_ns) != (self.size, self._mtime):
            raise Unreadable(f"{self._entry.name} changed while it was read: it is still being written")


class Window(io.RawIOBase):
    """A stretch of a file, as a file of its own."""

    def __init__(self, source: Source, start: int, length: int) -> None:
        self._source, self._start, self.size, self._at = source, start, length, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The place in it, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = max((0, self._at, self.size)[whence] + offset, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes from here."""
        left = max(self.size - self._at, 0)
        self._source.seek(self._start + self._at)
        data = self._source.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def open_path(path: Path) -> Folder:
    """List a checkpoint. Raises `Unreadable` where there is nothing that can be listed."""
    try:
        place = path.resolve(strict=True)
    except RuntimeError:
        raise Unreadable(f"{path} is a link that leads to itself") from None
    except OSError as e:
        loop = "a link that leads to itself" if e.errno == 40 else e.strerror
        raise Unreadable(f"{path} cannot be opened ({loop})") from None
    if place.is_file():
        found = place.stat()
        entry = Entry(path.name, found.st_size, found.st_mtime_ns, str(place))
        return Folder(place.parent, path.name, {path.name: entry})
    if not place.is_dir():
        raise Unreadable(f"{path} is neither a folder nor a regular file")
    folder = Folder(place)
    _list(folder, place, "", 0)
    return folder


def _list(folder: Folder, place: Path, prefix: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        folder.refused[prefix.rstrip("/")] = f"more than {MOST_DEPTH} folders deep"
        return
    try:
        found = list(os.scandir(place))
    except OSError as e:
        if not depth:
            raise Unreadable(f"{place} cannot be listed ({e.strerror})") from None
        folder.refused[prefix.rstrip("/")] = f"cannot be listed ({e.strerror})"
        return
    for item in found:
        name = prefix + item.name
        if len(folder.entries) >= MOST_FILES:
            raise Refused(f"{folder.root} holds more than {MOST_FILES:,} files; name one checkpoint in it")
        try:
            if item.is_symlink():
                _link(folder, item, name)
            elif item.is_dir(follow_symlinks=False):
                _list(folder, Path(item.path), name + "/", depth + 1)
            elif item.is_file(follow_symlinks=False):
                s = item.stat(follow_symlinks=False)
                folder.entries[name] = Entry(name, s.st_size, s.st_mtime_ns, item.path)
            else:
                folder.refused[name] = "neither a folder nor a regular file"
        except OSError as e:
            folder.refused[name] = f"cannot be looked at ({e.strerror})"


def _link(folder: Folder, item: os.DirEntry[str], name: str) -> None:
    """Take a link for the file that it leads to, where that is in the folder; else note why not."""
    try:
        target = Path(item.path).resolve(strict=True)
    except (OSError, RuntimeError):
        folder.refused[name] = "a link that leads nowhere, or to itself"
        return
    if target.is_dir():
        folder.refused[name] = "a link to a folder; links to folders are not followed"
    elif not (target.is_relative_to(folder.root) or _cached(folder.root, target)):
        folder.refused[name] = "a link to a file outside the checkpoint; it is not followed"
    elif target.is_file():
        s = target.stat()
        folder.entries[name] = Entry(name, s.st_size, s.st_mtime_ns, str(target))
    else:
        folder.refused[name] = "a link to something that is no regular file"


def _cached(root: Path, target: Path) -> bool:
    snapshots = next((p for p in root.parents if p.name == "snapshots"), None)
    return snapshots is not None and target.is_relative_to(snapshots.parent / "blobs")


def parse_json(data: bytes, name: str) -> Any:
    """JSON from bytes of a file. Raises `Damaged`, and `Unreadable` for a Git LFS pointer in its place."""
    if data.startswith(_POINTER):
        raise Unreadable(f"{name} is a Git LFS pointer: the file itself was not downloaded (`git lfs pull`)")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Damaged(f"{name} is not whole JSON ({str(e)[:100] or type(e).__name__})") from None


def pointer(head: bytes) -> bool:
    """Whether a file begins as a Git LFS pointer (git-lfs/docs/spec.md)."""
    return head.startswith(_POINTER)
