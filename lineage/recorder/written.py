"""The files of a save as they were when it was committed: whether they are the same when they are digested.

A loop that keeps one file writes over it, and a rotation removes it, before another thread has read it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ..ledger import files

MOST = 64
"""Files that are looked at: one look at each, on the training thread."""
GONE = "overwritten or removed before its files were digested"

Stat = tuple[int, int, int, int]
"""(device, inode, bytes, nanoseconds of the last change)"""


@dataclass(frozen=True)
class Written:
    """The first files of a save, at one moment."""

    path: Path
    stats: dict[str, Stat | None]
    alone: bool
    """one rank writes; the files of other ranks may still grow, and only their removal tells something"""
    when: int
    """at this time, in nanoseconds of the monotonic clock"""

    @classmethod
    def look(cls, path: Path, *, alone: bool) -> Written:
        """Look at the files that are there now. Raises nothing."""
        return cls(path, {p: stat_of(p) for p in _names(path)}, alone, time.monotonic_ns())

    @property
    def there(self) -> bool:
        """Whether there was any file at all."""
        return any(self.stats.values())

    def changed(self) -> bool:
        """Whether a file is gone by now, or is another one."""
        now = {p: stat_of(p) for p in self.stats}
        if self.alone:
            return now != self.stats
        return any(self.stats[p] is not None and now[p] is None for p in now)


def stat_of(path: str) -> Stat | None:
    """What a file is now; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _names(path: Path) -> list[str]:
    """A file, or the first files of a folder and of the folders in it; sidecars left out."""
    if path.is_file():
        return [str(path)]
    found: list[str] = []
    for folder, inner, names in os.walk(path):
        inner.sort()
        found += [os.path.join(folder, n) for n in sorted(names) if not files.is_sidecar(n)]
        if len(found) >= MOST:
            break
    return found[:MOST]
