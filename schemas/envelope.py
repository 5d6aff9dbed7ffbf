"""The one envelope of all records, and the union of what it may carry."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ._base import Digest, Float, Model, RunId, Time, Uid
from .agreement import Agreement
from .checkpoints import Checkpoint, CheckpointMark, Evaluation, Load, Preserved, Restore
from .events import Event
from .findings import Finding
from .incidents import Incident, Recovery, RootCause, Trajectory
from .judgements import Alarm, Drift, FirstBad, Mitigation, MitigationEffect, Regime, Verdict
from .replays import Bundle, Replay
from .reported import Reported, ReportedJudgement
from .rungs import Rung
from .runs import (
    Anchor,
    Coverage,
    Degraded,
    JournalHeader,
    Run,
    Seal,
    Segment,
    SegmentEnd,
    TrackerNote,
)
from .snapshots import CodeState, Config, Effective, Environment

RECORD_SCHEMA = "lineage/record/1-0-0"
"""Name and MODEL-REVISION-ADDITION of the envelope with its payloads."""

PAYLOADS: tuple[type[Model], ...] = (
    JournalHeader,
    Run,
    Segment,
    SegmentEnd,
    Config,
    Effective,
    CodeState,
    Environment,
    Coverage,
    Checkpoint,
    CheckpointMark,
    Load,
    Restore,
    Drift,
    Regime,
    Mitigation,
    MitigationEffect,
    Verdict,
    Alarm,
    FirstBad,
    Incident,
    Preserved,
    Evaluation,
    Seal,
    Anchor,
    Degraded,
    TrackerNote,
    Reported,
    ReportedJudgement,
    Finding,
    Event,
    Agreement,
    Bundle,
    Replay,
    RootCause,
    Recovery,
    Trajectory,
    Rung,
)

Payload = Annotated[
    JournalHeader
    | Run
    | Segment
    | SegmentEnd
    | Config
    | Effective
    | CodeState
    | Environment
    | Coverage
    | Checkpoint
    | CheckpointMark
    | Load
    | Restore
    | Drift
    | Regime
    | Mitigation
    | MitigationEffect
    | Verdict
    | Alarm
    | FirstBad
    | Incident
    | Preserved
    | Evaluation
    | Seal
    | Anchor
    | Degraded
    | TrackerNote
    | Reported
    | ReportedJudgement
    | Finding
    | Event
    | Agreement
    | Bundle
    | Replay
    | RootCause
    | Recovery
    | Trajectory
    | Rung,
    Field(discriminator="kind"),
]


class Envelope(Model):
    """One line of a journal: who says what, when, and after which line."""

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    id: Uid = Field(description="UUIDv7 of this record")
    run: RunId = Field(description="the lineage run id")
    segment: Uid
    rank: int = Field(ge=0, description="global rank within the segment")
    step: int | None = Field(default=None, description="completed optimizer updates when it was written")
    at: Time
    mono: Float = Field(description="seconds on the process's monotonic clock")
    seq: int = Field(ge=0, description="number of the line in its file, from 0")
    prev: Digest | None = Field(description="sha256 of the raw bytes of the line before; null on the first")
    payload: Payload
    caused_by: list[Uid] = Field(default=[], description="records that led to this one")
    supersedes: Uid | None = Field(default=None, description="the record that this one corrects")
    facets: dict[str, dict[str, Any]] = Field(
        default={}, description="extensions by others: {prefix}_{name}, each with its own `_schema`"
    )

    def to_line(self) -> bytes:
        """Return the raw line, without its newline."""
        return self.model_dump_json(by_alias=True, exclude_defaults=False).encode()


PAYLOAD_ADAPTER: TypeAdapter[Any] = TypeAdapter(Payload)
