"""Flat parts of the weights that an optimizer updates in place of the model's own parameters (ZeRO stages 1 and 2).

All parameters of a group are laid end to end in one vector, of which each rank holds and updates its part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("bit16_groups", "bf16_groups", "fp16_groups")
"""Where DeepSpeed's optimizers keep the parameters that their flat parts stand for."""


def stood_for(optimizer: Any) -> list[Mapping[str, Any]]:
    """The optimizer's groups with the parameters that it updates, or that its flat parts are told to stand for."""
    groups = list(optimizer.param_groups)
    for name in NAMES:
        found = getattr(optimizer, name, None)
        if isinstance(found, list) and len(found) == len(groups):
            return [{**g, "params": list(p)} for g, p in zip(groups, found, strict=True)]
    return groups


def tells(optimizer: Any) -> bool:
    """Whether an optimizer tells which parameters its flat parts stand for."""
    return any(isinstance(getattr(optimizer, name, None), list) for name in NAMES)


def held(parameters: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The flat parts that an optimizer holds; none where it holds parameters of a model, or copies of such.

    Told by their form: fewer vectors than the model has parameters, each longer than any vector of the model's,
    where the optimizer holds no matrix and the model has one. Copies that went stale keep the form of the model's.

    Args:
        parameters: name -> trainable parameter of the model.
        groups: the optimizer's `param_groups`.
    """
    own = {id(p) for p in parameters.values()}
    foreign = [p for group in groups for p in group["params"] if id(p) not in own]
    left = [p for p in parameters.values() if p.requires_grad and p.dim() > 0]
    vectors = [p.numel() for p in left if p.dim() == 1]
    flat = (
        0 < len(foreign) < len(left)
        and all(p.dim() == 1 for p in foreign)
        and any(p.dim() > 1 for p in left)
        and not any(id(p) in own for group in groups for p in group["params"])
        and min(p.numel() for p in foreign) > max(vectors, default=0)
    )
    return foreign if flat else []


def layout(parts: Sequence[Any]) -> str:
    """How a rank's parts are cut, for comparison: with another number of ranks they are cut otherwise."""
    return hashlib.sha256(repr([p.numel() for p in parts]).encode()).hexdigest()[:12]
