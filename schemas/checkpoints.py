"""Checkpoints, their evaluations, and what a resume restored."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Digest, Float, Model, RunId, Scalar, Uid

COMPONENTS = (
    "weights",
    "buffers",
    "master_weights",
    "ema",
    "optimizer_state",
    "optimizer_step",
    "lr_scheduler",
    "grad_scaler",
    "rng",
    "loader_position",
)
"""The components of a faithful resume that this version observes live."""


class FileEntry(Model):
    """One file of a checkpoint."""

    path: str = Field(description="relative to the checkpoint folder, with forward slashes")
    size: int = Field(description="bytes")
    digest: Digest


class Manifest(Model):
    """The files of a checkpoint and how they were digested."""

    root: Digest = Field(
        description="sha256 over `lineage-manifest-v1` and one line per file, sorted by path"
    )
    files: list[FileEntry]
    method: str = Field(default="blake3 per file; lineage.json and lineage.rank*.json left out")


class ComponentDigest(Model):
    """The live state of one component when the save began, as this rank holds it."""

    component: str
    digest: Digest | None = Field(default=None, description="None: not recorded, see `note`")
    scope: Literal["replicated", "rank"] = "replicated"
    detail: dict[str, Scalar] = Field(default={}, description="readable facts, such as the step counter")
    note: str | None = None


class Checkpoint(Model):
    """A checkpoint: the state after `step` completed updates.

    A first record with status `pending` is written when the save starts; `complete` follows when the
    files are there and digested, with the same uid.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    uid: Uid
    step: int = Field(ge=0, description="completed optimizer updates")
    status: Literal["pending", "complete", "incomplete"] = "pending"
    path: str | None = None
    parents: list[Uid] = Field(default=[], description="the checkpoint(s) that this state descends from")
    transformation: str | None = Field(
        default=None, description="for hand-made states: graft, merge, re-synchronisation, ..."
    )
    regime: str | None = Field(default=None, description="regime id at that step")
    samples: int | None = Field(default=None, description="consumed samples, global and cumulative")
    tokens: int | None = Field(default=None, description="consumed tokens, global and cumulative")
    live: list[ComponentDigest] = []
    manifest: Manifest | None = None
    missing: list[str] = Field(default=[], description="what a faithful resume needs and is not there")
    lr_ahead: dict[int, list[Float]] = Field(
        default={}, description="step -> learning rate per group that the scheduler will give"
    )


class CheckpointMark(Model):
    """A later fact about a checkpoint: rotation, quarantine, or its place in an incident."""

    kind: Literal["checkpoint_mark"] = "checkpoint_mark"
    checkpoint: Uid
    mark: Literal[
        "deleted",
        "quarantined",
        "quarantine_lifted",
        "last_good",
        "first_bad",
        "preserved",
        "held",
        "released",
    ] = Field(
        description="quarantine_lifted takes back quarantined; held: rotation must not delete it; released takes "
        "back held and preserved"
    )
    why: str
    evidence: list[Uid] = []
    by: Literal["layer", "person"] = Field(
        default="layer", description="whose word it is; the reason that a person gives stays on the machine"
    )
    path: str | None = Field(default=None, description="where it lies now, if it was moved")


class Load(Model):
    """A call that read files of a checkpoint, as the observer saw it from outside.

    Whether the state was put to use is not shown by it.
    """

    kind: Literal["load"] = "load"
    path: str
    by: str = Field(description="the call that read it, such as torch.load")
    checkpoint: Uid | None = Field(default=None, description="the checkpoint that it is taken for")
    run: RunId | None = Field(default=None, description="the run whose ledger or sidecar tells of it")
    step: int | None = Field(default=None, description="completed updates in that checkpoint")
    evidence: Literal["content", "path", "none"] = Field(
        default="none",
        description="content: the files have the digests that were recorded; path: only the place is the same",
    )
    components: list[str] = Field(
        default=[], description="what the top of the read object holds, by its names"
    )
    text: str


class ComponentRestore(Model):
    """What became of one component on a resume."""

    component: str
    status: Literal["restored", "differs", "absent", "not_recorded"]
    saved: Digest | None = None
    live: Digest | None = None
    text: str = Field(description="the finding in words, with the facts that decide it")
    parts: dict[str, Scalar] = Field(
        default={}, description="what the live side held where a component has parts: generator -> state"
    )


class Restore(Model):
    """The live state before the first step, against the state at the save."""

    kind: Literal["restore"] = "restore"
    checkpoint: Uid
    scope: Literal["rank", "whole"] = Field(
        default="rank",
        description="rank: what the writing rank could compare of its own; whole: the tensors of all ranks together",
    )
    components: list[ComponentRestore]


class Evaluation(Model):
    """One evaluation of one checkpoint."""

    kind: Literal["evaluation"] = "evaluation"
    checkpoint: Uid
    evaluator: str
    evaluator_version: str
    data: Digest | None = Field(default=None, description="digest of the evaluation data")
    results: dict[str, Float]


class Preserved(Model):
    """Evidence held in the write-once store."""

    kind: Literal["preserved"] = "preserved"
    what: str = Field(description="last good checkpoint, first bad batch, rank files, ...")
    source: str
    location: str = Field(description="path inside the evidence store")
    root: Digest
    files: int
    bytes: int
    method: Literal["copy", "reflink", "moved"]
    verified: bool = Field(
        description="digested again where it lies now, and equal; false for what was renamed during the training"
    )
    at: str | None = Field(
        default=None,
        description="where the files are, if not at `location`, which then has their manifest: a path, or a URL",
    )
