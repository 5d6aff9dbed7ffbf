"""Putting a pulled ledger in its place whole, or not at all, and never over one that the run itself wrote."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..ledger import layout, pulled
from .source import PullTrouble

WORKSHOP = ".lineage-pull"
"""Folder beside the ledgers in which one is put together."""


def existing(target: Path) -> pulled.Pulled | None:
    """What was pulled into it before; None where it is free. Raises `PullTrouble` where something else is there."""
    _finish(target)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    try:
        marker = pulled.read(target)
    except pulled.MarkerDamaged as e:
        raise PullTrouble(f"{e}; it was left as it is. Name another folder: --out") from None
    if marker is not None:
        return marker
    if layout.is_ledger(target):
        raise PullTrouble(
            f"{target} is a ledger that was not pulled: the run's own. It is never written over. Name another folder "
            f"for what the tracker has: --out; or check this one against the tracker: lineage verify {target}"
        )
    raise PullTrouble(f"{target} is there, and is no ledger. Name another folder: --out")


@contextlib.contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """A folder on the same disk in which the ledger is made; gone at the end, however that comes."""
    home = layout.make_folder(target.parent / WORKSHOP)
    for left in home.glob(f"{target.name}.*.making"):
        found = re.search(r"\.(\d+)\.making$", left.name)
        if found and not _lives(int(found[1])):
            shutil.rmtree(left, ignore_errors=True)
    made = home / f"{target.name}.{os.getpid()}.making"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=layout.DIRECTORY_MODE)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        with contextlib.suppress(OSError):
            home.rmdir()


def put(made: Path, target: Path) -> None:
    """Move a finished ledger to its place; the one that was there makes room first, and goes last."""
    before = _before(target)
    if target.exists():
        os.rename(target, before)
    os.rename(made, target)
    layout.fsync_folder(target.parent)
    shutil.rmtree(before, ignore_errors=True)


def _before(target: Path) -> Path:
    return target.parent / WORKSHOP / f"{target.name}.before"


def _finish(target: Path) -> None:
    """A pull that was killed between its two moves left the former ledger aside: it comes back."""
    before = _before(target)
    if not before.is_dir():
        return
    if target.exists():
        shutil.rmtree(before, ignore_errors=True)
    else:
        os.rename(before, target)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
