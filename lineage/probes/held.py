"""Which parameters the optimizer holds, which it should, and what it decays that is usually left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture import flat_parts
from .gradients import Named


@dataclass(frozen=True)
class Held:
    """How model and optimizer fit together. Names are clean parameter names; all empty is the usual case."""

    not_held: list[str] = field(default_factory=list)
    """trainable, and in no parameter group: they never learn"""
    stale: list[str] = field(default_factory=list)
    """held, and no longer part of the model (`group 0, place 3, [512, 512]`): the optimizer trains a dead tensor"""
    twice: list[str] = field(default_factory=list)
    """held at more than one place: updated twice in each step"""
    frozen: list[str] = field(default_factory=list)
    """held, and not trainable: moments without use"""
    decayed: list[str] = field(default_factory=list)
    """norm weights, biases and other vectors with weight decay"""
    of_model: tuple[int, int] = field(default=(0, 0), compare=False)
    """(how many of the model's trainable parameters are held, how many it has)"""


def look(parameters: Named, optimizer: Any) -> Held:
    """Compare a model's parameters (name, tensor) with an optimizer's groups."""
    names = {id(p): name for name, p in parameters}
    places: dict[int, int] = {}
    stale, frozen, decayed = [], [], []
    groups = flat_parts.stood_for(optimizer)
    for g, group in enumerate(groups):
        for i, p in enumerate(group["params"]):
            places[id(p)] = places.get(id(p), 0) + 1
            name = names.get(id(p))
            if name is None:
                stale.append(f"group {g}, place {i}, {list(p.shape)}")
            elif not p.requires_grad:
                frozen.append(name)
            if name is not None and group.get("weight_decay") and is_vector(name, p):
                decayed.append(name)
    not_held = {n: p for n, p in parameters if p.requires_grad and id(p) not in places}
    copies = _copies(not_held, groups, names)
    trainable = sum(p.requires_grad for _, p in parameters)
    return Held(
        not_held=[n for n in not_held if n not in copies],
        stale=[] if copies else stale,
        twice=[n for n, p in parameters if places.get(id(p), 0) > 1],
        frozen=frozen,
        decayed=list(dict.fromkeys(decayed)),
        of_model=(trainable - len(not_held) + len(copies), trainable),
    )


def _copies(not_held: Mapping[str, Any], groups: Sequence[Any], names: Mapping[int, str]) -> set[str]:
    """Parameters of which the optimizer updates float32 copies: one each, or flat parts (ZeRO)."""
    low = {n: p for n, p in not_held.items() if p.dtype.itemsize < 4}
    held = [p for group in groups for p in group["params"] if id(p) not in names]
    if flat_parts.held(not_held, groups):
        return set(not_held)
    if not low or not held or any(p.dtype.itemsize < 4 for p in held):
        return set()
    each = Counter(tuple(p.shape) for p in held) == Counter(tuple(p.shape) for p in low.values())
    flat = all(p.dim() == 1 for p in held) and len(held) < len(low)
    return set(low) if each or flat else set()


def is_vector(name: str, p: Any) -> bool:
    """Whether a parameter is a norm's weight, a bias or alike: at most one dimension longer than one."""
    return name.endswith("bias") or sum(size > 1 for size in p.shape) <= 1


_VALUES = (
    "lr",
    "betas",
    "momentum",
    "eps",
    "weight_decay",
    "dampening",
    "nesterov",
    "amsgrad",
    "maximize",
)


def effective(optimizer: Any) -> list[dict[str, Any]]:
    """The values in effect in each parameter group now. One that lies on a device is named, not read."""
    return [{k: _plain(group[k]) for k in _VALUES if k in group} for group in optimizer.param_groups]


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    if hasattr(value, "detach"):
        return value.tolist() if value.device.type == "cpu" else "on the device"
    return value


def tensors_on_device(optimizer: Any) -> Mapping[str, Any]:
    """Hyperparameters that lie on a device: `lr of group 0` -> 0-d tensor."""
    return {
        f"{key} of group {g}": group[key]
        for g, group in enumerate(optimizer.param_groups)
        for key in ("lr", "weight_decay", "eps")
        if hasattr(group.get(key), "detach") and group[key].device.type != "cpu"
    }
