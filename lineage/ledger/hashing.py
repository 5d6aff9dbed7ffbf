"""BLAKE3 of big files: all cores, memory mapping, progress, and what was digested already is not read again.

Memory mapping is for commands alone: in a training process a mapped file that is truncated while it is read would
kill the training (SIGBUS). It is used where the file lies on a disk of this machine. What has been digested is kept
in a small file beside the ledger, never in the checkpoint, with the file's size, times and inode, so that a command
that was interrupted goes on, and ranks that each digest their own shards spare rank 0 the reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from blake3 import blake3

from . import layout

SLICE = 64 << 20
"""Bytes that are digested at once by all cores, between two reports of progress."""
CHUNK = 8 << 20
"""Bytes per read where a file is not mapped."""
ALL_CORES: int = blake3.AUTO
FRESH = 86_400.0
"""Seconds for which a kept digest counts: beyond a day, a file is read again."""
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "bcachefs"}

Tell = Callable[[int], None]


def silent(_: int) -> None:
    """Tell nobody."""


def digest(path: Path, *, threads: int = ALL_CORES, mapped: bool | None = None, tell: Tell = silent) -> str:
    """BLAKE3 of a file. `tell` gets the bytes of each slice; `mapped`: None maps what lies on a local disk.

    Raises `OSError`.
    """
    with path.open("rb") as f:
        size = os.fstat(f.fileno()).st_size
        if not size or not (is_local(path) if mapped is None else mapped):
            return digest_stream(f, threads=threads, tell=tell)
        hasher = blake3(max_threads=threads)
        with mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ) as whole, memoryview(whole) as view:
            for at in range(0, size, SLICE):
                with view[at : at + SLICE] as part:
                    hasher.update(part)
                    tell(len(part))
        return f"blake3:{hasher.hexdigest()}"


def digest_stream(f: BinaryIO, *, threads: int = ALL_CORES, tell: Tell = silent) -> str:
    """BLAKE3 of what a file object gives, in portions. Raises what reading raises."""
    hasher = blake3(max_threads=threads)
    while chunk := f.read(CHUNK):
        hasher.update(chunk)
        tell(len(chunk))
    return f"blake3:{hasher.hexdigest()}"


def is_local(path: Path) -> bool:
    """Whether a file lies on a disk of this machine, as Linux tells; what is not known is not."""
    best, kind = "", ""
    try:
        real = str(path.resolve())
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        at = fields[4].replace("\\040", " ").rstrip("/")
        if len(at) >= len(best) and (real == at or real.startswith(at + "/")):
            best, kind = at, after.split()[0]
    return kind in _LOCAL


_OWNER = re.compile(r"(?:^|[^0-9a-z])(?:rank_?|rng_state_|__)(\d+)(?![0-9])", re.IGNORECASE)


def owner(name: str) -> int | None:
    """The rank that wrote a file of a checkpoint, as its name tells (`__3_0.distcp`, `zero_pp_rank_3_...`)."""
    found = _OWNER.search(name.rpartition("/")[2])
    return int(found[1]) if found else None


class Kept:
    """Digests of a checkpoint's files that were made so far, in files beside the ledger: one per process."""

    def __init__(self, folder: Path, checkpoint: Path | str, who: str = "") -> None:
        name = hashlib.sha256(str(checkpoint).encode()).hexdigest()[:16]
        self._pattern = f"{name}*.jsonl"
        self._folder = folder
        self._mine = folder / f"{name}{'.' if who else ''}{who}.jsonl"
        self._known: dict[str, tuple[list[int], str]] = {}
        self._sizes: dict[Path, int] = {}

    def get(self, path: Path) -> str | None:
        """The digest of a file that has not changed since it was made; what others wrote meanwhile counts too."""
        self._read()
        found = self._known.get(str(path))
        with contextlib.suppress(OSError):
            if found is not None and found[0] == identity(path.stat()):
                return found[1]
        return None

    def put(self, path: Path, before: os.stat_result, found: str) -> None:
        """Keep a digest. `before`: the file's state when its reading began. What cannot be written is not kept."""
        with contextlib.suppress(OSError):
            if identity(path.stat()) != identity(before):
                return  # it was written to meanwhile
            layout.make_folder(self._folder)
            line = {"path": str(path), "is": identity(before), "digest": found, "at": time.time()}
            fd = os.open(self._mine, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, layout.FILE_MODE)
            with os.fdopen(fd, "ab") as f:
                f.write(json.dumps(line).encode() + b"\n")

    def forget(self) -> None:
        """Everything is digested: nothing need be kept."""
        for path in self._folder.glob(self._pattern):
            with contextlib.suppress(OSError):
                path.unlink()

    def drop_old(self) -> None:
        """Remove what this process kept of other checkpoints, where it counts no more."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*{self._mine.name[16:]}"):
                if time.time() - path.stat().st_mtime > FRESH:
                    path.unlink()

    def _read(self) -> None:
        for path in self._folder.glob(self._pattern):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                if self._sizes.get(path) != size:
                    self._sizes[path] = size
                    for line in path.read_bytes().splitlines():
                        self._take(line)

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a torn last line was never whole
            data: dict[str, Any] = json.loads(line)
            if time.time() - float(data["at"]) < FRESH:
                self._known[str(data["path"])] = (list(data["is"]), str(data["digest"]))


def identity(stat: os.stat_result) -> list[int]:
    """What changes when a file is written to: size, times, inode."""
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def own_share(files: Iterable[Path], rank: int) -> list[Path]:
    """The files that a rank wrote, as their names tell."""
    return [p for p in files if owner(p.name) == rank]


def digest_all(
    files: Sequence[Path],
    kept: Kept | None = None,
    *,
    threads: int = ALL_CORES,
    mapped: bool | None = None,
    tell: Tell = silent,
) -> dict[Path, str]:
    """Digest files, those first that nobody else may be at. Raises `OSError` where one cannot be read."""
    out = {}
    for path in sorted(files, key=lambda p: (owner(p.name) or 0, p)):
        before = path.stat()
        found = kept.get(path) if kept else None
        if found is None:
            found = digest(path, threads=threads, mapped=mapped, tell=tell)
            if kept:
                kept.put(path, before, found)
        else:
            tell(before.st_size)
        out[path] = found
    return out
