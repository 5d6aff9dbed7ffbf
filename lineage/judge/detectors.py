"""Detectors: pure functions over a stream of values, the same live and on an old ledger.

Robust statistics on the stream's own recent, healthy values: the baseline is the median of the last five,
the scale is the median absolute successive difference (which a trend does not widen), times 1.4826/sqrt(2)
to estimate a standard deviation of Gaussian noise (Rousseeuw and Croux, 1993, for the first factor). Norms
are judged in the log domain. Non-finite and flagged values never enter the baseline.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

Abnormal = Literal["non_finite", "out_of_range"]


@dataclass(frozen=True)
class Finding:
    """An abnormal value, with what it was judged against."""

    abnormal: Abnormal
    value: float
    baseline: float | None
    threshold: float | None


@dataclass(frozen=True)
class Rule:
    """The parameters of a detector; recorded with each alarm."""

    name: str
    log: bool
    warmup: int = 8
    """healthy values before anything but a non-finite value is judged"""
    window: int = 32
    """healthy values that the scale is estimated from"""
    sigmas: float = 10.0
    relative: float = 0.25
    """least jump, as a share of the baseline (linear domain)"""
    absolute: float = 0.5
    """least jump in the stream's own unit, or in nats of the log domain"""

    def parameters(self) -> dict[str, float | str | bool]:
        """The rule as plain values."""
        return {
            k: getattr(self, k) for k in ("name", "log", "warmup", "window", "sigmas", "relative", "absolute")
        }


LOSS = Rule("loss-jump/1", log=False)
NORM = Rule("norm-jump/1", log=True, relative=0.0, absolute=math.log(6.0))
"""A norm is judged abnormal from six times its recent median on, and from ten sigmas on."""

RULES = {"loss": LOSS, "grad_norm_local": NORM, "grad_norm": NORM}


@dataclass
class Detector:
    """Judges one stream, value by value."""

    rule: Rule
    healthy: deque[float] = field(default_factory=deque)

    def update(self, value: float) -> Finding | None:
        """Judge the next value; healthy ones enter the baseline."""
        if not math.isfinite(value):
            return Finding("non_finite", value, self._baseline(), None)
        if self.rule.log and value <= 0.0:
            return None  # a norm of zero has no logarithm: dead gradients are another finding
        x = math.log(value) if self.rule.log else value
        threshold = self._threshold()
        if threshold is not None and x > threshold:
            return Finding("out_of_range", value, self._baseline(), self._out(threshold))
        self.healthy.append(x)
        if len(self.healthy) > self.rule.window:
            self.healthy.popleft()
        return None

    def _centre(self) -> float:
        return statistics.median(list(self.healthy)[-5:])

    def _threshold(self) -> float | None:
        if len(self.healthy) < self.rule.warmup:
            return None
        values = list(self.healthy)
        steps = [abs(b - a) for a, b in itertools.pairwise(values)]
        scale = 1.4826 / math.sqrt(2.0) * statistics.median(steps)
        centre = self._centre()
        return centre + max(self.rule.sigmas * scale, self.rule.relative * abs(centre), self.rule.absolute)

    def _baseline(self) -> float | None:
        return self._out(self._centre()) if self.healthy else None

    def _out(self, x: float) -> float:
        return math.exp(min(x, 700.0)) if self.rule.log else x
