"""Timing for a noisy machine: variants take turns, and medians are compared, not means."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

Variant: TypeAlias = Callable[[], float | Sequence[float]]
"""Does one turn and returns what it took in seconds: one number, or one per call within the turn."""


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call takes by the monotonic clock."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def take_turns(
    variants: Mapping[str, Variant], rounds: int, *, budget: float = math.inf, least: int = 3
) -> dict[str, list[float]]:
    """Let every variant have one turn in each round, and return the samples of each in seconds.

    No round begins after `budget` seconds, once there were `least` of them: on a busy machine a run has fewer
    samples (n tells), and ends in time.

    Each round starts one variant further on: whatever the neighbours on the machine do in a round, and
    whatever a variant leaves behind for the next (cold caches, a busy disk), meets all of them alike.
    """
    names = list(variants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    began = time.monotonic()
    for r in range(rounds):
        if r >= least and time.monotonic() - began > budget:
            break
        for name in names[r % len(names) :] + names[: r % len(names)]:
            found = variants[name]()
            samples[name] += [found] if isinstance(found, float) else list(found)
    return samples


def quantile(samples: Sequence[float], q: float) -> float:
    """The nearest-rank quantile: a value that was really measured. With n < 100, p99 is the largest."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def summary(samples: Sequence[float]) -> dict[str, float | int]:
    """n, min, median, p99 and max of the samples, in their own unit. Raises `ValueError` without samples."""
    if not samples:
        raise ValueError("no samples: a variant that was never run has no summary")
    return {
        "n": len(samples),
        "min": min(samples),
        "median": median(samples),
        "p99": quantile(samples, 0.99),
        "max": max(samples),
    }
