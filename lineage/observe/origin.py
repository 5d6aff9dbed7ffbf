"""Where an observed run comes from: which lineage run it is, how its segment began, and from which checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from .._rooms import schemas
from ..judge import drift as drift_
from ..judge import graph
from ..ledger import reader
from ..recorder import boundary
from ..recorder.identity import Source
from ..recorder.settings import Settings
from ..recorder.written import stat_of
from . import known
from .saves import Stat

OPTIMIZER_NAMES = ("optim", "opt_state", "exp_avg")
"""Parts of the names under which optimizer state is saved: with it a load is a resume, without it it may be a
fork, an evaluation or a fine-tuning."""


@dataclass
class Loaded:
    """One load that was seen, and the checkpoint that it is taken for."""

    path: str
    by: str
    at: float
    components: dict[str, Any]
    stat: Stat = None
    found: known.Found | None = None
    parent: boundary.Parent | None = None

    @property
    def whole(self) -> bool:
        """Whether optimizer state was among what was read."""
        names = [*self.components, Path(self.path).name]
        return any(part in n.lower() for n in names for part in OPTIMIZER_NAMES) or (
            "optimizer" in self.components.values()
        )

    @property
    def checkpoint(self) -> schemas.Checkpoint | None:
        """The checkpoint that it is taken for."""
        return self.parent.checkpoint if self.parent else None

    def record(self) -> schemas.Load:
        """The record of it."""
        c = self.checkpoint
        evidence = self.found.evidence if self.found else "path" if c else "none"
        if c is None:
            text = f"{self.by} read {self.path}, which no ledger at hand knows as a checkpoint"
        else:
            by = (
                "by its content"
                if evidence == "content"
                else "by its place"
                if self.found
                else "by its sidecar"
            )
            text = f"{self.by} read {self.path}: the checkpoint of step {c.step:,}, recognised {by}"
        return schemas.Load(
            path=self.path,
            by=self.by,
            checkpoint=c.uid if c else None,
            run=self.parent.run if self.parent else None,
            step=c.step if c else None,
            evidence=evidence,
            components=list(self.components)[:64],
            text=text,
        )


def look_up(load: Loaded, root: Path, rank: int) -> Loaded:
    """Find out which checkpoint was read: from its sidecar, else from the ledgers of this machine.

    At once, since the next save may overwrite it. Only rank 0 digests what all ranks read.
    """
    path = Path(load.path)
    for place in (path, path.parent):
        told = boundary.read_parent(place, rank)
        if told.checkpoint is not None:
            told.evidence = "loaded"
            load.parent = told
            return load
    as_read = load.stat is None or stat_of(load.path) == load.stat
    load.found = known.checkpoint(
        root,
        path,
        before=datetime.fromtimestamp(load.at, UTC),
        size=load.stat[2] if load.stat else None,
        content=rank == 0 and as_read,
    )
    if load.found is not None:
        ledger, node = load.found.ledger, load.found.node
        load.parent = boundary.Parent(
            node.checkpoint.path or load.path,
            run=ledger.run,
            checkpoint=node.checkpoint,
            evidence="loaded",
            told=boundary.side_at(ledger.records, node),
        )
    return load


@dataclass
class Origin:
    """What was decided, and on what it rests."""

    run: str | None
    source: Source
    start: Literal["fresh", "resume", "fork", "rewind", "unknown"]
    parent: boundary.Parent | None = None
    before: drift_.Side | None = None
    """the old side where no checkpoint is known: the last segment of the same run"""
    gaps: list[str] = field(default_factory=list)


def decide(
    settings: Settings,
    aliases: Sequence[schemas.TrackerAlias],
    asked: dict[str, Any],
    loads: Sequence[Loaded],
    root: Path,
) -> Origin:
    """Decide from settings, the tracker's run, what was asked of it, and the checkpoints that were read before."""
    best = max((x for x in loads if x.checkpoint), key=lambda x: (x.whole, x.at), default=None)
    ledger = next((found for a in aliases if (found := known.by_alias(root, a))), None)
    if settings.run_id is not None:
        source: Source = "environment" if settings.sources.get("run_id") == "LINEAGE_RUN_ID" else "argument"
        origin = Origin(settings.run_id, source, "fresh")
        ledger = _ledger(root / settings.run_id) or ledger
    elif ledger is not None and not asked.get("fork_from"):
        origin = Origin(ledger.run, "tracker", "resume")
    elif best is not None and best.whole and not asked.get("fork_from"):
        origin = Origin(best.parent.run if best.parent else None, "loaded", "resume")
    else:
        origin = Origin(None, "new", "fresh")
    _begin(origin, asked, best, ledger)
    _old_side(origin, ledger, root)
    return origin


def _begin(origin: Origin, asked: dict[str, Any], best: Loaded | None, ledger: reader.Ledger | None) -> None:
    """Say how the segment began."""
    goes_on = ledger is not None and bool(ledger.segments)
    if best is not None:
        origin.parent = best.parent
        same = best.parent is not None and best.parent.run in (origin.run, None)
        if same and best.whole:
            origin.start = "resume"
        elif same and goes_on:
            origin.start = "resume"
            origin.gaps.append(
                "the checkpoint was read without optimizer state: whether that was restored is not shown"
            )
        else:
            origin.start = "fork"
            origin.gaps.append(
                "a checkpoint was read without optimizer state, or by another run: a fork, a fine-tuning or an "
                "evaluation, which of them is not shown"
            )
    elif origin.source == "tracker" or asked.get("resumed"):
        origin.start = "resume"
    elif goes_on:
        origin.start = "unknown"
    if asked.get("fork_from"):
        origin.start = "fork"
    elif asked.get("resume_from"):
        origin.start = "rewind"
    if origin.start in ("resume", "rewind", "unknown") and best is None:
        origin.gaps.append(
            "the run goes on, and no load of a checkpoint that a ledger knows was seen: from which state, is not "
            "shown; rec.resumed_from(path) would show it"
        )


def _ledger(path: Path) -> reader.Ledger | None:
    try:
        return reader.open_ledger(path)
    except reader.LedgerNotFound:
        return None


def _old_side(origin: Origin, ledger: reader.Ledger | None, root: Path) -> None:
    """Where a run goes on without a known checkpoint, the old side is how its last segment began."""
    if origin.parent is not None or origin.start not in ("resume", "rewind", "unknown"):
        return
    if ledger is None and origin.run is not None:
        ledger = _ledger(root / origin.run)
    if ledger is None or not ledger.segments:
        return
    last = ledger.segments[-1].uid
    kinds = ("effective", "code", "environment")
    found: dict[str, Any] = {k: graph.latest(ledger.records, k, last) for k in kinds}
    sides: dict[str, Any] = {k: r.payload if r else None for k, r in found.items()}
    origin.before = drift_.Side(config=settled(ledger.records, last), **sides)


def settled(records: Sequence[schemas.Record], segment: str) -> schemas.Config | None:
    """The config of a segment: as it stood at the first row, with the values that were changed since.

    Keys that came only later are results and the like, put beside the settings when training was over; a new
    segment that has not come so far does not lack them.
    """
    first = graph.latest(records, "config", segment, first=True)
    last = graph.latest(records, "config", segment)
    if first is None or last is None:
        return None
    values = {k: last.payload.values.get(k, v) for k, v in first.payload.values.items()}
    config: schemas.Config = first.payload.model_copy(update={"values": values})
    return config
