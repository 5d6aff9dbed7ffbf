"""The checkpoint sidecar: what `lineage.json` in (or beside) a checkpoint holds."""

from __future__ import annotations

from pydantic import Field

from ._base import Model, RunId, Uid
from .checkpoints import Checkpoint, CheckpointMark
from .runs import Segment
from .snapshots import CodeState, Config, Effective, Environment

SIDECAR_SCHEMA = "lineage/sidecar/1-0-0"


class Sidecar(Model):
    """Enough to walk the lineage and to check a resume from the checkpoint folder alone.

    Rank 0 writes `lineage.json`; other ranks write `lineage.rank<r>.json` with what only they hold.
    """

    schema_: str = Field(default=SIDECAR_SCHEMA, alias="schema")
    run: RunId
    rank: int = 0
    segment: Segment
    checkpoint: Checkpoint
    ancestors: list[Uid] = Field(default=[], description="checkpoint uids, parent first")
    config: Config | None = None
    effective: Effective | None = None
    code: CodeState | None = None
    environment: Environment | None = None
    ledger: str | None = Field(default=None, description="the ledger folder when this was written")
    marks: list[CheckpointMark] = Field(
        default=[],
        description="later facts about this checkpoint, oldest first, as the ledger has them: no part of any digest",
    )
