"""Detectors of spikes: pure functions over a stream of values, the same live and on an old ledger.

The baseline is the median of the last healthy values, the scale is the median absolute successive difference
over a longer window (which a trend does not widen), times 1.4826/sqrt(2) to estimate a standard deviation of
Gaussian noise (Rousseeuw and Croux, 1993, for the first factor). Norms are judged in the log domain.

Non-finite and flagged values never enter the baseline, so that nothing blinds the detector; a level that stays
is taken as the new baseline only after `patience` flagged values in a row, with a finding that says so. What
was measured with these parameters stands in docs/detectors.md.

`detect_rise` finds slow rises, `detect_family` judges the layers of one step as a family, `detect_ranks` judges
the ranks of one step against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, Literal

from .detect_window import Window

Abnormal = Literal["non_finite", "out_of_range", "slow_rise", "new_level"]
Plain = float | int | str | bool
TO_SIGMA = 1.4826 / math.sqrt(2.0)
"""Median absolute successive difference -> standard deviation, for Gaussian noise."""


@dataclass(frozen=True)
class Finding:
    """An abnormal value, with what it was judged against and by which detector."""

    abnormal: Abnormal
    value: float
    baseline: float | None
    threshold: float | None
    detector: Mapping[str, Plain] = field(default_factory=dict)
    """name with version, and every parameter: with these and the stream, the verdict can be had again"""
    since: int = 0
    """how many values back it began, as far as the detector can tell"""


def parameters_of(rule: Any) -> dict[str, Plain]:
    """The fields of a rule as plain values."""
    return {f.name: getattr(rule, f.name) for f in fields(rule)}


def check_state(state: Mapping[str, Any], name: str) -> None:
    """Raise `ValueError` where a state was made by a detector of another name or version."""
    if state["name"] != name:
        raise ValueError(
            f"the state is of detector {state['name']!r}, the rule is {name!r}: "
            "start afresh, or use the rule that the state was made with"
        )


@dataclass(frozen=True)
class Rule:
    """The parameters of a spike detector; recorded with each finding."""

    name: str
    """what it is for, and the version of the method behind the slash"""
    log: bool
    warmup: int = 8
    """healthy values before anything but a non-finite value is judged"""
    window: int = 64
    """healthy values that the scale is estimated from"""
    centre: int = 9
    """healthy values that the baseline is the median of"""
    sigmas: float = 10.0
    early: float = 8.0
    """`sigmas` is widened by 1 + early / (healthy values in the window): a scale from few values is unsure"""
    relative: float = 0.08
    """least jump, as a share of the baseline (linear domain)"""
    absolute: float = 0.05
    """least jump in the stream's own unit, or in nats of the log domain"""
    patience: int = 64
    """flagged finite values in a row after which their level becomes the baseline"""

    def parameters(self) -> dict[str, Plain]:
        """The rule as plain values."""
        return parameters_of(self)


LOSS = Rule("loss-jump/2", log=False)
NORM = Rule("norm-jump/2", log=True, sigmas=6.5, relative=0.0, absolute=math.log(3.5))
"""A norm is judged abnormal from three and a half times its recent median on, and from about seven sigmas on."""

RULES = {"loss": LOSS, "grad_norm_local": NORM, "grad_norm": NORM}


class Detector:
    """Judges one stream, value by value. Keeps `window` numbers; a value costs O(window) at most."""

    def __init__(self, rule: Rule, state: Mapping[str, Any] | None = None) -> None:
        """A new detector, or one that goes on from what `state()` gave."""
        self.rule = rule
        self._healthy = Window(rule.window)
        self._moves = Window(rule.window - 1)
        self._flagged: list[float] = []
        if state is not None:
            check_state(state, rule.name)
            for x in state["healthy"]:
                self._accept(x)
            self._flagged = list(state["flagged"])

    def state(self) -> dict[str, Any]:
        """All that the next verdict depends on, as JSON values."""
        return {"name": self.rule.name, "healthy": self._healthy.values(), "flagged": list(self._flagged)}

    def update(self, value: float) -> Finding | None:
        """Judge the next value; healthy ones enter the baseline."""
        if not math.isfinite(value):
            return self._finding("non_finite", value, self._baseline(), None)
        if self.rule.log and value <= 0.0:
            return None  # a norm of zero has no logarithm: dead gradients are another finding
        x = math.log(value) if self.rule.log else value
        threshold = self._threshold()
        if threshold is None or x <= threshold:
            self._flagged.clear()
            self._accept(x)
            return None
        self._flagged.append(x)
        if len(self._flagged) >= self.rule.patience:
            return self._take_new_level(value)
        return self._finding("out_of_range", value, self._baseline(), self._out(threshold))

    def _accept(self, x: float) -> None:
        if len(self._healthy):
            self._moves.push(abs(x - self._healthy.newest()))
        self._healthy.push(x)

    def _take_new_level(self, value: float) -> Finding:
        """The flagged values become the baseline; the finding names the old and the new one."""
        before, levels = self._baseline(), self._flagged
        found = self._finding(
            "new_level", value, before, self._out(median(levels)), since=len(self._flagged) - 1
        )
        self._healthy.clear()
        self._moves.clear()
        self._flagged = []
        for x in levels:
            self._accept(x)
        return found

    def _centre(self) -> float:
        return median(self._healthy.tail(self.rule.centre))

    def _threshold(self) -> float | None:
        n = len(self._healthy)
        if n < self.rule.warmup:
            return None
        scale = TO_SIGMA * self._moves.median()
        centre = self._centre()
        sigmas = self.rule.sigmas * (1.0 + self.rule.early / n)
        return centre + max(sigmas * scale, self.rule.relative * abs(centre), self.rule.absolute)

    def _baseline(self) -> float | None:
        return self._out(self._centre()) if len(self._healthy) else None

    def _finding(
        self,
        abnormal: Abnormal,
        value: float,
        baseline: float | None,
        threshold: float | None,
        since: int = 0,
    ) -> Finding:
        return Finding(abnormal, value, baseline, threshold, self.rule.parameters(), since)

    def _out(self, x: float) -> float:
        return math.exp(min(x, 700.0)) if self.rule.log else x
