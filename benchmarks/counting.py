"""What a way of watching does per tensor: operators, values read back, bytes read. The same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BACK = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero"}
"""Operators that give the host a value: on a device each waits for it."""
VIEWS = {
    "view",
    "detach",
    "slice",
    "select",
    "as_strided",
    "t",
    "transpose",
    "split",
    "alias",
    "reshape",
    "_unsafe_view",
}


@dataclass
class Count:
    """Of one step: operators that are no views, values read back, bytes of their inputs."""

    operators: int = 0
    back: int = 0
    bytes: int = 0

    def less(self, other: Count, tensors: int, size: int) -> dict[str, float]:
        """What this has more than the other, per tensor, and bytes as a multiple of the parameters' size."""
        return {
            "operators": (self.operators - other.operators) / tensors,
            "back": (self.back - other.back) / tensors,
            "bytes": (self.bytes - other.bytes) / size,
        }


class Counting(TorchDispatchMode):
    """Counts what is dispatched while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Count()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            self.count.operators += 1
            self.count.bytes += sum(x.nbytes for x in inputs)
            self.count.back += name in BACK or (name == "_to_copy" and _leaves(inputs, kwargs))
        return func(*args, **(kwargs or {}))


def _leaves(inputs: list[Any], kwargs: Any) -> bool:
    """Whether a copy leaves the device: on the CPU this cannot be seen, and none is counted."""
    target = (kwargs or {}).get("device")
    return bool(inputs) and target is not None and torch.device(target).type != inputs[0].device.type


def of(step: Callable[[], Any]) -> Count:
    """Count one step."""
    counting = Counting()
    with counting:
        step()
    count: Count = counting.count
    return count
