"""The first losses after a resume, on batches that another branch of the run had at the same steps.

Equal losses show that the forward pass is the same one; they do not show that the optimizer was restored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .._rooms import schemas

CHECK = "loss-continued/1"
LEAST = 5
"""Losses before the save from which the usual change between two steps is taken."""
BEYOND = 3.0
"""How many times the usual change between two steps the first loss may differ."""


@dataclass(frozen=True)
class Same:
    """One step that both branches made on the same batch."""

    step: int
    there: float
    here: float

    @property
    def difference(self) -> float:
        """Absolute."""
        return abs(self.here - self.there)


@dataclass(frozen=True)
class Continued:
    """The first steps on the same batches."""

    steps: list[Same]
    usual: float | None
    """median change of the loss between two steps before the save"""

    @property
    def equal(self) -> int:
        """How many of the first steps have the same loss, bit for bit."""
        n = 0
        for s in self.steps:
            if s.here != s.there:
                break
            n += 1
        return n

    def text(self) -> str:
        """What they show, in words."""
        first = self.steps[0]
        if self.equal == len(self.steps):
            last = self.steps[-1].step
            which = f"step {first.step:,}" if last == first.step else f"steps {first.step:,} to {last:,}"
            return f"the loss of {which} is bit for bit that of the other branch, on the same batch"
        odd = self.steps[self.equal]
        apart = odd.difference / abs(odd.there) if odd.there else math.inf
        usual = f"; {self.usual:.3g} is the usual change between two steps" if self.usual is not None else ""
        return (
            f"on the same batch, the loss of step {odd.step:,} was {odd.there:.6g} on the other branch and is "
            f"{odd.here:.6g} ({apart:.2g} apart{usual})"
        )


def continued(
    there: Mapping[int, tuple[Sequence[str], float]],
    here: Mapping[int, tuple[Sequence[str], float]],
    before: Sequence[float],
    first: int,
    most: int = 5,
) -> Continued | None:
    """Compare the first steps. None where the first step was not made on the same batches.

    Args:
        there, here: step -> (digests of its micro-batches, loss), of the other branch and of the resumed segment.
        before: the losses up to the save, in order.
        first: the first step after the resume.
    """
    steps = []
    for step in range(first, first + most):
        a, b = there.get(step), here.get(step)
        if a is None or b is None or list(a[0]) != list(b[0]) or not a[0]:
            break
        steps.append(Same(step, a[1], b[1]))
    if not steps or not all(math.isfinite(s.there) and math.isfinite(s.here) for s in steps):
        return None
    changes = [abs(b - a) for a, b in pairwise(before[-50:]) if math.isfinite(a) and math.isfinite(b)]
    return Continued(steps, median(changes) if len(changes) >= LEAST else None)


def finding(found: Continued | None) -> schemas.Finding | None:
    """A first loss that is another one on the same batch, by more than losses usually change; None where it is not."""
    if found is None or found.usual is None or found.steps[0].difference <= BEYOND * found.usual:
        return None
    first = found.steps[0]
    values = {
        "first_step": first.step,
        "there": first.there,
        "here": first.here,
        "usual_change": found.usual,
        "beyond": BEYOND,
    }
    return schemas.Finding(
        code="LIN-C014",
        check=CHECK,
        severity="warning",
        subject="loss",
        text=found.text(),
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="the weights or the forward pass are not the same: look at what was restored, at precision, at dropout",
    )
