"""The norm by which each rank clips: one number for all, or each its own, which clips the whole by none.

A norm over sharded gradients is the root of the sum of squares over all shards. Where each rank takes its shard's norm
for the whole, ranks scale their gradients by different factors, and the norm after clipping is not the threshold.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from .._rooms import schemas
from . import rank_sets
from .cells import Point

CHECK = "norms-over-ranks/1"
NORM, THRESHOLD = "grad_norm", "clip_threshold"
WANTED = (NORM, THRESHOLD)
APART = 1e-3
"""Relative difference from which two norms are not one: reductions in another order differ by less."""
LEAST = 3
"""Steps in which ranks must differ."""
SHARE = 0.9
"""Share of the steps with a norm on several ranks in which they must."""


def findings(points: Iterable[Point]) -> list[schemas.Finding]:
    """One finding where ranks clip by norms of their own."""
    norms: dict[int, dict[int, float]] = defaultdict(dict)
    limits: dict[int, float] = {}
    for p in points:
        if p.signal == NORM and math.isfinite(p.value):
            norms[p.step][p.rank] = p.value
        elif p.signal == THRESHOLD:
            limits[p.step] = p.value
    several = {s: by for s, by in sorted(norms.items()) if len(by) > 1}
    apart = {
        s: by for s, by in several.items() if max(by.values()) - min(by.values()) > APART * max(by.values())
    }
    if len(apart) < LEAST or len(apart) < SHARE * len(several):
        return []
    step, by = next(iter(apart.items()))
    return [_said(step, by, limits.get(step), len(apart), len(several))]


def _said(step: int, by: dict[int, float], limit: float | None, apart: int, several: int) -> schemas.Finding:
    root = math.hypot(*by.values())
    ordered = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    each = ", ".join(f"{norm:.4g} on {rank_sets.words([rank])}" for rank, norm in ordered[:4])
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    text = (
        f"ranks clip by norms of their own, in {apart:,} of {several:,} steps: {each}{more} at step {step:,}. Where "
        f"each is the norm of a shard, that of the whole is {root:.4g}"
    )
    values: dict[str, object] = {
        "first_step": step,
        "steps": apart,
        "norm_of_whole": root,
        "ranks": rank_sets.text(by),
        "apart": APART,
    }
    if limit is not None and limit > 0:
        after = math.hypot(*(min(n, limit) for n in by.values()))
        values |= {"threshold": limit, "after_clipping": after}
        text += (
            f", and {after:.4g} after each was clipped to {limit:g}, where clipping the whole leaves "
            f"{min(root, limit):.4g}"
        )
    return schemas.Finding(
        code="LIN-R020",
        check=CHECK,
        severity="warning",
        subject="gradient norm",
        text=text,
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="take the norm over all shards before clipping (the model's own clip_grad_norm_, or a reduction of the "
        "squares); ranks that are replicas have gradients that were not reduced",
    )
