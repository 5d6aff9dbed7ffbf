"""Checkpoints, their evaluations, and what a resume restored."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Code, Digest, Float, Model, RunId, Scalar, Uid

COMPONENTS = (
    "weights",
    "buffers",
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
    mark: Literal["deleted", "quarantined", "last_good", "first_bad", "preserved"]
    why: str
    evidence: list[Uid] = []


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
    method: Literal["copy", "reflink"]
    verified: bool = Field(description="digested again after it was written, and equal")


class Incident(Model):
    """Something broke. Later issues of its life are later records with the same uid."""

    kind: Literal["incident"] = "incident"
    uid: Uid
    status: Literal["open", "evidence_held", "closed"] = "open"
    title: str
    opened_by: Literal["alarm", "person"] = "alarm"
    owner: str | None = Field(default=None, description="who looks after it, by the name that was given")
    concept: str | None = Field(default=None, description="the training condition that it is about")
    note: str | None = Field(default=None, description="what was said when this record was written")
    first_bad_step: int | None = None
    first_bad_rank: int | None = None
    last_good_checkpoint: Uid | None = None
    code: Code | None = None
