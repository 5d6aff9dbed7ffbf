"""The retention gate: which evidence of an incident is held, and what a recovery has to wait for.

Evidence that was never recorded cannot be waited for: it is named, and holds nothing up. What is there and is not
held, or was there and is gone, does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .._rooms import schemas
from .graph import Graph
from .incident_life import Life

RANK_FILES = "rank files"
BATCH = "first bad batch"


@dataclass(frozen=True)
class Held:
    """What the disk tells, that no record does."""

    stored: Callable[[schemas.Preserved], bool]
    """whether what a record of kept evidence names is there"""
    bundle: Callable[[schemas.Bundle], bool]
    captured: Callable[[str], bool]
    """whether batches of a segment were captured and are there"""
    there: Callable[[str], bool]
    """whether a checkpoint's path is there"""


@dataclass(frozen=True)
class Gate:
    """All evidence of an incident, what is required first."""

    items: tuple[schemas.EvidenceState, ...]

    @property
    def missing(self) -> list[schemas.EvidenceState]:
        """What a recovery waits for."""
        return [e for e in self.items if e.required and e.state in ("missing", "gone")]

    @property
    def is_open(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    @property
    def wanting(self) -> list[schemas.EvidenceState]:
        """What is not held and holds nothing up."""
        return [e for e in self.items if e.state != "held" and e not in self.missing]


def gate(
    records: Sequence[schemas.Record],
    life: Life,
    graph: Graph,
    bad: schemas.FirstBad | None,
    held: Held,
    run: str,
) -> Gate:
    """Look at the evidence of an incident. `run` names it in the commands of the remedies."""
    look = _Look(records, life, graph, bad, held, run)
    return Gate(
        (
            look.checkpoint("last good checkpoint", look.last_good, "was recorded before the first bad step"),
            look.first_bad_checkpoint(),
            look.batch(),
            look.rank_files(),
            *look.conditions(),
            look.ranks(),
            look.machines(),
        )
    )


class _Look:
    def __init__(
        self,
        records: Sequence[schemas.Record],
        life: Life,
        graph: Graph,
        bad: schemas.FirstBad | None,
        held: Held,
        run: str,
    ) -> None:
        self._life, self._graph, self._held, self._run = life, graph, held, run
        self._mine = [r for r in records if r.segment == life.segment]
        self._kept = {r.id: r for r in records if r.kind == "preserved"}
        cell = bad.cell if bad else None
        self.step = life.latest.first_bad_step if cell is None else cell.step
        self.rank = life.latest.first_bad_rank if cell is None else cell.rank
        self.last_good = (bad and bad.last_good_checkpoint) or life.latest.last_good_checkpoint
        self.first_bad = bad.first_bad_checkpoint if bad else None
        self._preserve = f"lineage incident preserve {run}"

    def checkpoint(self, what: str, uid: str | None, when: str) -> schemas.EvidenceState:
        """A checkpoint: held where a copy of it, or itself out of the rotation's reach, is on record and there."""
        if uid is None:
            if self.step is None:
                return schemas.EvidenceState(
                    what=what,
                    state="missing",
                    required=True,
                    text="it is not known from which step on the run is bad, so it cannot be told which one it is",
                    remedy=f"lineage incident note {self._run} --step STEP",
                )
            return schemas.EvidenceState(what=what, state="none", required=True, text=f"no checkpoint {when}")
        node = self._graph.nodes.get(uid)
        if node is None:
            text = f"the checkpoint {uid} is not in this ledger"
            return schemas.EvidenceState(what=what, state="gone", required=True, text=text, records=[uid])
        name = f"step {node.checkpoint.step:,}"
        marks = [
            m for m in node.marks if m.mark == "preserved"
        ]  # a release takes nothing away that is stored
        evidence = [self._kept[e].payload for m in marks for e in m.evidence if e in self._kept]
        stored = [p for p in evidence if self._held.stored(p)]
        if stored:
            places = ", ".join(dict.fromkeys(p.at or p.location for p in stored))
            return schemas.EvidenceState(
                what=what,
                state="held",
                required=True,
                text=f"{name}: {places}",
                records=[e for m in marks for e in m.evidence],
            )
        if evidence:
            text = f"{name} was kept, and what was kept is not there any more"
            return schemas.EvidenceState(
                what=what, state="gone", required=True, text=text, remedy=self._preserve
            )
        path = node.checkpoint.path
        deleted = node.deleted
        if path and self._held.there(path) and not deleted:
            text = f"{name} lies at {path}, where rotation or a later save may reach it"
            return schemas.EvidenceState(
                what=what, state="missing", required=True, text=text, remedy=self._preserve
            )
        text = f"{name} was at {path or 'a path that is not recorded'}, and is not there any more"
        return schemas.EvidenceState(what=what, state="gone", required=True, text=text)

    def first_bad_checkpoint(self) -> schemas.EvidenceState:
        """The first one from after it. That there is none is good, and nothing is missing."""
        found = self.checkpoint(
            "first bad checkpoint", self.first_bad, "was saved at or after the first bad step"
        )
        return found.model_copy(update={"required": False}) if found.state == "none" else found

    def batch(self) -> schemas.EvidenceState:
        """The batches of the first bad step: in a bundle, or captured and kept."""
        bundles = [r for r in self._mine if r.kind == "bundle" and self._of_step(r.payload)]
        there = [r for r in bundles if self._held.bundle(r.payload)]
        if there:
            best = next((r for r in there if r.rank == self.rank), there[0])
            p: schemas.Bundle = best.payload
            state = ", with weights and optimizer state" if p.state else ", without weights"
            text = f"bundle of rank {best.rank}, step {p.first_bad_step:,}{state}: {p.location}"
            return schemas.EvidenceState(
                what=BATCH, state="held", required=True, text=text, records=[best.id]
            )
        kept = [
            r for r in self._mine if r.kind == "preserved" and r.payload.what == BATCH and self._is_there(r)
        ]
        if kept:
            text = f"captured batches: {kept[-1].payload.location}"
            return schemas.EvidenceState(
                what=BATCH, state="held", required=True, text=text, records=[kept[-1].id]
            )
        if bundles:
            text = f"a bundle was written to {bundles[-1].payload.location}, and is not there any more"
            return schemas.EvidenceState(
                what=BATCH, state="gone", required=True, text=text, records=[bundles[-1].id]
            )
        if self._held.captured(self._life.segment):
            text = "batches were captured at the alarm, and are not in the evidence store"
            return schemas.EvidenceState(
                what=BATCH, state="missing", required=True, text=text, remedy=self._preserve
            )
        return schemas.EvidenceState(
            what=BATCH,
            state="none",
            required=True,
            text="no rank kept the batch of the first bad step",
            remedy="with rec.step(step, batch):",
        )

    def _of_step(self, bundle: schemas.Bundle) -> bool:
        return self.step is None or bundle.first_bad_step == self.step or self.step in bundle.steps

    def _is_there(self, record: schemas.Record) -> bool:
        return self._held.stored(record.payload)

    def rank_files(self) -> schemas.EvidenceState:
        """The journals and series of all ranks, as they were."""
        kept = [r for r in self._mine if r.kind == "preserved" and r.payload.what == RANK_FILES]
        there = [r for r in kept if self._is_there(r)]
        if there:
            text = f"{there[-1].payload.files:,} files: {there[-1].payload.location}"
            return schemas.EvidenceState(
                what=RANK_FILES, state="held", required=True, text=text, records=[there[-1].id]
            )
        text = "journals and series of the ranks are not in the evidence store"
        if kept:
            text = f"what was kept in {kept[-1].payload.location} is not there any more"
        return schemas.EvidenceState(
            what=RANK_FILES, state="missing", required=True, text=text, remedy=self._preserve
        )

    def conditions(self) -> list[schemas.EvidenceState]:
        """What the run was: as its records tell."""
        out = []
        for what, kind, line in (
            ("code and its uncommitted changes", "code", "start it from a git checkout"),
            ("environment", "environment", "lineage.attach(run, ...) on rank 0"),
            ("requested config", "config", "lineage.attach(run, config=config)"),
            ("effective values", "effective", "lineage.attach(run, model=model, optimizer=optimizer)"),
        ):
            found = [r.id for r in self._mine if r.kind == kind]
            out.append(
                schemas.EvidenceState(
                    what=what,
                    state="held" if found else "none",
                    required=False,
                    text="on record" if found else f"no {kind} record of this segment",
                    remedy=None if found else line,
                    records=found[-1:],
                )
            )
        return out

    def ranks(self) -> schemas.EvidenceState:
        """Whether all ranks left records."""
        info = self._graph.segments.get(self._life.segment)
        there = {r.rank for r in self._mine if r.kind == "segment"}
        wanted = info.world_size if info else 1
        if len(there) >= wanted:
            return schemas.EvidenceState(
                what="all ranks", state="held", required=False, text=f"{len(there)} of {wanted} left records"
            )
        gone = sorted(set(range(wanted)) - there)
        names = ", ".join(map(str, gone[:8])) + (f" and {len(gone) - 8} more" if len(gone) > 8 else "")
        text = f"rank {names} left no record in this ledger (LIN-J013)"
        remedy = "copy the ledger folders of their machines into this one: each writer has a file of its own"
        return schemas.EvidenceState(what="all ranks", state="none", required=False, text=text, remedy=remedy)

    def machines(self) -> schemas.EvidenceState:
        """Whether anything tells what the machines did."""
        watched = [
            text
            for r in self._mine
            if r.kind == "coverage"
            for text in r.payload.recorded
            if text.startswith("hardware events")
        ]
        events = [r.id for r in self._mine if r.kind == "event"]
        if events or watched:
            text = f"{len(events)} events on record" + (f"; {watched[0]}" if watched else "")
            return schemas.EvidenceState(
                what="hardware events", state="held", required=False, text=text, records=events[-1:]
            )
        return schemas.EvidenceState(
            what="hardware events",
            state="none",
            required=False,
            text="nothing tells what machines and links did",
            remedy=f"lineage events import FILE... --into {self._run}",
        )
