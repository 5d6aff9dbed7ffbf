"""Checkpoints that are on record as complete, looked after: written over by a later save, deleted, or moved."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..judge import graph
from ..ledger.reader import Ledger
from . import protection

MOST = 200
"""Checkpoints whose files are looked after; of more, the newest ones."""

Write = Callable[[schemas.CheckpointMark], Any]


class Followed:
    """The complete checkpoints of one run, as its ledger and this process know them. One thread at a time calls it."""

    def __init__(self, write: Write, ledger: Callable[[], Path | None]) -> None:
        self._write, self._ledger = write, ledger
        self._at: dict[str, schemas.Checkpoint] = {}
        """path -> the newest complete checkpoint there"""
        self._begun = False

    def add(self, checkpoint: schemas.Checkpoint) -> None:
        """A checkpoint is complete at its `path`."""
        self._begin()
        if checkpoint.path:
            self._at[os.path.abspath(checkpoint.path)] = checkpoint
        while len(self._at) > MOST:
            self._at.pop(next(iter(self._at)))

    def forget(self, path: str) -> None:
        """Somebody else says what became of the checkpoint there."""
        self._at.pop(os.path.abspath(path), None)

    def replaced(self, path: str, by: str) -> None:
        """Something else was saved at a path: what was there is gone, unless it was moved away before."""
        self._begin()
        older = self._at.pop(os.path.abspath(path), None)
        if older is None:
            return
        now = self._moved(os.path.abspath(path), older.uid)
        if now is None:
            self._mark(older, f"overwritten by a later {by} at {path}")
        else:
            self._at[now] = older

    def look(self) -> None:
        """Notice which ones are not there any more; one that was moved is followed to where it lies now."""
        self._begin()
        for path in [p for p in list(self._at) if not os.path.exists(p)]:
            checkpoint = self._at.pop(path, None)
            if checkpoint is None:  # forgotten just now, by the training thread
                continue
            now = self._moved(path, checkpoint.uid)
            if now is None:
                self._mark(checkpoint, "its files are gone")
            else:
                self._at[now] = checkpoint

    def _begin(self) -> None:
        """Once: the checkpoints of earlier segments. One whose folder is not there may be of another machine."""
        ledger = self._ledger()
        if self._begun or ledger is None:
            return
        self._begun = True
        nodes = graph.build(Ledger(ledger).records).nodes.values()
        for node in [n for n in nodes if n.checkpoint.status == "complete" and not n.deleted]:
            path = node.checkpoint.path
            if path and (os.path.exists(path) or os.path.isdir(os.path.dirname(path))):
                self._at[os.path.abspath(path)] = node.checkpoint

    def _moved(self, path: str, uid: str) -> str | None:
        """Where it lies now, as this process or a record of any other one tells; None where it lies nowhere."""
        here = protection.where_is(Path(path), uid)
        if here is not None and os.path.exists(here):
            return str(here)
        ledger = self._ledger()
        node = graph.build(Ledger(ledger).records).nodes.get(uid) if ledger is not None else None
        told = node.checkpoint.path if node is not None else None
        there = os.path.abspath(told) if told and os.path.exists(told) else None
        return there if there != os.path.abspath(path) else None

    def _mark(self, checkpoint: schemas.Checkpoint, why: str) -> None:
        self._write(schemas.CheckpointMark(checkpoint=checkpoint.uid, mark="deleted", why=why))
