"""Intervals for counts and shares. An observed zero is not a rate of zero, and the table says how far it is."""

from __future__ import annotations

import math
from collections.abc import Callable

LEVEL = 0.95


def rate(events: int, exposure: int, per: int = 10_000) -> tuple[float, float]:
    """Exact interval of a Poisson rate (Garwood, 1936), per `per` units of exposure. Exposure must be positive."""
    tail = (1.0 - LEVEL) / 2.0
    low = 0.0 if events == 0 else _solve(lambda m: 1.0 - _poisson(events - 1, m), tail, rising=True)
    high = _solve(lambda m: _poisson(events, m), tail, rising=False)
    return low * per / exposure, high * per / exposure


def share(found: int, tried: int) -> tuple[float, float]:
    """Interval of a share (Wilson, 1927). `tried` must be positive."""
    z = 1.959963984540054
    p, n = found / tried, tried
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _poisson(k: int, mean: float) -> float:
    """Probability of at most k events."""
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(k + 1))


def _solve(f: Callable[[float], float], target: float, *, rising: bool) -> float:
    """The mean at which a monotonic function meets the target, by bisection."""
    low, high = 0.0, 1.0
    while (f(high) < target) == rising:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        if (f(middle) < target) == rising:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
