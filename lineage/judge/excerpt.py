"""The first rows of a log that begins in the middle of a run: too few for a detector, which learns from eight values.

Logs that people kept of an incident are often that short. Here a value is held against the ones before it, coarsely:
a loss by a third, a norm by one order of magnitude. Rows of a run's first steps are not judged: there both move so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .detectors import RULES

NAME = "excerpt-jump/1"
WARM = 100
"""Steps of a run after which its loss and norm are taken to move slowly."""


@dataclass(frozen=True)
class Rule:
    """A value is out of range from `times` the median of those before on, and `least` above the largest of them."""

    times: float
    least: float


LOSS = Rule(1.3, 0.5)
NORM = Rule(10.0, 0.0)
OF = {"loss": LOSS, "grad_norm": NORM, "grad_norm_local": NORM}


@dataclass(frozen=True)
class Jump:
    """A value of an excerpt that its predecessors do not explain."""

    step: int
    value: float
    baseline: float
    threshold: float
    parameters: dict[str, Any]


def jump(signal: str, rows: Sequence[tuple[int, float]]) -> Jump | None:
    """The first jump within the rows that no detector can judge yet; None where there is none.

    `rows` are the first (step, value) of one rank, as many as the detector needs to learn (`Rule.warmup`) and one more.
    """
    rule = OF.get(signal)
    if rule is None or not rows or rows[0][0] <= WARM:
        return None
    before: list[float] = []
    for step, value in rows[: RULES[signal].warmup + 1]:
        if not math.isfinite(value):
            return None  # a detector names that one by itself
        if before and median(before) > 0:
            threshold = max(rule.times * median(before), max(before) + rule.least)
            if value > threshold:
                return Jump(
                    step,
                    value,
                    median(before),
                    threshold,
                    {"name": NAME, "times": rule.times, "least": rule.least, "rows_before": len(before)},
                )
        before.append(value)
    return None
