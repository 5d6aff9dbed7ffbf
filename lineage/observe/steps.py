"""Which training step a logged row belongs to, and what says so."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

COLUMNS = (
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "train/step",
    "training_step",
    "train_step",
    "step",
    "iteration",
    "train/iteration",
    "iter",
    "num_updates",
)
"""Columns of a row that carry the training step, the surest first."""

COUNTER = "the tracker's count of log calls"
"""The axis of a row that says nothing of its step: the count need not be that of the updates."""


class WandbSteps:
    """Follows one W&B run's rows as W&B does: the argument, a column, else its own counter."""

    def __init__(self, starting: int = 0) -> None:
        self.counter = starting
        self._axes: list[tuple[str, str]] = []
        self.dropped = 0
        """rows below the newest step, which W&B drops without an exception"""

    def define(self, name: Any, axis: Any) -> None:
        """Take note of `define_metric(name, step_metric=axis)`."""
        if isinstance(name, str) and isinstance(axis, str):
            self._axes.insert(0, (name, axis))

    def of(self, row: Mapping[str, Any], step: Any, commit: Any) -> tuple[int, str]:
        """Tell a row's step and what says so, and move W&B's counter on."""
        own = self._count(step, commit)
        column = self._column(row)
        if column is not None:
            return int(row[column]), f"column {column}"
        if step is not None:
            return own, "step="
        return own, COUNTER

    def _count(self, step: Any, commit: Any) -> int:
        """W&B's own step of this row."""
        given = whole(step)
        if given is not None:
            if given < self.counter:
                self.dropped += 1
            self.counter = max(self.counter, given)
            own = given
        else:
            own = self.counter
        if (step is None and commit is None) or commit:
            self.counter += 1
        return own

    def _column(self, row: Mapping[str, Any]) -> str | None:
        for pattern, axis in self._axes:
            if axis in row and whole(row[axis]) is not None and any(fnmatchcase(k, pattern) for k in row):
                return axis
        return next((c for c in COLUMNS if c in row and whole(row[c]) is not None), None)


def whole(value: Any) -> int | None:
    """A step as an int: 5 and 5.0, not 5.5 and not True; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
        return number if number == value and number >= 0 else None
    except (TypeError, ValueError, OverflowError):
        return None


LOSSES = frozenset(
    ("loss", "train_loss", "training_loss", "loss_train", "lm_loss", "train_lm_loss", "train_loss_step")
)
NORMS = frozenset(("grad_norm", "train_grad_norm", "gradient_norm", "train_gradient_norm", "grad_norm_train"))


@lru_cache(maxsize=4096)
def signal(key: str) -> str | None:
    """The signal of ours that a logged key is by its name: the training loss, the norm of the gradient; or None."""
    name = key.lower()
    for mark in "/.- ":
        name = name.replace(mark, "_")
    return "loss" if name in LOSSES else "grad_norm" if name in NORMS else None
