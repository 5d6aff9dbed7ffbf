"""What the first update after a resume shows: its batch of the data order, its rate of a schedule by hand."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from .._rooms import schemas
from .change import effective_change


def first_batch(
    digest: str, known: Mapping[str, Collection[int]], step: int
) -> tuple[list[schemas.Change], set[str]]:
    """Compare the first batch with those of earlier segments of the same rank.

    `known` maps fingerprints of the other branch to the steps that had them. Returns the changes that follow,
    and the concepts that are thereby shown. A batch that is not known there shows nothing where the other
    branch did not come that far; one that it had at several other steps (epochs repeat) shows no position.
    """
    at = known.get(digest, ())
    if not at:
        if known and max(max(steps) for steps in known.values()) >= step:
            text = f"the batch of step {step:,} is none of the other branch's batches"
            return [_change("data_order", text)], {"loader_position", "data_order"}
        return [], set()
    if step in at:
        return [], {"loader_position"}
    if len(at) > 1:
        return [], set()
    (only,) = at
    text = f"the batch of step {step:,} is the one that step {only:,} had on the other branch"
    if only > step:
        return [_change("batch_skip", f"{text}: {only - step} skipped")], {"loader_position"}
    return [_change("loader_position", f"{text}: data is read again")], {"loader_position"}


def same_place(
    digests: Sequence[str], known: Mapping[str, Collection[int]], at_step: Sequence[str], step: int
) -> list[schemas.Change]:
    """Compare the first batches of a loader that stands where it stood at the save with those of the same step.

    `at_step` holds the fingerprints of the other branch's micro-batches of that step, in order; none where it
    did not come that far, which shows nothing. `known` is that of `first_batch`.
    """
    pairs = list(zip(digests, at_step, strict=False))
    other = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if other is None:
        return []
    which = f"batch of step {step:,}" if other == 0 else f"micro-batch {other + 1} of step {step:,}"
    text = (
        f"the {which} is not the one of the other branch, though the loader stands where it stood at the save"
    )
    elsewhere = sorted(known.get(digests[other], ()))
    if elsewhere and step not in elsewhere:
        text += f": it is the one that step {elsewhere[0]:,} had"
    return [_change("data_order", text)]


OTHER_DATA = "whether the batches hold the same data in another order or other data is not shown"
"""Said of the data mix where a batch is none of the other branch's."""


def _change(concept_id: str, text: str) -> schemas.Change:
    return effective_change(
        concept_id, text, "as on the other branch", "other", "the series of the other branch"
    )


def first_rate(rate: float, known: float | None, step: int) -> tuple[list[schemas.Change], set[str]]:
    """Compare the first update's learning rate with that of the same step on another branch, if there is one."""
    if known is None:
        return [], set()
    shown = {"learning_rate", "lr_schedule"}
    if math.isclose(rate, known, rel_tol=1e-9):
        return [], shown
    text = f"learning rate of step {step:,} is {rate:.6g}, {known:.6g} on the other branch"
    return [_change("learning_rate", text)], shown
