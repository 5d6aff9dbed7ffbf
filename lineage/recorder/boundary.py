"""The boundary between a checkpoint and what runs now: restore, drift, regime, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..capture import edits
from ..judge import batches, firstbad, graph, validity
from ..judge import drift as drift_
from ..judge import regime as regime_
from ..judge.change import effective_change
from ..ledger import cells, layout
from ..ledger.reader import Ledger
from . import edited, mitigations, on_page, other_branch
from .contain import log
from .parent import Parent, read_parent, side_at

__all__ = ["Now", "Parent", "first_bad", "judge", "judge_in_run", "read_parent", "side_at", "write_verdict"]


MOVING = ("learning_rate", "lr_schedule", "betas", "eps", "weight_decay")
"""Concepts that a scheduler may move with each step."""


@dataclass
class Now:
    """The new side, gathered between attach and the end of the first step."""

    config: schemas.Config | None = None
    code: schemas.CodeState | None = None
    environment: schemas.Environment | None = None
    effective: schemas.Effective | None = None
    after_load: schemas.Effective | None = None
    restore: schemas.Restore | None = None
    first_step: int = 1
    batches: list[str] = field(default_factory=list)
    epoch: int | None = None
    """batches of an epoch, where the loader tells"""
    first_lr: float | None = None
    off_schedule: tuple[list[float], list[float]] | None = None
    """(rates the scheduler set, rates the param groups hold) before the first step, where they differ"""

    def side(self) -> drift_.Side:
        """The new side of the drift. The schedule is predicted from before the first step, as at the save."""
        ahead = self.after_load.lr_ahead if self.after_load else {}
        return drift_.Side(self.config, self.held(), self.code, self.environment, dict(ahead))

    def held(self) -> schemas.Effective | None:
        """The values in effect: what a step moves as it stood after the load, all else after the first step.

        The save was between two steps too; a momentum that a scheduler cycles, or a plateau's best value, is
        another one after each.
        """
        if self.effective is None or self.after_load is None:
            return self.effective
        early = {k: v for k, v in self.after_load.values.items() if k in MOVING or k.startswith("optimizer.")}
        by_hand = self.after_load.values.get("lr_schedule")
        if by_hand is not None and by_hand.read_from != "scheduler":
            early = {k: v for k, v in early.items() if k not in ("learning_rate", "lr_schedule")}
        return self.effective.model_copy(update={"values": {**self.effective.values, **early}})


def judge(writer: Any, parent: Parent | None, now: Now, declared: Sequence[drift_.Declared]) -> None:
    """Compare, and write drift, mitigation effects, regime and verdict. Runs on the worker thread of rank 0."""
    previous = None
    drift = None
    ledger = Ledger(writer.ledger)
    declared = mitigations.meant(declared, now.held())
    if parent is not None and parent.checkpoint is not None:
        previous = _regime_at(ledger, parent.checkpoint) or _of_other_run(writer, parent)
        extra, proven = other_branch.batch_evidence(ledger, writer, parent, now)
        rate = other_branch.rate_evidence(ledger, writer, now)
        beside = [rate_beside_schedule(*now.off_schedule)] if now.off_schedule else []
        extra, proven = [*extra, *rate[0], *beside], proven | rate[1]
        drift = drift_.drift(
            parent.side(),
            now.side(),
            from_step=now.first_step,
            restore=now.restore,
            declared=declared,
            parent=parent.checkpoint.uid,
            extra=extra,
        )
        if any(c.concept == "data_order" and c.text == x.text for c in drift.changes for x in extra):
            gaps = {**drift.not_shown, "data_mix": batches.OTHER_DATA}
            drift = drift.model_copy(update={"not_shown": gaps})
        if proven:
            gaps = {k: v for k, v in drift.not_shown.items() if k not in proven}
            drift = drift.model_copy(update={"not_shown": gaps})
        record = writer.write(drift, step=now.first_step)
        _say(drift)
        on_page.rolled_back(writer, ledger, parent.checkpoint)
        on_page.config_changed(writer, drift)
        mitigations.carry_on(writer, parent.checkpoint, now.held(), now.first_step)
        mitigations.judge(writer, declared, drift, now.held(), now.first_step, [record.id])
    else:
        mitigations.judge(writer, declared, None, now.held(), now.first_step)
        if now.off_schedule:
            off_schedule(writer, *now.off_schedule, now.first_step)
    held = now.held()
    if held is not None:
        opened = regime_.regime(held, now.first_step, previous, drift, carry_on=True)
        if opened is not None:
            writer.write(opened, step=now.first_step)
    write_verdict(writer)


def judge_in_run(
    writer: Any,
    before: schemas.Effective,
    after: schemas.Effective,
    step: int,
    declared: Sequence[drift_.Declared],
    found_edits: Sequence[edits.Found] = (),
) -> None:
    """Live values or objects changed between two steps of one segment. Runs on the worker thread of rank 0."""
    declared = mitigations.meant(declared, after)
    told = edited.told(found_edits, declared)
    found = drift_.drift(
        drift_.Side(effective=before),
        drift_.Side(effective=after),
        from_step=step,
        declared=declared,
        moment="in_run",
        extra=told.changes,
    )
    changes = [c for c in found.changes if not drift_.requested_only(c)]
    if not changes and not told.unclassified:
        return
    found = found.model_copy(
        update={"not_shown": told.not_shown, "changes": changes, "unclassified": told.unclassified}
    )
    record = writer.write(found, step=step)
    _say(found)
    relevant = [d for d in declared if any(c.concept == d.mitigation.concept for c in changes)]
    mitigations.judge(writer, relevant, found, after, step, [record.id])
    ledger = Ledger(writer.ledger)
    regimes = [r.payload for r in ledger.of("regime", writer.ids.segment)]
    opened = regime_.regime(after, step, regimes[-1] if regimes else None, found)
    if opened is not None:
        writer.write(opened, step=step)
    write_verdict(writer)


def rate_beside_schedule(said: list[float], held: list[float]) -> schemas.Change:
    """The change that a rate in the param groups is, when the scheduler set another one."""
    text = f"the optimizer uses the learning rate {held[0]:.6g}, the schedule says {said[0]:.6g}"
    source = "optimizer.param_groups[*]['lr'] against scheduler._last_lr"
    return effective_change("learning_rate", text, said, held, source)


def off_schedule(writer: Any, said: list[float], held: list[float], step: int) -> None:
    """The rate in the param groups is not the one that the scheduler set. Runs on the worker thread of rank 0."""
    change = rate_beside_schedule(said, held)
    found = schemas.Drift(
        moment="in_run", from_step=step, changes=[change], confounded=False, undeclared=[change.concept]
    )
    writer.write(found, step=step)
    _say(found)
    write_verdict(writer)


def went_back(writer: Any, last: int, step: int) -> None:
    """Steps are made again within one segment: nothing tells from which state. Runs on the worker thread."""
    text = f"the step went back from {last:,} to {step:,} within one segment, from a state that nothing shows"
    change = schemas.Change(concept="unclassified", cls="unclassified", title="step", text=text)
    writer.write(
        schemas.Drift(moment="in_run", from_step=step, changes=[], unclassified=[change], confounded=False),
        step=step,
    )
    log.warning("lineage: %s; name the checkpoint with rec.resumed_from(path) in a new process", text)
    write_verdict(writer)


def _say(drift: schemas.Drift) -> None:
    """One line in the log where a resume changed what results mean."""
    altering = [c for c in drift.changes if drift_.alters(c)]
    if altering:
        log.warning(
            "lineage: step %d begins a new regime: %s%s",
            drift.from_step,
            "; ".join(c.text for c in altering[:6]),
            ". Several changes at one restart: confounded." if drift.confounded else "",
        )


def _of_other_run(writer: Any, parent: Parent) -> schemas.Regime | None:
    """The regime in which another run saved the checkpoint, where its ledger lies beside this one.

    The fork's regimes are counted on from it: charts draw a fork's line on from its parent's.
    """
    if parent.checkpoint is None or parent.run in (None, writer.ids.run):
        return None
    beside = writer.ledger.parent / Path(str(parent.run)).name  # a name, wherever a sidecar would lead
    return _regime_at(Ledger(beside), parent.checkpoint) if (beside / "journal").is_dir() else None


def _regime_at(ledger: Ledger, checkpoint: schemas.Checkpoint) -> schemas.Regime | None:
    """The regime in which a checkpoint was saved, if this ledger holds it."""
    found = [r.payload for r in ledger.of("regime") if r.payload.id == checkpoint.regime]
    return found[-1] if found else None


def write_verdict(writer: Any) -> None:
    """Judge the newest state of this segment and write the verdict where it differs from the last one."""
    ledger = Ledger(writer.ledger)
    g = graph.build(ledger.records, reached=ledger.reached)
    bad = {r.segment: r.payload for r in ledger.of("first_bad")}
    found = validity.verdict(ledger.records, segment=writer.ids.segment, bad=bad, graph=g)
    last = next(
        (
            r.payload
            for r in reversed(ledger.records)
            if r.kind == "verdict" and r.segment == writer.ids.segment
        ),
        None,
    )
    if last is None or _gist(last) != _gist(found):
        writer.write(found)


def _gist(verdict: schemas.Verdict) -> Any:
    return [(c.claim, c.status, c.reason) for c in verdict.claims]


def first_bad(writer: Any) -> schemas.FirstBad | None:
    """The first bad cell of this segment over all ranks whose alarms the ledger shows."""
    ledger = Ledger(writer.ledger)
    segment = writer.ids.segment
    alarms = [c for c in firstbad.from_alarms(ledger.records) if c.segment == segment]
    if not alarms:
        return None
    if sum(p.stat().st_size for p in layout.series_folder(ledger.path).glob("*/*.*")) <= MOST_BYTES:
        return cells.find(ledger).first_bads.get(segment)
    g = graph.build(ledger.records, reached=ledger.reached)
    seen = firstbad.Seen(
        ranks={r.rank: firstbad.RankSeen() for r in ledger.records if r.segment == segment},
        world=g.segments[segment].world_size if segment in g.segments else None,
    )
    found = firstbad.first_bad(g, segment, alarms, seen)
    return found if found.cell is not None else None


MOST_BYTES = 1 << 25
"""Bytes of series up to which the end of a segment looks at all values; above, `lineage first-bad` does so later."""
