"""What the first update after a resume shows: its batch of the data order, its rate of a schedule by hand."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from .._rooms import schemas
from .change import effective_change


def first_batch(
    digest: str,
    known: Mapping[str, Collection[int]],
    step: int,
    *,
    there: str | None = None,
    epoch: int | None = None,
) -> tuple[list[schemas.Change], set[str]]:
    """Judge the first batch of a loader that keeps no position. Returns changes, and the concepts that are shown.

    Args:
        digest: the batch's fingerprint.
        known: fingerprint -> the steps that had it, on the way to the checkpoint and on the branch that came after it.
        step: the update that it belongs to.
        there: what that branch had at this step; None where no branch made it.
        epoch: batches of an epoch, where it is known: data that comes again after whole epochs shows nothing.
    """
    at = set(known.get(digest, ()))
    if there == digest or step in at:
        return [], {"loader_position"}
    if not at:
        if there is not None:
            text = f"the batch of step {step:,} is not the one of the other branch, nor any before it"
            return [_change("data_order", text)], {"loader_position", "data_order"}
        return [], set()
    if there is None and _comes_again(at, step, epoch):
        return [], set()
    if max(at) > step:
        skipped = min(s for s in at if s > step)
        text = f"the batch of step {step:,} is the one that step {skipped:,} had on the other branch"
        return [_change("batch_skip", f"{text}: {skipped - step} skipped")], {"loader_position"}
    text = f"the batch of step {step:,} is the one that step {max(at):,} had: data is read again"
    return [_change("loader_position", text)], {"loader_position"}


def _comes_again(at: Collection[int], step: int, epoch: int | None) -> bool:
    """Whether a batch may simply be due again: whole epochs later, or as regularly as it came so far."""
    if epoch:
        return all((step - s) % epoch == 0 for s in at)
    ordered = [*sorted(at), step]
    gaps = {b - a for a, b in pairwise(ordered)}
    return len(at) > 1 and len(gaps) == 1


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


SOURCE = "the series of the other branch"
"""Where a change was read that the first batch, or the first rate, showed."""


def _change(concept_id: str, text: str) -> schemas.Change:
    return effective_change(concept_id, text, "as on the other branch", "other", SOURCE)


def first_rate(rate: float, known: float | None, step: int) -> tuple[list[schemas.Change], set[str]]:
    """Compare the first update's learning rate with that of the same step on another branch, if there is one."""
    if known is None:
        return [], set()
    shown = {"learning_rate", "lr_schedule"}
    if math.isclose(rate, known, rel_tol=1e-9):
        return [], shown
    text = f"learning rate of step {step:,} is {rate:.6g}, {known:.6g} on the other branch"
    return [_change("learning_rate", text)], shown
