"""Quarantine while a run goes on: marks on checkpoints from after the first bad step, and a warning at a resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..judge import quarantined
from ..judge.quarantined import Quarantine, Quarantined, quarantine
from ..ledger import layout, sidecars
from ..ledger.reader import Ledger
from . import findings
from .contain import log
from .parent import Parent
from .writer import Writer

Write = Callable[..., schemas.Envelope]


def mark(w: Writer) -> None:
    """Mark every checkpoint of this ledger that is quarantined by rule and carries no mark. Rank 0, on closing."""
    found = quarantine(Ledger(w.ledger).records)
    for q in found.unmarked:
        mark_one(q, w.write)


def mark_one(q: Quarantined, write: Write, why: str | None = None) -> bool:
    """Mark one checkpoint in the ledger, and in its sidecar. Returns whether the sidecar has it."""
    fact = schemas.CheckpointMark(
        checkpoint=q.checkpoint, mark="quarantined", why=why or q.why, evidence=list(q.evidence)
    )
    write(fact, caused_by=list(q.evidence))
    path = q.node.checkpoint.path if q.node else None
    return path is not None and beside(Path(path), fact)


def beside(path: Path, fact: schemas.CheckpointMark) -> bool:
    """Add a mark to a checkpoint's sidecar, if it has one that can be written. Returns whether it stands there."""
    try:
        return sidecars.mark(path, fact)
    except (OSError, sidecars.SidecarError) as e:
        log.warning(
            "lineage: the mark %s could not be written beside %s (%s); the ledger has it", fact.mark, path, e
        )
        return False


def saved(w: Writer, record: schemas.Checkpoint, path: Path) -> None:
    """A checkpoint was saved by a segment that resumed from a quarantined one: it is quarantined too, at once."""
    if w.quarantined is not None and w.world.rank == 0:
        fact = schemas.CheckpointMark(
            checkpoint=record.uid, mark="quarantined", why=f"it descends from {w.quarantined}"
        )
        w.write(fact, step=record.step)
        beside(path, fact)


def say_parent(w: Writer, parent: Parent) -> None:
    """What is wrong with the checkpoint that was named goes to the log and to the ledger."""
    text = parent.said(w.ledger.parent)
    if text:
        w.write(schemas.TrackerNote(code="LIN-C001", tracker="ledger", text=text))
        log.warning("lineage: %s", text)
    w.tasks.put(lambda: warn(w, parent))


def warn(w: Writer, parent: Parent) -> None:
    """A resume from a quarantined checkpoint is said loudly, and recorded as a finding. Once per checkpoint.

    Asked are this ledger, the sidecar of the checkpoint, and the ledger of the run that saved it, where it is at hand.
    """
    if parent.checkpoint is None or w.world.rank != 0 or parent.checkpoint.uid in w.warned:
        return
    own = quarantine(Ledger(w.ledger).records)
    told = _told(w, parent, own)
    if told is None:
        return
    q, source, known = told
    w.warned.add(q.checkpoint)
    step = parent.checkpoint.step
    root = q.origin or q
    reason = "for a reason that a person gave" if root.by_hand else root.why
    w.quarantined = f"the quarantined checkpoint of step {step:,} ({q.checkpoint}): {reason}"
    finding = quarantined.of_resume(q, step, known, f"marked so in {source}" if q.since else None)
    findings.say(w, finding, None)
    log.warning("lineage: RESUMED FROM A QUARANTINED CHECKPOINT. Next: %s", finding.remedy)
    if q.checkpoint not in own.graph.nodes and q.checkpoint not in own.bad:
        # So that this ledger alone tells what descends from it.
        w.write(
            schemas.CheckpointMark(
                checkpoint=q.checkpoint,
                mark="quarantined",
                why=f"{q.why}, as {source} says",
                by="person" if root.by_hand else "layer",
            )
        )


def _told(w: Writer, parent: Parent, own: Quarantine) -> tuple[Quarantined, str, Quarantine | None] | None:
    """Who says that the parent is quarantined: (what, who, all that the teller knows). A ledger's word counts first."""
    assert parent.checkpoint is not None
    uid = parent.checkpoint.uid
    if uid in own.lifted:
        return None
    if uid in own.bad:
        return own.bad[uid], "this ledger", own
    theirs = _other(w, parent)
    if theirs is not None and uid in theirs.lifted:
        return None
    if theirs is not None and uid in theirs.bad:
        return theirs.bad[uid], f"the ledger of run {parent.run}", theirs
    state = _in_sidecar(parent)
    if state is not None:
        return state, "the checkpoint's lineage.json", theirs
    above = parent.sidecar.ancestors if parent.sidecar else []
    for ancestor in above:
        q = own.bad.get(ancestor) or (theirs.bad.get(ancestor) if theirs else None)
        if q is not None:
            why = f"it descends from the quarantined checkpoint {ancestor}: {q.why}"
            known = theirs if theirs and ancestor in theirs.bad else own
            return Quarantined(uid, why, q.evidence, since=q.since, origin=q), "a ledger at hand", known
    return None


def _in_sidecar(parent: Parent) -> Quarantined | None:
    """What the marks in the sidecar say of the checkpoint, the newest last."""
    assert parent.checkpoint is not None
    found: Any = None
    for m in parent.sidecar.marks if parent.sidecar else ():
        if m.mark == quarantined.LIFTED:
            found = None
        elif m.mark in quarantined.BAD:
            found = m
    if found is None or found.checkpoint != parent.checkpoint.uid:
        return None
    # When it was marked is not told; that it was, before this process read it, is.
    return Quarantined(
        found.checkpoint, found.why, marked=True, since=schemas.now(), by_hand=found.by == "person"
    )


def _other(w: Writer, parent: Parent) -> Quarantine | None:
    """What the ledger of the run that saved it tells, where it is at hand and is not this one."""
    told = [
        parent.found_in,
        Path(parent.sidecar.ledger) if parent.sidecar and parent.sidecar.ledger else None,
    ]
    if parent.run:
        told.append(w.ledger.parent / parent.run)
    for ledger in told:
        if ledger is None or not layout.is_ledger(ledger):
            continue
        if ledger.absolute() == w.ledger.absolute():
            continue
        with contextlib.suppress(OSError):
            return quarantine(Ledger(ledger).records)
    return None
