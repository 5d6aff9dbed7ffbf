"""Runs, segments, and the bookkeeping of the journal that holds them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Code, Digest, Model, RunId, Scalar, Uid


class TrackerAlias(Model):
    """What a tracker calls this run. A run may have any number of aliases."""

    tracker: str = Field(description="wandb, mlflow, local, or a third party's name")
    id: str = Field(description="the run id in that tracker")
    project: str | None = Field(default=None, description="W&B project or MLflow experiment id")
    uri: str | None = Field(default=None, description="server or store, credentials masked")
    url: str | None = Field(default=None, description="the page a person opens, if there is one")


class Run(Model):
    """A training run: the whole history under one lineage run id."""

    kind: Literal["run"] = "run"
    uid: RunId = Field(description="the lineage run id")
    name: str | None = None
    aliases: list[TrackerAlias] = []
    fork_of: RunId | None = Field(default=None, description="run id that this run was forked from")
    source: Literal["argument", "environment", "sidecar", "tracker", "loaded", "new", "import"] = Field(
        default="new",
        description="tracker: an alias that a local ledger knows; loaded: the run of a checkpoint that was read",
    )


IMPORTED = "imported"
"""The node of a journal that no training process wrote: the run was read from other sources afterwards."""


class Place(Model):
    """Where a process runs. Ranks do not survive restarts, devices do."""

    node: str = Field(description="pseudonym of the host within this run")
    local_rank: int = 0
    device: str = Field(default="cpu", description="cpu, or the GPU's UUID")
    pid: int


class Segment(Model):
    """One uninterrupted life of a process group."""

    kind: Literal["segment"] = "segment"
    uid: Uid
    start: Literal["fresh", "resume", "fork", "rewind", "unknown"] = "fresh"
    parent_checkpoint: Uid | None = None
    parent_evidence: Literal["declared", "content", "loaded", "none"] = Field(
        default="none",
        description="declared: the training code named it; content: the live state equals its digests; "
        "loaded: the process was seen to read its files, and not what became of them",
    )
    parent_step: int | None = Field(default=None, description="completed updates in the parent checkpoint")
    world_size: int = 1
    place: Place
    identity: Literal["store", "launcher", "provisional"] = Field(
        default="provisional", description="how the ranks agreed on the segment id"
    )
    step_base: Literal[0, 1] = Field(default=1, description="0 where the training loop counts from 0")
    settings: dict[str, Scalar] = {}


class SegmentEnd(Model):
    """The end of a segment, as far as its process could still write it."""

    kind: Literal["segment_end"] = "segment_end"
    reason: Literal["finished", "exited", "exception", "stop_requested"] = Field(
        default="finished",
        description="finished: ended by the training code; exited: the process ended by itself, its exit code unseen",
    )
    error: str | None = Field(default=None, description="type and message of the exception, masked")
    last_step: int | None = None


class Head(Model):
    """The newest line of one journal file."""

    file: str = Field(description="path relative to the journal folder")
    seq: int
    digest: Digest = Field(description="sha256 of the raw bytes of that line, without its newline")


class JournalHeader(Model):
    """The first line of every journal file."""

    kind: Literal["journal_header"] = "journal_header"
    format: Literal["lineage-journal/1"] = "lineage-journal/1"
    place: Place
    previous: list[Head] = Field(default=[], description="heads of the files that were there before")
    set_aside: list[str] = Field(default=[], description="files with a torn last line, as seen at opening")


class Seal(Model):
    """The heads of all chains under one root."""

    kind: Literal["seal"] = "seal"
    why: Literal["checkpoint", "incident", "close"]
    heads: list[Head]
    root: Digest = Field(description="sha256 over `lineage-seal-v1` and the sorted heads")


class Anchor(Model):
    """A root that now stands outside the ledger's own folder."""

    kind: Literal["anchor"] = "anchor"
    root: Digest
    tracker: str
    place: str = Field(description="where in the tracker it can be read, such as a tag")


class Coverage(Model):
    """What is recorded and what is not. Coverage is itself a fact."""

    kind: Literal["coverage"] = "coverage"
    recorded: list[str] = []
    missing: dict[str, str] = Field(
        default={}, description="what is not recorded -> the line that would add it"
    )
    gaps: list[str] = Field(default=[], description="what was attached too late, or went unseen")


class Degraded(Model):
    """Something inside the layer failed; training went on."""

    kind: Literal["degraded"] = "degraded"
    code: Code
    part: str = Field(description="journal, series, tracker, probes, capture, ...")
    error: str = Field(description="type and message, masked")
    consequence: str = Field(description="what is no longer recorded or shown")
    remedy: str | None = None


class TrackerNote(Model):
    """Something a tracker did that a reader of its page must know."""

    kind: Literal["tracker_note"] = "tracker_note"
    code: Code
    tracker: str
    text: str
    values: dict[str, Scalar] = {}
