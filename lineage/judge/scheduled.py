"""A scheduler that moves the parameter groups of another optimizer than the one that steps.

Both are right for themselves, and no value of either is wrong: the scheduler's own rate falls, the one that is used
stays. It happens where one of the two is made, wrapped or loaded anew and the other keeps the old groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._rooms import schemas

CHECK = "scheduled-groups/1"
LEAST = 3
"""Updates in a row for which the two must differ, before it is told while the run goes on."""


@dataclass(frozen=True)
class Apart:
    """One update: the rate that the scheduler set last, and the one with which the optimizer steps."""

    step: int
    said: float
    held: float


def finding(apart: Sequence[Apart], *, ended: bool = False) -> schemas.Finding | None:
    """What is told of updates in a row at which the two differ; None while there are too few.

    `ended`: no further update comes, so that fewer are enough.
    """
    if not apart or (len(apart) < LEAST and not ended):
        return None
    first, last = apart[0], apart[-1]
    many = (
        f"at step {first.step:,}"
        if first.step == last.step
        else f"at each of the steps {first.step:,} to {last.step:,}"
    )
    values = {
        "first_step": first.step,
        "last_step": last.step,
        "scheduler_lr": last.said,
        "optimizer_lr": last.held,
        "least_steps": LEAST,
    }
    return schemas.Finding(
        code="LIN-C020",
        check=CHECK,
        severity="fault",
        subject="learning rate",
        text=f"the scheduler moves another optimizer's parameter groups than the one that steps: {many} they differ, "
        f"at step {last.step:,} the scheduler says {last.said:.6g} and the optimizer uses {last.held:.6g}",
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="make the scheduler from the optimizer that steps, after wrapping, and load its state then",
    )
