"""Checkpoints as small artifacts: the record and a reference, never the weights."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from .. import text
from .._rooms import schemas
from ..base import PREFIX, Page, Shown
from .handle import Handle, payload

TYPE = "checkpoint"
LONGEST_NAME = 128
QUARANTINE = ("quarantined", "quarantine_lifted")


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
        page.know(record)
        h.config({})
        return place

    def mark(self, h: Handle, record: Shown, page: Page) -> str:
        """Show a later fact about a checkpoint: `lineage/marks/<checkpoint>/<mark>` in the config.

        A quarantine also stands in the summary, where the run table shows it, and in a further version of the
        checkpoint's artifact, which takes over its aliases: offline, the version that is there cannot be changed.
        """
        m: schemas.CheckpointMark = payload(record)
        key = f"{PREFIX}marks/{m.checkpoint}/{m.mark}"
        held = h.run.config.get(key)
        if isinstance(held, Mapping) and str(held.get("record", "")) >= record.id:
            return h.place(key)
        step = page.step_of(m.checkpoint)
        facts = {"record": record.id, "checkpoint": m.checkpoint, "why": text.mark(m, page.share)}
        h.config({key: facts if step is None else {**facts, "step": step}})
        if m.mark in QUARANTINE:
            marks = _marks(h.run.config)
            steps = {
                uid: found["quarantined"].get("step")
                for uid, found in marks.items()
                if "quarantined" in found
            }
            h.summary({f"{PREFIX}quarantined": text.quarantined(steps, lifted(h.run.config))})
            self._mark_artifact(h, page, m.checkpoint, marks.get(m.checkpoint, {}))
        return h.place(key)

    def _mark_artifact(self, h: Handle, page: Page, uid: str, marks: Mapping[str, Mapping[str, Any]]) -> None:
        known = page.checkpoints.get(uid)
        if known is None:
            return
        c: schemas.Checkpoint = payload(known)
        standing = _standing(marks)
        more: dict[str, Any] = {}
        if "tags" in inspect.signature(h.run.log_artifact).parameters:  # not in W&B before 0.18
            more["tags"] = [standing.replace("_", "-")]
        h.run.log_artifact(_artifact(known, c, marks), aliases=[f"step-{c.step}", uid], **more)

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
    """The artifact's name for a run; no two runs have one name, whatever W&B takes of their ids."""
    cleaned = re.sub(r"[^\w.-]", "_", run, flags=re.ASCII)
    longest = LONGEST_NAME - len("checkpoint-")
    if cleaned != run or len(cleaned) > longest:
        cleaned = f"{cleaned[: longest - 9]}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    return "checkpoint-" + cleaned


def lifted(config: Any) -> set[str]:
    """Return the checkpoints whose quarantine was taken back, by the marks in the page's config."""
    return {uid for uid, found in _marks(config).items() if _standing(found) == "quarantine_lifted"}


def _marks(config: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Checkpoint -> mark -> what the page's config says of it."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for key, value in config.items():
        uid, _, name = str(key).removeprefix(f"{PREFIX}marks/").partition("/")
        if str(key).startswith(f"{PREFIX}marks/") and isinstance(value, Mapping):
            out.setdefault(uid, {})[name] = dict(value)
    return out


def _standing(marks: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether a quarantine stands or was taken back: the newer of the two, as record ids sort by time."""
    when = {name: str(marks[name].get("record", "")) for name in QUARANTINE if name in marks}
    return max(when, key=lambda name: when[name], default="quarantined")


def _artifact(
    record: Shown, c: schemas.Checkpoint, marks: Mapping[str, Mapping[str, Any]] | None = None
) -> Any:
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
    if marks:
        metadata["quarantined"] = _standing(marks) == "quarantined"
        metadata["marks"] = {name: dict(facts) for name, facts in marks.items()}
    shown = {k: v for k, v in metadata.items() if v is not None}
    artifact = wandb.Artifact(_name(record.run), type=TYPE, metadata=shown)
    with artifact.new_file("record.json", mode="wb") as f:
        f.write(record.raw if isinstance(record, schemas.Record) else record.to_line())
    if marks:
        with artifact.new_file("marks.json", mode="w") as f:
            json.dump(metadata["marks"], f)
    # For a scheme that W&B does not know, an entry's digest is the address itself: so it names the content.
    # A file reference with checksum=False would have a digest of its path, equal for other content.
    artifact.add_reference(f"ckpt://{c.uid}" + (f"#{root}" if root else ""), name="checkpoint")
    return artifact
