"""The first bad cell: the earliest abnormal one over ranks, steps, layers and tensors, and how it spread.

Pure, and content with little: the cells that detectors found, and a summary of each rank. All values are never
needed here, so a ledger of thousands of ranks is judged by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._rooms import schemas
from . import symptoms
from .cells import Point, cells, from_alarms, merged, searching, words
from .execution import EVALUATION, LOCAL, ORDER, SIGNALS, STATE, is_certain, key, listed, ranks, same_place
from .graph import Graph, Node
from .seen import RankSeen, Seen, gaps
from .spread import later, spread, unlike

__all__ = [
    "ORDER",
    "SIGNALS",
    "Point",
    "RankSeen",
    "Seen",
    "cells",
    "first_bad",
    "first_cell",
    "from_alarms",
    "merged",
    "searching",
    "words",
]

TOGETHER = 1
"""Steps between cells that belong to one stretch."""


def first_bad(
    graph: Graph,
    segment: str,
    found: Iterable[schemas.Cell],
    seen: Seen | None = None,
    samples: Sequence[schemas.BadSample] = (),
) -> schemas.FirstBad:
    """Find the first bad cell of a segment.

    Earliest step first; within a step in order of execution (`execution.ORDER`), non-finite before out of range,
    then in order of arrival. Cells of other ranks at the same place in the order are ties and are all named.

    `seen`: a summary of the ranks, by which gaps, spread and the class are told; see `Seen`.
    `samples`: the samples of the first cell's rank and step whose own loss is abnormal.
    """
    seen = seen or Seen()
    ordered = sorted(merged(c for c in found if c.segment == segment), key=key)
    first = first_cell(ordered)
    if first is None:
        return schemas.FirstBad(cell=None, gaps=gaps(seen, None))
    sooner = [c for c in ordered if c.signal.startswith(EVALUATION) and key(c) < key(first)]
    ordered = [c for c in ordered if key(c) >= key(first)]
    ties = [c for c in ordered if c is not first and c.rank != first.rank and same_place(c, first)]
    good = first.step - 1 if first.last_good is None else first.last_good
    before = [n for n in graph.before(segment, good) if not n.bad and not n.deleted]
    after = [n for n in graph.nodes.values() if n.segment == segment and n.checkpoint.step >= first.step]
    beside = unlike(seen.values_at(first), first) if seen.values_at else []
    rank = seen.ranks.get(first.rank)
    result = schemas.FirstBad(
        cell=first,
        ties=ties,
        place=rank.place if rank else None,
        last_good_step=good,
        last_good_checkpoint=_good_checkpoint(first, before, seen),
        first_bad_checkpoint=min(after, key=lambda n: n.checkpoint.step).uid if after else None,
        spread=[*_sooner(sooner), *beside, *spread(first, ordered, seen)],
        later=later(first, ties, ordered, seen.same_until),
        samples=list(samples),
        gaps=gaps(seen, first.step),
        not_shown=[
            *_not_shown(first, ties, ordered, seen, samples),
            *_state(first, seen, [n.checkpoint.step for n in before]),
        ],
    )
    return result.model_copy(update={"symptoms": symptoms.classify(graph, result, ordered, seen)})


def first_cell(found: Iterable[schemas.Cell]) -> schemas.Cell | None:
    """The first of a segment's cells; an evaluation's only where training shows nothing.

    A layer that is out of range begins something only where more follows at once: rules for layers flag a healthy
    one now and then (docs/detectors.md), so alone they begin nothing. They count from where an unbroken stretch of
    them leads up, on the same ranks, to a cell that is certain: a value that is not finite, a signal of the whole
    rank, a difference.
    """
    every = sorted(found, key=key)
    ordered = [c for c in every if not c.signal.startswith(EVALUATION)]
    certain = next((c for c in ordered if is_certain(c)), None)
    if certain is None:
        return next((c for c in every if c.signal.startswith(EVALUATION)), None)
    near = {certain.rank, *(c.rank for c in ordered if same_place(c, certain))}
    first = certain
    for c in reversed([c for c in ordered if key(c) < key(certain)]):
        if first.step - c.step > TOGETHER:
            break
        if c.rank in near or certain.signal == "grad_norm":
            first = c
    return first


def _sooner(found: Sequence[schemas.Cell]) -> list[str]:
    """Evaluations that were abnormal before training was."""
    return [
        f"step {c.step:,}: {c.text}, before anything of training is abnormal; evaluation has causes of its own"
        for c in found[:1]
    ]


def _not_shown(
    first: schemas.Cell,
    ties: Sequence[schemas.Cell],
    ordered: Sequence[schemas.Cell],
    seen: Seen,
    samples: Sequence[schemas.BadSample],
) -> list[str]:
    """What cannot be known of the first bad cell, and what would show it."""
    out = []
    if first.signal == "grad_norm":
        out += _before_reduction(ordered, first, seen)
    if first.last_good is not None and first.last_good < first.step - 1:
        out.append(_when(first, first.last_good))
    if (
        first.tensor is None
        and first.layer is None
        and first.signal in ("loss", "grad_norm_local", "grad_norm")
    ):
        read = seen.ranks.get(first.rank)
        if read is None or not read.signals & {"gradient", "activation"}:
            out.append(
                f"layer and tensor: rank {first.rank} has no rows of tensors at hand "
                "(`lineage.attach(..., model=model)` "
                "reads gradients)"
            )
        elif "activation" not in read.signals and first.signal == "loss":
            out.append("which block's output it began in: `lineage.attach(..., activations=True)` reads them")
    out += _divided(first, ties, seen)
    if first.signal in LOCAL and not samples:
        out.append(
            "which sample of the batch: no loss of single samples is recorded there "
            "(`st.sample_losses(values)` in the "
            "loop records them)"
        )
    return out


def _when(first: schemas.Cell, good: int) -> str:
    """Between which steps it began, where not each step has a value; and what would give one at each."""
    if first.signal in SIGNALS:
        why = "no value of the steps between is on record"
    elif first.abnormal == "differs":
        why = "ranks are compared there (`lineage.attach(..., agree_every=1)` compares them at each step)"
    else:
        why = f"it is read every {first.step - good:,} steps (`lineage.attach(..., state_every=1)` reads it at each)"
    return f"when between step {good + 1:,} and {first.step:,} it began: {why}"


SHOWS_AFTER = 3
"""A moment that is not finite after update s makes weights so with update s + 1, and the loss with step s + 2: a finite
loss at step t - 1 therefore clears the state after update t - 3, and no later one."""


def _good_checkpoint(first: schemas.Cell, before: Sequence[Node], seen: Seen) -> str | None:
    """The latest checkpoint before the cell whose state is not in doubt; the latest one where all are.

    `before`: complete checkpoints up to the last good step, latest first.
    """
    if first.abnormal == "non_finite" and first.signal in ("activation", "loss"):
        read = seen.state_read(first) if seen.state_read is not None else None
        sure = max(first.step - SHOWS_AFTER, read or 0)
        clear = next((n for n in before if n.checkpoint.step <= sure), None)
        if clear is not None:
            return clear.uid
    return before[0].uid if before else None


def _state(first: schemas.Cell, seen: Seen, saved: Sequence[int]) -> list[str]:
    """That weights and moments may have been bad before the forward pass that shows it, and were saved so.

    `saved`: steps of the complete checkpoints up to the last good step, latest first.
    """
    if seen.state_read is None or first.signal not in ("activation", "loss"):
        return []
    read = seen.state_read(first)
    if read is None or read >= first.step - 1:
        return []
    text = (
        f"whether its weights and moments were good until step {first.step - 1:,}: rank {first.rank} last read "
        f"them at step {read:,} (`lineage.attach(..., state_every=1)` reads them at each)"
    )
    sure = max(read, first.step - SHOWS_AFTER)
    unread = [s for s in saved if s > sure]
    if unread:
        of = listed([f"step {s:,}" for s in unread])
        text += f"; what broke may be in the checkpoint{'s' if len(unread) > 1 else ''} of {of} already"
        older = next((s for s in saved if s <= sure), None)
        if older is not None:
            text += f"; the latest one that is not in doubt is that of step {older:,}"
    return [text]


def _before_reduction(ordered: Sequence[schemas.Cell], first: schemas.Cell, seen: Seen) -> list[str]:
    read = seen.has_values_at("grad_norm_local", first.step)
    blind = sorted(set(range(seen.world or 0)) - set(read)) if seen.world else []
    if read and not blind:
        return [
            f"how it came into the reduced gradient: all {len(read):,} ranks recorded theirs before "
            "the reduction, and "
            "none is abnormal there; the reduction itself, or what came between, is in question"
        ]
    if blind:
        return [
            f"on which rank it began: before the reduction nothing is recorded of {ranks(blind)}"
            + (f", and the {len(read):,} others lie in their range there" if read else "")
        ]
    return [
        "on which rank it began: no gradient is recorded before the reduction (`model=` in lineage.attach)"
    ]


def _divided(first: schemas.Cell, ties: Sequence[schemas.Cell], seen: Seen) -> list[str]:
    """What a model that is divided over ranks keeps from being known."""
    out = []
    if "fsdp" in seen.layout and first.signal in STATE:
        out.append(
            f"whether other shards of {first.tensor or 'it'} are bad too: each rank reads its own "
            "shard, and those of "
            "ranks without rows are not shown"
        )
    if {"tensor", "expert"} & {*seen.layout} and first.signal in LOCAL:
        out.append(
            "which rank of a tensor or expert parallel group began it: in the forward pass their "
            "results are added up "
            "block by block, so what one computes is in all of them before any gradient"
        )
    if "pipeline" in seen.layout and first.signal in LOCAL:
        out.append(
            "in which order pipeline stages ran: steps are compared by rank, and a stage's output is "
            "the next one's input"
        )
    return out
