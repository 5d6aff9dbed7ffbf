"""Moving a checkpoint out of the reach of a framework's rotation, without copying a byte.

A rotation looks for names in one folder: `checkpoint-*` (HF Trainer), everything in `checkpoints/` (Accelerate),
`step-<n>` anywhere in a name (torchtitan). So the checkpoint goes into a folder beside that folder, with its name
unchanged. No link is left in its old place: Accelerate's rotation fails on one, and every rotation counts it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from . import layout, sidecars

SUFFIX = ".kept"
"""Ends the name of the folder beside the rotation's folder."""
INSIDE = "lineage-kept"
"""The folder within the rotation's folder, where none can be made beside it."""
_WHOLE_FOLDER = ("checkpoints",)
"""Names of folders in which a rotation takes every entry for a checkpoint (Accelerate)."""


class CannotMove(OSError):
    """It cannot be moved out of the rotation's reach; the text says why. Nothing was changed."""


def is_kept(path: Path) -> bool:
    """Whether a checkpoint lies where a move put it."""
    return any(p.name.endswith(SUFFIX) or p.name == INSIDE for p in (path.parent, path.parent.parent))


def out_of_reach(path: Path) -> Path:
    """Rename a checkpoint's folder or file, with its sidecars, out of the rotation's reach; write-protect it there.

    Returns where it is now. Raises `CannotMove`, and leaves everything in place then.
    """
    path = Path(os.path.abspath(path))
    if path.is_symlink():
        raise CannotMove(f"{path} is a link: moving it would not move what it leads to")
    if not path.exists():
        raise CannotMove(f"{path} is gone")
    if is_kept(path):
        return path
    if (leading := _leads_out(path)) is not None:
        raise CannotMove(
            f"{leading} is a link to something outside of {path}, which a move would not take along"
        )
    refused: OSError | None = None
    for folder in _folders(path):
        try:
            target = _claim(folder, path)
        except OSError as e:
            refused = e
            continue
        try:
            _move(path, target)
        except OSError as e:
            refused = e
            _give_up(target)
            continue
        protect(target)
        return target
    raise CannotMove(f"{path} cannot be renamed out of its folder: {refused}")


def _folders(path: Path) -> Iterator[Path]:
    """Where it may go: beside the rotation's folder, else within it where no rotation takes all that is there."""
    parent = path.parent
    if parent.name:
        yield parent.parent / f"{parent.name}{SUFFIX}"
    if parent.name not in _WHOLE_FOLDER:
        yield parent / INSIDE


def _leads_out(path: Path) -> Path | None:
    """The first link in a folder that leads out of it."""
    if not path.is_dir():
        return None
    inside = path.resolve()
    for p in path.rglob("*"):
        if p.is_symlink() and (os.path.isabs(os.readlink(p)) or not p.resolve().is_relative_to(inside)):
            return p
    return None


def _claim(folder: Path, path: Path) -> Path:
    """A place of its own, with the name unchanged: an empty folder or file, that a rename may replace.

    Where a checkpoint of that name is kept already, the next one goes into a numbered folder within.
    """
    folder.mkdir(exist_ok=True)
    for n in range(1, 10_000):
        within = folder if n == 1 else folder / str(n)
        within.mkdir(exist_ok=True)
        target = within / path.name
        try:
            if path.is_dir():
                target.mkdir()
            else:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        return target
    raise CannotMove(f"{folder} holds ten thousand checkpoints of that name")


def _move(path: Path, target: Path) -> None:
    beside = [] if path.is_dir() else sidecars.of_file(path)
    os.rename(path, target)
    for p in beside:
        with contextlib.suppress(OSError):  # the checkpoint itself is safe; its sidecar is in the ledger too
            os.rename(p, target.with_name(p.name))
    layout.fsync_folder(target.parent)
    layout.fsync_folder(path.parent)


def _give_up(target: Path) -> None:
    """Remove the name that was claimed, and the folder if it is empty."""
    with contextlib.suppress(OSError):
        target.rmdir() if target.is_dir() else target.unlink()
        target.parent.rmdir()


def protect(path: Path) -> None:
    """Take away the right to write; who may read it, and so resume from it, stays as it was."""
    every = [path, *(path.rglob("*") if path.is_dir() else sidecars.of_file(path))]
    for p in every:
        if not p.is_symlink():
            with contextlib.suppress(OSError):  # somebody else's file in it: no less safe than it was
                p.chmod(stat.S_IMODE(p.stat().st_mode) & ~0o222)
