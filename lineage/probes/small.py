"""Many small gradients on the CPU at little cost: two operators for all of them, or two for each under DDP.

The full read of `host` costs some twenty calls per tensor, which a large tensor hides and a small one does not. A
small one in float32 is done with its L2 norm and its largest magnitude, unless that magnitude is not finite or its
square leaves float32's range: then the full read looks at it again. What it does not give is the lowest element
(NaN in the row), which matters for second moments only, and the digest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .host import HIGH, LOW, Row
from .readable import local

SMALL = 16_384
"""Elements at most: below torch's grain of 32,768, so that one thread adds the squares, in one order."""


def fits(g: Any) -> bool:
    """Whether a gradient may be read here: small, in float32 on the CPU, without holes."""
    return (
        type(g) is torch.Tensor
        and g.dtype is torch.float32
        and 0 < g.numel() <= SMALL
        and g.layout is torch.strided
        and g.is_contiguous()
    )


def together(gradients: Sequence[Any]) -> list[Row | None]:
    """The rows of some gradients, with two operators for all of them; None for one that needs the full read."""
    held = [local(g).detach() for g in gradients]
    norms = torch._foreach_norm(held)
    sizes = torch._foreach_norm(held, ord=math.inf)
    found = torch.stack([*norms, *sizes]).tolist()
    return [_row(g, n, s) for g, n, s in zip(held, found, found[len(held) :], strict=False)]


def alone(g: Any) -> Row | None:
    """The row of one gradient that is about to be reduced; None where it needs the full read."""
    held = g.detach()
    return _row(
        held, torch.linalg.vector_norm(held).tolist(), torch.linalg.vector_norm(held, math.inf).tolist()
    )


def _row(g: Any, norm: float, size: float) -> Row | None:
    if not (LOW < size < HIGH or size == norm == 0.0):
        return None
    return [norm * norm, size, math.nan, 0.0, 0.0, 0.0, float(g.numel()), 0.0, 0.0]
