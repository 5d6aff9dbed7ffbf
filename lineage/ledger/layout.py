"""Where things lie in a ledger folder.

<root>/<run id>/
  journal/<segment uid>/<node>-<rank>-<pid>-<start>.jsonl   one writer per file, hash-chained
  series/<segment uid>/<writer>.<table>.arrows|.parquet     per-step values of one writer
  series/<segment uid>/merged_<rank>_<rank>_<hex>.<table>.parquet   those of many, put together by `lineage compact`
  blobs/sha256/ab/<hex>                                     content-addressed: diffs and other big texts
  evidence/<name>-<digest>/                                 write-once copies
  chunks/<segment uid>/<writer>/<first>-<last>.jsonl        what trackers have of the journal, without free text
  captured/<segment uid>/rank<r>-step<s>-<digest>/          bundles: the evidence of steps with an alarm
  digests/<hex>.<who>.jsonl                                 files of a checkpoint that are digested so far
  delivered/<tracker>-<hex>.txt                             which records and files one page has shown
  report/, report/tracker/                                  the report, and what of it a tracker may show
  view/                                                     the local store's page
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import threading
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
DEFAULT_ROOT = "lineage-runs"
DIGESTS = "digests"
"""Folder of what is digested so far, of checkpoints whose digesting is under way."""

_MERGED = re.compile(r"^merged_(?P<first>\d+)_(?P<last>\d+)_[0-9a-f]+$")
_WRITER = re.compile(r"^(?P<node>.+)-(?P<rank>\d+)-(?P<pid>\d+)-(?P<start>\d+)$")


def make_folder(path: Path) -> Path:
    """Create a folder and its missing parents, all for the owner only. Raises `OSError`."""
    if not path.is_dir():
        make_folder(path.parent)  # `mkdir(parents=True)` would give the parents the umask's mode
        path.mkdir(exist_ok=True, mode=DIRECTORY_MODE)
    return path


def fallback_root() -> Path:
    """Where a ledger goes when its own folder cannot be written.

    One folder per user; where somebody else has taken that name, a new folder of its own.
    """
    path = Path(tempfile.gettempdir()) / f"lineage-runs-{os.getuid()}"
    if path.exists() and (path.is_symlink() or path.stat().st_uid != os.getuid()):
        return Path(tempfile.mkdtemp(prefix="lineage-runs-"))
    return path


def journal_folder(ledger: Path) -> Path:
    """The folder of all journal files."""
    return ledger / "journal"


def series_folder(ledger: Path) -> Path:
    """The folder of all series files."""
    return ledger / "series"


def is_ledger(path: Path) -> bool:
    """Tell whether a folder holds a journal."""
    return journal_folder(path).is_dir()


def writer_of(file: str) -> tuple[str, int, int] | None:
    """Return (node, rank, pid) of a journal or series file by its name, or None."""
    match = _WRITER.match(Path(file).name.split(".")[0])
    return (match["node"], int(match["rank"]), int(match["pid"])) if match else None


def merged_name(first: int, last: int, digest: str) -> str:
    """The name, without table and suffix, of a file that holds the rows of the writers of these ranks."""
    return f"merged_{first:05d}_{last:05d}_{digest}"


def merged_ranks(file: str) -> tuple[int, int] | None:
    """The first and the last rank of a merged file by its name; None for a file of one writer."""
    match = _MERGED.match(Path(file).name.split(".")[0])
    return (int(match["first"]), int(match["last"])) if match else None


def hold(fd: int) -> None:
    """Mark an open file as one that a living process writes; the mark goes with the process, however it ends."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(path: Path) -> bool:
    """Whether a living process writes a file, as far as its file system tells."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def fsync_folder(path: Path) -> None:
    """Make a new directory entry durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Write a file whole or not at all: temporary file, fsync, rename, folder fsync.

    Raises `OSError` and leaves nothing behind. Safe against threads and processes that write the same path.
    """
    temporary = path.with_name(f".lineage.{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)
