"""What preserving a checkpoint would take, before anything is done."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._rooms import schemas
from . import evidence_copy, evidence_move, evidence_store
from .evidence_files import EvidenceError, everything
from .evidence_held import find, folder


@dataclass(frozen=True)
class Cost:
    """What preserving would take."""

    files: int
    bytes: int
    needed: int
    """bytes of disk that it will use up"""
    free: int | None
    """bytes that are free where it goes; None where it goes into a store, or stays on its disk"""
    way: Literal["reflink", "copy", "move", "held"]
    """held: the evidence store has it already, if its files are still those that were recorded"""


def cost(
    ledger: Path,
    source: Path | str,
    method: str = "auto",
    *,
    to: Path | str | None = None,
    known: schemas.Manifest | None = None,
) -> Cost:
    """What preserving a checkpoint would take; nothing is changed, and no content is read.

    `known`: the manifest that was recorded at the save. Raises `EvidenceError` where the checkpoint is gone.
    """
    path = evidence_store.placed(source)
    to = None if to is None else evidence_store.placed(to)
    if isinstance(path, str):
        return _of_url(ledger, path)
    if not path.exists():
        raise EvidenceError(f"{path} is gone; nothing could be preserved of it")
    try:
        chosen = everything(path)
        total = sum(p.stat().st_size for p in chosen)
        if to is None and method in ("auto", "move") and evidence_move.is_kept(path):
            return Cost(len(chosen), total, 0, None, "held")
        if method == "move":
            return Cost(len(chosen), total, 0, None, "move")
        if to is not None and evidence_store.is_url(to):
            return Cost(len(chosen), total, total, None, "copy")
        into = folder(ledger) if to is None else Path(to)
        if to is None and known is not None and find(ledger, known, None) is not None:
            return Cost(len(chosen), total, 0, _free(into), "held")
        biggest = max(chosen, key=lambda p: p.stat().st_size, default=None)
        if method != "copy" and biggest is not None and evidence_copy.reflinks(biggest, into):
            return Cost(len(chosen), total, 0, _free(into), "reflink")
        return Cost(len(chosen), total, total, _free(into), "copy")
    except OSError as e:
        raise EvidenceError(f"{source} could not be looked at: {e}") from e


def _of_url(ledger: Path, url: str) -> Cost:
    sizes = [size for _, size, _ in evidence_store.listed(evidence_store.open_store(url)).values()]
    return Cost(len(sizes), sum(sizes), sum(sizes), _free(folder(ledger)), "copy")


def _free(into: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be made on."""
    at = into.absolute()
    while not at.exists():
        at = at.parent
    usage = os.statvfs(at)
    return usage.f_bavail * usage.f_frsize
