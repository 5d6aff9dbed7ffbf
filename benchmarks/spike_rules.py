"""The spike rules of other tools, said again in our own words from their documentation or papers.

Each rule is fed one value at a time and says whether it would flag it. Parameters are the tools' defaults. Where
a rule is meant for one signal only, `meant_for` says so; it is run on the other too, because users do.
What NaN does to each is what its arithmetic does.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol


class FlagsValues(Protocol):
    """A rule that judges one stream value by value."""

    def flags(self, value: float) -> bool:
        """Whether the next value is flagged."""
        ...


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: list[float]) -> float:
    """Sample standard deviation; NaN when a value is not finite, as tensor arithmetic has it."""
    mean = _mean(values)
    return math.sqrt(sum([(v - mean) * (v - mean) for v in values]) / (len(values) - 1))


class SkipStep:
    """OLMo-core, `SkipStepOptimizer`: skip unless value - mean <= 6 deviations of the last 128, from 64 on.

    Source: its documentation and the OLMo 2 report (2024). Every value enters the window, skipped ones too.
    """

    meant_for = ("loss", "grad_norm")

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=128)

    def flags(self, value: float) -> bool:
        """Not "at most six deviations": a comparison with NaN is false, so NaN is skipped."""
        window = list(self._last)
        self._last.append(value)
        if len(window) < 64:
            return False
        return not (value - _mean(window) <= 6.0 * _deviation(window))


class StabilityMonitor:
    """OLMo-core, `StabilityMonitorCallback`: value > mean + 6 deviations of the last 128, once 128 are there."""

    meant_for = ("loss", "grad_norm")

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=128)

    def flags(self, value: float) -> bool:
        """A comparison with NaN is false, so NaN is no spike."""
        window = list(self._last)
        self._last.append(value)
        return len(window) == 128 and value > _mean(window) + 6.0 * _deviation(window)


class ZClip:
    """ZClip (Kumar et al., 2025): z > 2.5 against moving averages (0.97) of mean and variance, after 25 values.

    A flagged norm is clipped to mean + 2.5**2 / z deviations, and the clipped norm enters the averages.
    """

    meant_for = ("grad_norm",)

    def __init__(self) -> None:
        self._first: list[float] = []
        self._mean = self._var = 0.0

    def flags(self, value: float) -> bool:
        """Whether the value would be clipped."""
        if len(self._first) < 25:
            self._first.append(value)
            if len(self._first) == 25:
                self._mean, self._var = _mean(self._first), _deviation(self._first) ** 2
            return False
        deviation = math.sqrt(self._var) + 1e-6
        z = (value - self._mean) / deviation
        spike = z > 2.5
        if spike:
            value = self._mean + 2.5 * 2.5 / z * deviation
        self._mean = 0.97 * self._mean + 0.03 * value
        self._var = 0.97 * self._var + 0.03 * (value - self._mean) ** 2
        return spike


class MegatronSpiky:
    """Megatron-LM, rerun state machine, "unexpectedly large": ten times the largest of the first 100 values."""

    meant_for = ("loss", "grad_norm")

    def __init__(self) -> None:
        self._seen, self._largest = 0, 0.0

    def flags(self, value: float) -> bool:
        """NaN is left to a check of its own there, which always flags it; this is the rule for large values."""
        if self._seen < 100:
            self._seen += 1
            self._largest = max(self._largest, value)
            return False
        return value >= 10.0 * self._largest


class KillLossSpike:
    """llm-foundry, `KillLossSpike`: more than four values in a row at twice the mean of the last 100.

    The second condition of the callback is kept: more than half of the window above the largest of the first
    window (at most 10).
    """

    meant_for = ("loss",)

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=100)
        self._cap: float | None = None
        self._row = 0

    def flags(self, value: float) -> bool:
        """Whether the run would be stopped here."""
        found = False
        if len(self._last) == 100:
            window = list(self._last)
            self._cap = self._cap if self._cap is not None else min(10.0, max(window))
            self._row = self._row + 1 if value >= 2.0 * _mean(window) else 0
            found = self._row > 4 or sum(v > self._cap for v in window) > 50
        self._last.append(value)
        return found


class SpikeDetection:
    """PyTorch Lightning, `SpikeDetection`: not finite, or above the mean of the last 10 by twice that mean."""

    meant_for = ("loss",)

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=10)

    def flags(self, value: float) -> bool:
        """Flagged values do not enter the mean."""
        if not math.isfinite(value):
            return True
        if self._last:
            mean = _mean(list(self._last))
            if value > mean and value - mean >= 2.0 * abs(mean):
                return True
        self._last.append(value)
        return False


OTHERS: dict[str, type[FlagsValues]] = {
    "OLMo-core SkipStep": SkipStep,
    "OLMo-core StabilityMonitor": StabilityMonitor,
    "ZClip": ZClip,
    "Megatron spiky loss": MegatronSpiky,
    "llm-foundry KillLossSpike": KillLossSpike,
    "Lightning SpikeDetection": SpikeDetection,
}
