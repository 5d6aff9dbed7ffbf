"""Disagreements of replicas as cells, so that a first bad transition can be one."""

from __future__ import annotations

from collections.abc import Iterable

from .._rooms import schemas
from . import agreement, rank_sets
from .agreement import Disagreement
from .execution import REPLICA
from .layers import layer_of

WORDS = {"weight": "weight", "buffer": "buffer", "moment1": "first moment", "moment2": "second moment"}


def cells(segment: str, found: Iterable[Disagreement]) -> list[schemas.Cell]:
    """One cell per tensor and odd rank, at the first digest at which it differs.

    Where there is no majority each rank is odd. What of a tensor is named is where the difference lies by
    `agreement.origin`: a moment rather than the weight that it moved.
    """
    by_tensor: dict[tuple[int, str, str], list[Disagreement]] = {}
    for d in found:
        if d.declared:
            by_tensor.setdefault((d.step, d.tensor, d.part), []).append(d)
    out = []
    for (step, tensor, _), same in by_tensor.items():
        first = _first(same)
        out += [_cell(segment, step, tensor, first, rank) for rank in first.odd or first.ranks]
    return out


def _first(same: list[Disagreement]) -> Disagreement:
    """The one in which the difference lies, of what differs of one tensor."""
    held = frozenset[str]().union(*(d.held for d in same))
    where = agreement.origin({d.kind for d in same}, held)
    lies = {agreement.FIRST: "moment1", agreement.GRADIENT: "moment1", agreement.SECOND: "moment2"}.get(where)
    if where in (agreement.ALL, agreement.OTHER):
        lies = min(d.kind for d in same if d.kind not in (agreement.WEIGHT, agreement.BUFFER_KIND))
    return next((d for d in same if d.kind == lies), same[0])


def _cell(segment: str, step: int, tensor: str, d: Disagreement, rank: int) -> schemas.Cell:
    others = set(d.ranks) - set(d.odd) if d.odd else set(d.ranks) - {rank}
    what = WORDS.get(d.kind, d.kind.removeprefix("state:"))
    since = f"; they agreed at step {d.agreed:,}" if d.agreed is not None else ""
    return schemas.Cell(
        segment=segment,
        rank=rank,
        step=step,
        signal=f"{REPLICA}{tensor}",
        abnormal="differs",
        value=float(len(d.classes)),
        text=f"{what} {tensor} differs from {rank_sets.words(others)}{since}",
        layer=layer_of(tensor),
        tensor=tensor,
        last_good=d.agreed,
    )
