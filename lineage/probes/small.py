"""Small gradients on the CPU at little cost: two operators for each, while it lies in the cache.

The full read of `host` costs some twenty calls per tensor, which a large tensor hides and a small one does not. A
small one in float32 is done with its L2 norm, its highest and its lowest element, unless one of them is not finite or
its square leaves float32's range: then the full read looks at it again. What it does not give is the digest.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .host import HIGH, LOW, Row, norms

SMALL = 32_767
"""Elements whose squares one operator adds: below torch's grain of 32,768, so one thread does, in one order."""
MOST = 1 << 18
"""Elements at most; those above `SMALL` are added in runs, as `host` does."""


def fits(g: Any) -> bool:
    """Whether a gradient may be read here: small, in float32 on the CPU, without holes."""
    return (
        type(g) is torch.Tensor
        and g.dtype is torch.float32
        and 0 < g.numel() <= MOST
        and g.layout is torch.strided
        and g.is_contiguous()
    )


def read(g: Any) -> Row | None:
    """The row of one gradient; None where it needs the full read."""
    held = g.detach().reshape(-1)
    low, high = (v.tolist() for v in torch.aminmax(held))
    sums = [torch.linalg.vector_norm(held).tolist()] if held.numel() <= SMALL else _runs(held)
    return _row(held, sums, high, -low)


def _runs(flat: Any) -> list[float]:
    return [n for run in norms(flat) for n in run.tolist()]


def _row(g: Any, found: list[float], high: float, depth: float) -> Row | None:
    """`depth`: minus the lowest element."""
    size = max(high, depth)  # NaN in one is NaN in the other, and fails the comparison
    if not (LOW < size < HIGH or (high == depth == 0.0)) or math.isnan(high) or math.isnan(depth):
        return None
    total = math.fsum(n * n for n in found)
    return [total, size, min(0.0, -depth), 0.0, 0.0, 0.0, float(g.numel()), 0.0, 0.0]
