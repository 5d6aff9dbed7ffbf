"""What other branches of the run show of the first update after a resume: its batch, its rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import batches, graph
from ..judge import drift as drift_
from ..ledger.reader import Ledger

if TYPE_CHECKING:
    from .boundary import Now
    from .parent import Parent


def rate_evidence(ledger: Ledger, writer: Any, now: Now) -> tuple[list[schemas.Change], set[str]]:
    """A rate that the training code moves itself: compare the first update's with the other branch's at that step."""
    held = now.held()
    if held is None or "learning_rate" not in held.unseen or now.first_lr is None:
        by_hand = held is not None and held.values.get("lr_schedule")
        if not by_hand or by_hand.read_from == "scheduler" or now.first_lr is None:
            return [], set()
    table = ledger.series("probes", ["segment", "rank", "step", "signal", "value"])
    here = pc.and_(pc.equal(table["signal"], "lr"), pc.equal(table["step"], now.first_step))
    known = _of_others(table.filter(here), writer).column("value").to_pylist()
    return batches.first_rate(now.first_lr, known[-1] if known else None, now.first_step)


def _of_others(table: Any, writer: Any) -> Any:
    """The rows of this rank in other segments."""
    mine = pc.equal(table["rank"], writer.world.rank)
    return table.filter(pc.and_(mine, pc.not_equal(table["segment"], writer.ids.segment)))


def batch_evidence(
    ledger: Ledger, writer: Any, parent: Parent, now: Now
) -> tuple[list[schemas.Change], set[str]]:
    """Look the first batch up on the path to the checkpoint and on the branch that came after it.

    Same place, skipped, read again, or elsewhere.
    """
    assert parent.checkpoint is not None
    if not now.batches or now.restore is None:
        return [], set()
    position = next((c for c in now.restore.components if c.component == "loader_position"), None)
    recorded = position is not None and position.status != "not_recorded"
    if recorded and position is not None and position.status != "restored":
        return [], set()  # skipped or read again: told as what was not restored
    if recorded and _cut_otherwise(parent, now):
        return [], set()
    table = _of_others(ledger.series("batches", ["segment", "rank", "step", "micro", "digest"]), writer)
    if not recorded:
        table = table.filter(pc.equal(table["micro"], 0))
    g = graph.build(ledger.records, reached=ledger.reached)
    with_step = table.filter(pc.equal(table["step"], now.first_step))
    other = _other_branch(ledger, g, parent.checkpoint, set(with_step["segment"].to_pylist()))
    after = with_step.filter(pc.equal(with_step["segment"], other or "")).sort_by("micro")
    at_step = after.column("digest").to_pylist()
    known = _steps_of(table, now.batches if recorded else now.batches[:1], g, parent.checkpoint, other)
    if recorded:
        return batches.same_place(now.batches, known, at_step, now.first_step), set()
    there = at_step[0] if at_step else None
    return batches.first_batch(now.batches[0], known, now.first_step, there=there, epoch=now.epoch)


def _steps_of(
    table: Any, digests: list[str], g: graph.Graph, checkpoint: schemas.Checkpoint, other: str | None
) -> dict[str, set[int]]:
    """Where batches stood on the way to the checkpoint, and on the branch that went on from it."""
    upto: dict[str, int | None] = {s.segment: s.upto for s in g.path_to(checkpoint.uid)}
    if other is not None:
        upto[other] = None
    known: dict[str, set[int]] = {}
    for digest in dict.fromkeys(digests):
        for row in table.filter(pc.equal(table["digest"], digest)).to_pylist():
            last = upto.get(row["segment"], 0)
            if last is None or row["step"] <= last:
                known.setdefault(digest, set()).add(row["step"])
    return known


def _cut_otherwise(parent: Parent, now: Now) -> bool:
    """The samples are divided into batches in another way, or chosen anew: a batch cannot be another's equal."""
    sides = (parent.side(), now.side())
    for concept in ("micro_batch", "seq_len", "world_size", "data_mix", "data_order"):
        a, b = (side.value(concept) for side in sides)
        if a is not None and b is not None and a.value != b.value:
            return True
    return False


DATA = ("data_mix", "data_order", "batch_skip", "loader_position")
"""Concepts whose change at a boundary makes a branch's batches its own."""


def _other_branch(
    ledger: Ledger, g: graph.Graph, checkpoint: schemas.Checkpoint, made: set[str]
) -> str | None:
    """Which of the segments that made a step shows what should come after a checkpoint.

    The one that saved it, where it went on; else the newest that resumed from it and kept its data.
    """
    node = g.nodes.get(checkpoint.uid)
    if node is not None and node.segment in made:
        return node.segment
    changed = {
        r.segment
        for r in ledger.of("drift")
        if any(c.concept in DATA and not drift_.requested_only(c) for c in r.payload.changes)
    }
    resumed = [s for s, info in g.segments.items() if info.parent_checkpoint == checkpoint.uid]
    return next((s for s in reversed(resumed) if s in made and s not in changed), None)
