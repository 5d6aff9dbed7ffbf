"""Bundles, the evidence of one bad step, and replays, the step again with at most one thing changed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Digest, Float, Model, RunId, Scalar, Time, Uid
from .checkpoints import ComponentDigest, FileEntry
from .judgements import Alarm
from .runs import Place

BUNDLE_SCHEMA = "lineage/bundle/1-0-0"
"""Name and MODEL-REVISION-ADDITION of a bundle's manifest."""

Family = Literal["data", "numerics", "optimizer", "distributed", "hardware", "code"]
"""Kinds of causes: data; numerics; optimizer and schedule; distributed; hardware and software; code and config."""


class Bundle(Model):
    """The evidence of one bad step of one rank, written at the alarm. It stays on this machine."""

    kind: Literal["bundle"] = "bundle"
    root: Digest = Field(
        description="sha256 of the bundle's manifest.json, which holds the digest of each file"
    )
    location: str = Field(description="path of the folder in the ledger")
    first_bad_step: int = Field(description="the step whose alarm it was written at")
    alarm: Uid | None = Field(default=None, description="the alarm's record")
    steps: list[int] = Field(default=[], description="steps whose batches are in it")
    state: bool = Field(default=False, description="whether weights and optimizer state are in it")
    files: int
    bytes: int
    limit: int = Field(description="bytes that it may have")
    left_out: dict[str, str] = Field(default={}, description="what was there and is not in it -> why")


class BundleBatch(Model):
    """One micro-batch in a bundle."""

    micro: int = Field(ge=0, description="its number in the step, from 0")
    kept: bool = Field(description="whether its content is in the bundle")
    rng: bool = Field(description="whether the random-number states before it are in the bundle")
    fingerprint: str | None = Field(default=None, description="as the series has it, made when it was given")
    same: bool | None = Field(
        default=None,
        description="whether the kept content has that fingerprint: false where the loop wrote into it afterwards",
    )


class BundleStep(Model):
    """One step in a bundle."""

    step: int
    batches: list[BundleBatch] = []


class BundleState(Model):
    """Weights, buffers and optimizer state in a bundle."""

    updates_after: int = Field(
        ge=0,
        description="at most so many updates were made after the state that the bad step began with; 0: none",
    )
    live: list[ComponentDigest] = Field(default=[], description="digests of what is kept, by component")


class BundleCheckpoint(Model):
    """A checkpoint that a bundle refers to."""

    uid: Uid
    step: int
    status: Literal["pending", "complete", "incomplete"] = Field(
        default="complete", description="pending: its save was not on record as whole yet"
    )
    path: str | None = None
    live: list[ComponentDigest] = Field(default=[], description="the live digests of its save")


class BundleManifest(Model):
    """`manifest.json` of a bundle. Its own sha256 is the bundle's root."""

    schema_: str = Field(default=BUNDLE_SCHEMA, alias="schema")
    run: RunId
    segment: Uid
    rank: int = Field(ge=0)
    world_size: int = Field(ge=1)
    place: Place
    step: int = Field(description="the first bad step, as this rank saw it")
    done: int = Field(description="updates that were complete when the evidence was taken")
    at: Time
    alarm_record: Uid | None = None
    alarm: Alarm
    steps: list[BundleStep] = Field(
        default=[], description="the steps that the ring still held, oldest first"
    )
    state: BundleState | None = None
    last_good: BundleCheckpoint | None = Field(
        default=None, description="the latest complete checkpoint before the step, as far as was known then"
    )
    first_bad: BundleCheckpoint | None = Field(
        default=None, description="a checkpoint saved at or after the step"
    )
    contents: dict[str, str] = Field(default={}, description="file -> what it holds")
    left_out: dict[str, str] = Field(default={}, description="what was there and is not in it -> why")
    absent: dict[str, str] = Field(
        default={},
        description="what the training process could not give -> why, or the line that would give it",
    )
    limit: int = Field(description="bytes that it may have")
    files: list[FileEntry] = Field(description="every file but this one, digested with sha256")


class ReplayChange(Model):
    """One condition that was changed, and whether it really was."""

    name: str
    argument: str | None = None
    in_effect: Literal["yes", "no", "not_shown"] = Field(
        description="whether the run shows that the change did something: asking for it is not enough"
    )
    text: str


class ReplayValue(Model):
    """One number of the step, as it was recorded and as each replay gave it."""

    signal: str
    recorded: Float | None = None
    replayed: list[Float] = []
    equal: bool | None = Field(
        default=None, description="whether all are equal to the last bit; null: not comparable"
    )
    spread: Float | None = Field(
        default=None, description="highest minus lowest of the finite replayed values"
    )


class ReplayTensor(Model):
    """A gradient whose row differs from the recorded one."""

    tensor: str
    recorded_norm: Float | None = None
    replayed_norm: Float | None = None
    recorded_broken: int | None = Field(default=None, description="elements that are not finite")
    replayed_broken: int | None = None


class FirstNonFinite(Model):
    """The first value in the order of execution that is not finite."""

    phase: Literal["input", "forward", "loss", "backward", "gradient"]
    module: str | None = Field(default=None, description="clean name of the module, or of the parameter")
    cls: str | None = Field(default=None, alias="class", description="class of the module")
    operation: str | None = Field(default=None, description="the operator, such as aten.log.default")
    node: str | None = Field(default=None, description="the node of the backward pass, such as LogBackward0")
    place: int = Field(default=0, description="which of several outputs")
    largest: Float | None = Field(default=None, description="largest finite magnitude in it")
    largest_before: Float | None = Field(
        default=None, description="largest finite magnitude of what went into it"
    )
    broken: int | None = Field(default=None, description="elements that are not finite")
    elements: int | None = None
    text: str


class ReplayDistance(Model):
    """One component of the state that the replay began with, beside the recorded one."""

    component: str
    recorded: Digest | None = None
    replayed: Digest | None = None
    equal: bool | None = Field(default=None, description="null: not recorded, so it cannot be told")


class ReplayStart(Model):
    """What the replay began with, and how far that is from what the bad step began with."""

    source: Literal["bundle", "checkpoint", "built"] = Field(
        description="state in the bundle, a checkpoint, or the model as `build` gave it"
    )
    checkpoint: Uid | None = None
    step: int | None = Field(default=None, description="updates that it had seen")
    replayed_updates: int = Field(
        default=0, description="updates made again from recorded batches, up to the step"
    )
    updates_between: int | None = Field(
        default=None,
        description="updates between it and the recorded state that were not made; null: not known",
    )
    components: list[ReplayDistance] = []
    text: str


class FamilyEffect(Model):
    """What a replay does to one kind of cause. It raises or lowers; it proves nothing."""

    family: Family
    aspect: str | None = Field(
        default=None, description="precision, kernel, compiler, topology, timing, batch, ..."
    )
    direction: Literal["raises", "lowers"]
    text: str
    rule: str = Field(description="id of the rule")
    source: str = Field(description="where the rule is from")


class Replay(Model):
    """A step that was made again, with at most one thing changed unless it was forced."""

    kind: Literal["replay"] = "replay"
    uid: Uid
    bundle: Digest = Field(description="root of the bundle")
    first_bad_step: int
    first_bad_rank: int
    world_size: int = Field(description="of the replay; the segment record has that of the run")
    device: str
    given: list[str] = Field(
        default=[],
        description="what differs from the recorded run although nobody asked: one device, another torch",
    )
    changes: list[ReplayChange] = []
    confounded: bool = Field(
        default=False, description="several things were changed at once, so nothing is attributed"
    )
    result: Literal["reproduced", "not_reproduced", "inconclusive"]
    reason: str
    runs: int = Field(default=1, ge=0, description="how often the step was made")
    shown: int = Field(default=0, ge=0, description="in how many of them the recorded symptom showed")
    values: list[ReplayValue] = []
    tensors_compared: int = 0
    tensors_equal: int = 0
    tensors: list[ReplayTensor] = Field(default=[], description="the first that differ, at most 64")
    first_non_finite: list[FirstNonFinite] = Field(
        default=[],
        description="by module, by operation of the forward pass, by operation of the backward pass",
    )
    before: list[str] = Field(
        default=[], description="the values just before it, with their largest magnitude"
    )
    start: ReplayStart
    control: Uid | None = Field(
        default=None, description="the replay with nothing changed that it is held against"
    )
    flips: bool | None = Field(
        default=None,
        description="whether the symptom shows in one and not in the other; null: it cannot be told",
    )
    effects: list[FamilyEffect] = []
    limits: list[str] = Field(default=[], description="what this replay does not show")
    parameters: dict[str, Scalar] = Field(default={}, description="how it was run")
