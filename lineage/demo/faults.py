"""Faults that strike one rank at one step: drawn from a seed, unknown to the layer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

KINDS = {
    "nan_gradient": "a gradient of NaN",
    "huge_gradient": "a gradient 10,000 times too large",
    "corrupt_labels": "random labels in one batch",
    "bit_flip": "one flipped bit in a gradient",
}
"""Kind of fault -> what it is, in words."""


@dataclass(frozen=True)
class Fault:
    """What strikes, where and when."""

    kind: str
    rank: int
    step: int

    @property
    def words(self) -> str:
        """What strikes, in words."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}:{self.rank}:{self.step}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read `kind:rank:step`. Raises `ValueError` for an unknown kind."""
        kind, rank, step = text.split(":")
        if kind not in KINDS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(KINDS)}")
        return cls(kind, int(rank), int(step))


def draw(seed: int, world: int, first: int, last: int) -> Fault:
    """Draw a fault between two steps (both included)."""
    r = random.Random(seed)
    return Fault(r.choice(list(KINDS)), r.randrange(world), r.randint(first, last))


class Strike:
    """Applies a fault to the training loop it is given."""

    def __init__(self, fault: Fault, model: torch.nn.Module, rank: int) -> None:
        self._fault, self._model, self._mine = fault, model, rank == fault.rank
        self._random = torch.Generator().manual_seed(fault.step)

    def _now(self, step: int) -> bool:
        return self._mine and step == self._fault.step

    def batch(self, step: int, batch: dict[str, Any]) -> dict[str, Any]:
        """Corrupt the labels of this step's batch."""
        if self._now(step) and self._fault.kind == "corrupt_labels":
            labels = torch.randint(0, 256, batch["labels"].shape, generator=self._random)
            return {**batch, "labels": labels}
        return batch

    def before_backward(self, step: int) -> Any:
        """Spoil one parameter's local gradient; returns the hook's handle, to be removed after the step."""
        spoil = SPOIL.get(self._fault.kind)
        if not self._now(step) or spoil is None:
            return None
        parameters = [p for p in self._model.parameters() if p.dim() > 1]
        at = int(torch.randint(0, len(parameters), (1,), generator=self._random))
        return parameters[at].register_hook(spoil)


def _flip(gradient: torch.Tensor) -> torch.Tensor:
    """Flip the top exponent bit of the largest element, as a faulty memory cell would: times 2^128.

    A flip of a weight can stay without any effect on loss and gradients (a logit of a token that never
    occurs, say); only a comparison of replicas would show that one.
    """
    flipped = gradient.clone()
    bits = flipped.view(-1).view(torch.int32)
    bits[gradient.abs().argmax()] ^= 1 << 30
    return flipped


SPOIL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan_gradient": lambda g: g * float("nan"),
    "huge_gradient": lambda g: g * 1e4,
    "bit_flip": _flip,
}
