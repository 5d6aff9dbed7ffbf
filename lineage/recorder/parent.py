"""The old side of a resume: what a checkpoint's sidecar tells of it, else a ledger that knows its path."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..judge import drift as drift_
from ..judge import graph
from ..ledger import scan, sidecars
from ..ledger.reader import Ledger, find


@dataclass
class Parent:
    """The old side: what the parent checkpoint's sidecar tells, else its ledger, else nothing."""

    path: str
    run: str | None = None
    checkpoint: schemas.Checkpoint | None = None
    own_rank: schemas.Checkpoint | None = None
    sidecar: schemas.Sidecar | None = None
    problem: str | None = None
    evidence: str = "declared"
    told: drift_.Side | None = None
    """the old side as the ledger tells it, where there is no sidecar"""
    found_in: Path | None = None
    """the ledger that was found by the checkpoint's path, before any was open"""

    def ask(self, ledger: Path, rank: int) -> None:
        """Where the folder tells nothing of itself: look for its path among the checkpoints of a ledger."""
        if self.checkpoint is not None:
            return
        records = Ledger(ledger).records
        path = str(Path(self.path).absolute())
        known = [n for n in graph.build(records).nodes.values() if n.checkpoint.path == path]
        if not known:
            return
        written = {r.id: n for n, r in enumerate(records)}
        node = max(
            known, key=lambda n: written.get(n.record, -1)
        )  # a path that is written over holds the last
        self.checkpoint, self.run = node.checkpoint, records[0].run
        self.problem = f"{self.problem}; the ledger {ledger} tells of the save at that path"
        self.own_rank = None if rank == 0 else _without_rank_parts(node.checkpoint)
        self.told = side_at(records, node)

    def look_in(self, root: Path, rank: int) -> None:
        """Where the folder tells nothing of itself: look for its path in all ledgers under a root, newest first."""
        if self.checkpoint is not None:
            return
        said = json.dumps(str(Path(self.path).absolute()), ensure_ascii=False).encode()
        for ledger in find(root):
            with contextlib.suppress(OSError):
                if any(said in f.read_bytes() for f in scan.journal_files(ledger)):
                    self.ask(ledger, rank)
            if self.checkpoint is not None:
                self.found_in = ledger
                return

    def said(self, root: Path) -> str | None:
        """What is wrong with the old side, in words, with what to do next."""
        if self.problem is None or self.checkpoint is not None:
            return self.problem
        return (
            f"{self.problem}, and no ledger in {root} tells of a save at that path: nothing is known of the state at "
            "that save. To join the run that made it, pass run_id= to lineage.attach, or dir= where its ledger lies"
        )

    def live(self) -> list[schemas.ComponentDigest]:
        """The digests at the save, those of this rank where components are the rank's own."""
        if self.checkpoint is None:
            return []
        own = {c.component: c for c in self.own_rank.live} if self.own_rank else {}
        if self.own_rank is not None:
            return [own.get(c.component, c) for c in self.checkpoint.live]
        return list(self.checkpoint.live)

    def side(self) -> drift_.Side:
        """The old side of the drift."""
        s = self.sidecar
        if s is None:
            return self.told or drift_.Side()
        return drift_.Side(s.config, s.effective, s.code, s.environment, dict(s.checkpoint.lr_ahead))


def side_at(records: Sequence[schemas.Record], node: graph.Node) -> drift_.Side:
    """The conditions under which a checkpoint was saved, as its ledger tells them."""
    saved = next(r.at for r in records if r.id == node.record)
    then = [r for r in records if r.at <= saved]
    held = {k: graph.latest(then, k, node.segment) for k in ("config", "effective", "code", "environment")}
    sides: dict[str, Any] = {k: r.payload if r else None for k, r in held.items()}
    return drift_.Side(**sides, lr_ahead=dict(node.checkpoint.lr_ahead))


def read_parent(path: str | Path, rank: int) -> Parent:
    """Read what a checkpoint folder tells of itself. Never raises: what is wrong stands in `problem`."""
    parent = Parent(str(path))
    try:
        sidecar = sidecars.read(Path(path))
        if sidecar is None:
            there = "has no lineage.json" if Path(path).exists() else "does not exist on this machine"
            parent.problem = f"LIN-C001: {path} {there}"
            return parent
        parent.sidecar, parent.run, parent.checkpoint = sidecar, sidecar.run, sidecar.checkpoint
        if rank != 0:
            own = sidecars.read(Path(path), rank)
            parent.own_rank = own.checkpoint if own else _without_rank_parts(sidecar.checkpoint)
    except (sidecars.SidecarError, OSError) as e:
        parent.problem = f"LIN-C001: {e}"
    return parent


def _without_rank_parts(checkpoint: schemas.Checkpoint) -> schemas.Checkpoint:
    """A checkpoint for a rank that left no sidecar of its own: rank-local digests are another rank's."""
    live = [
        c.model_copy(update={"digest": None, "note": "this rank left no sidecar at the save"})
        if c.scope == "rank"
        else c
        for c in checkpoint.live
    ]
    return checkpoint.model_copy(update={"live": live})
