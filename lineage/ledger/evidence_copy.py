"""Copying files into the evidence store: shared extents where the file system can, byte by byte elsewhere.

A hard link would survive a deletion and not an overwrite in place: torch.save and torch.distributed.checkpoint keep
the inode, and the link would show the new bytes. So none is ever made.

A copy grows in a hidden folder. Interrupted, it stays there and is gone on with; it gets its name when every file in
it was digested again and is equal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from .._rooms import schemas
from . import layout
from .evidence_files import MANIFEST, EvidenceError, Progress, base_of, differs, no_progress, some

CHUNK = 8 << 20
"""Bytes per read of a copy."""
PARTIAL = ".partial"
STALE = 7 * 86_400.0
"""Seconds after which an interrupted copy that nobody went on with is removed."""
_FICLONE = 0x40049409
"""ioctl that shares extents between two files (Linux: btrfs, xfs); it fails elsewhere and nothing is lost."""
_LOCK = ".lock"


def reflinks(source: Path, folder: Path) -> bool:
    """Whether the file system can share extents between a file and one in a folder. Tried out, nothing stays."""
    if not source.stat().st_size:
        return False
    trial = layout.make_folder(folder) / f".trial.{os.getpid()}"
    try:
        with source.open("rb") as a, trial.open("xb") as b:
            return _clone(a.fileno(), b.fileno())
    finally:
        trial.unlink(missing_ok=True)


def _clone(source: int, target: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, _FICLONE, source)
        return True
    return False


def copy(
    source: Path,
    chosen: Sequence[Path],
    target: Path,
    known: schemas.Manifest,
    *,
    method: Literal["auto", "copy", "reflink"] = "auto",
    threads: int = 1,
    progress: Progress = no_progress,
) -> Literal["copy", "reflink"]:
    """Copy files, verify the copy, make it read-only, and give it its name. Returns how it was made.

    Raises `EvidenceError` where there is no room, where the copy differs from `known`, or where another process is at
    it. After an interrupt (Ctrl-C, a kill) what is copied stays in a hidden folder, and the next call goes on.
    """
    partial = target.with_name(f".{target.name}{PARTIAL}")
    layout.make_folder(partial)
    with alone(partial, source):
        try:
            shared, resumed = _fill(source, chosen, partial, method, progress)
            wrong = differs(partial, known, threads=threads, progress=progress)
            if resumed & wrong.keys():  # the part that an earlier run left is not of these files
                for path in resumed & wrong.keys():
                    (partial / path).unlink(missing_ok=True)
                _fill(source, chosen, partial, method, progress)
                wrong = differs(partial, known, threads=threads, progress=progress)
            if wrong:
                raise EvidenceError(
                    f"the copy of {source} differs from what was read of it a moment before: {some(wrong)}. "
                    "It is still being written, or the disk is bad; preserve again."
                )
            _remove_others(partial, known)
            (partial / MANIFEST).write_text(known.model_dump_json(by_alias=True), encoding="utf-8")
            finish(partial, target)
        except OSError as e:
            remove(partial)
            raise EvidenceError(f"{source} could not be preserved in {target}: {e}") from e
        except EvidenceError:
            remove(partial)
            raise
    return "reflink" if shared else "copy"


@contextlib.contextmanager
def alone(partial: Path, source: Path | str) -> Iterator[None]:
    """Keep a second process out of a copy that one is at."""
    lock = partial.with_name(partial.name + _LOCK)
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, layout.FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EvidenceError(
                f"another process is preserving {source} at this moment; wait for it"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
        lock.unlink(missing_ok=True)
    except BaseException:
        if not partial.exists():
            lock.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _fill(
    source: Path, chosen: Sequence[Path], partial: Path, method: str, progress: Progress
) -> tuple[bool, set[str]]:
    """Copy what is not there yet. Returns whether all files share extents, and which an earlier run had begun."""
    base, total = base_of(source), sum(p.stat().st_size for p in chosen)
    cloned, done, resumed = 0, 0, set()
    for path in chosen:
        name, size = path.relative_to(base).as_posix(), path.stat().st_size
        copied = partial / name
        layout.make_folder(copied.parent)
        if method != "copy" and size and _cloned(path, copied):
            cloned += 1
        elif method == "reflink" and size:
            raise OSError(f"the file system of {partial.parent} cannot share extents with {path}")
        else:
            there = copied.stat().st_size if copied.exists() else 0
            if there:
                resumed.add(name)
            for count in _bytes(path, copied, there if there <= size else 0):
                progress("copying", done + count, total)
        done += size
        progress("copying", done, total)
    return 0 < cloned == sum(p.stat().st_size > 0 for p in chosen), resumed


def _cloned(source: Path, target: Path) -> bool:
    """Share a file's extents with a new file; an older one of that name is not lost where it does not work."""
    trial = target.with_name(f"{target.name}.clone")
    with source.open("rb") as a, trial.open("wb") as b:
        done = _clone(a.fileno(), b.fileno())
    if done:
        os.replace(trial, target)
    else:
        trial.unlink()
    return done


def _bytes(source: Path, target: Path, at: int) -> Iterator[int]:
    """Copy one file from a position on; tells the bytes that are there after each portion."""
    with source.open("rb") as a, target.open("r+b" if at else "wb") as b:
        a.seek(at)
        b.seek(at)
        while chunk := a.read(CHUNK):
            b.write(chunk)
            at += len(chunk)
            yield at
        b.truncate()
        settle(b)


def settle(file: BinaryIO) -> None:
    """Bring a file to the disk and out of memory, so that verifying it reads the disk."""
    file.flush()
    os.fsync(file.fileno())
    with contextlib.suppress(OSError):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def room(folder: Path, source: object, needed: int) -> None:
    """Raise `EvidenceError` where a disk has too little room. A hundredth of it, at most 1 GiB, is left free."""
    usage = shutil.disk_usage(layout.make_folder(folder))
    free = max(usage.free - min(1 << 30, usage.total // 100), 0)
    if needed > free:
        raise EvidenceError(
            f"{source} has {needed:,} bytes to copy, and {folder} has room for {free:,}. Nothing was changed. "
            "Make room; or let it be moved out of the rotation's reach (--method move), which takes none; or copy it "
            "to another disk or store (--to)"
        )


def begun(target: Path) -> int:
    """Bytes that an interrupted copy to this name left behind."""
    partial = target.with_name(f".{target.name}{PARTIAL}")
    return sum(p.stat().st_size for p in partial.rglob("*") if p.is_file()) if partial.is_dir() else 0


def _remove_others(partial: Path, known: schemas.Manifest) -> None:
    """Files of an earlier, interrupted copy that the source no longer has."""
    named = {e.path for e in known.files}
    for p in partial.rglob("*"):
        if p.is_file() and p.relative_to(partial).as_posix() not in named:
            p.unlink()


def finish(partial: Path, target: Path) -> None:
    """Make a whole folder read-only and give it its name. Raises `OSError`."""
    for p in sorted(partial.rglob("*"), reverse=True):
        p.chmod(0o400 if p.is_file() else 0o500)
    os.rename(partial, target)
    target.chmod(0o500)
    layout.fsync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a folder, read-only or not."""
    if path.exists():
        for p in [path, *path.rglob("*")]:
            if p.is_dir():
                p.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)


def drop_stale(folder: Path) -> None:
    """Remove interrupted copies that nobody went on with for a week."""
    for partial in folder.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            if partial.is_dir() and time.time() - _touched(partial) > STALE:
                remove(partial)
                partial.with_name(partial.name + _LOCK).unlink(missing_ok=True)


def _touched(folder: Path) -> float:
    return max(p.stat().st_mtime for p in [folder, *folder.rglob("*")])
