"""Checkpoints as small artifacts: the record and a reference, never the weights."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from .._rooms import schemas
from ..base import Page, Shown
from .handle import Handle, payload

TYPE = "checkpoint"
LONGEST_NAME = 128


class Checkpoints:
    """Logs complete checkpoints, and draws the edges to their parents where a server is there."""

    def __init__(self, handle: Handle) -> None:
        self._h = handle
        self._logged: dict[str, str] = {}  # checkpoint uid -> record id
        self._used: set[str] = set()
        self._forked_from: list[str] = []

    def show(self, h: Handle, record: Shown, page: Page) -> str | None:
        """Log a complete checkpoint: `checkpoint-<lineage run id>`, aliases `step-<N>` and its uid."""
        c: schemas.Checkpoint = payload(record)
        if c.status != "complete":
            return None
        place = h.place(f"artifact/{_name(record.run)}:{c.uid}")
        if h.newest.get("checkpoint", "") < record.id:
            h.points.during(c.step, record.id)
            h.newest["checkpoint"] = record.id
        if self._logged.get(c.uid) == record.id:
            return place
        h.run.log_artifact(_artifact(record, c), aliases=[f"step-{c.step}", c.uid])
        self._logged[c.uid] = record.id
        h.config({})
        return place

    def relate(self, record: Shown) -> None:
        """Draw the edges that a run, segment or checkpoint record tells of."""
        p = payload(record)
        if isinstance(p, schemas.Run) and p.fork_of and p.fork_of not in self._forked_from:
            self._forked_from.append(p.fork_of)
        elif isinstance(p, schemas.Segment) and p.parent_checkpoint:
            self._use(p.parent_checkpoint, record.run)
        elif isinstance(p, schemas.Checkpoint) and p.status == "complete":
            for parent in p.parents:
                if parent not in self._logged:
                    self._use(parent, record.run)

    def _use(self, checkpoint: str, run: str) -> None:
        """Draw an edge from a parent checkpoint into this run, once, if the server knows it.

        Offline there are no such edges (W&B raises TypeError). Nothing is raised: the parent also stands
        in the config and in the artifact's metadata.
        """
        if checkpoint in self._used or not self._h.online:
            return
        self._used.add(checkpoint)
        for owner in (run, *self._forked_from):
            with contextlib.suppress(Exception):
                self._h.run.use_artifact(f"{_name(owner)}:{checkpoint}", type=TYPE)
                return


def _name(run: str) -> str:
    return "checkpoint-" + re.sub(r"[^\w.-]", "_", run)[: LONGEST_NAME - len("checkpoint-")]


def _artifact(record: Shown, c: schemas.Checkpoint) -> Any:
    import wandb

    root = c.manifest.root if c.manifest else None
    metadata: dict[str, Any] = {
        "checkpoint": c.uid,
        "step": c.step,
        "record": record.id,
        "run": record.run,
        "segment": record.segment,
        "parents": list(c.parents),
        "regime": c.regime,
        "samples": c.samples,
        "tokens": c.tokens,
        "transformation": c.transformation,
        "manifest_root": root,
        "missing": list(c.missing),
    }
    if c.manifest:
        metadata["files"] = len(c.manifest.files)
        metadata["bytes"] = sum(f.size for f in c.manifest.files)
    shown = {k: v for k, v in metadata.items() if v is not None}
    artifact = wandb.Artifact(_name(record.run), type=TYPE, metadata=shown)
    with artifact.new_file("record.json", mode="wb") as f:
        f.write(record.raw if isinstance(record, schemas.Record) else record.to_line())
    # For a scheme that W&B does not know, an entry's digest is the address itself: so it names the content.
    # A file reference with checksum=False would have a digest of its path, equal for other content.
    artifact.add_reference(f"ckpt://{c.uid}" + (f"#{root}" if root else ""), name="checkpoint")
    return artifact
