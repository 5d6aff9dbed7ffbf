"""Slow rise: a one-sided CUSUM (Page, 1954) on the medians of short blocks of healthy values.

A healthy loss falls and a healthy norm falls or stays, so the reference is not a mean, which a fall would leave
behind, but a low quantile of the recent block medians: it follows a fall and lags behind a rise. What a block
lies above the reference, in units of the blocks' own scatter, is added up beyond an allowance `k`; the sum is
an alarm when it passes `h` and the rise is at least `relative` (or `absolute` nats in the log domain). One wild
block adds `clip` at most, so that an alarm takes several blocks.

The gradient norm of a healthy run may triple over a thousand steps. What is an alarm is a rise within the window
of the reference, so the reference moves on until there is one; blocks under alarm never enter it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from .detect_window import Window
from .detectors import TO_SIGMA, Finding, Plain, check_state, parameters_of


@dataclass(frozen=True)
class RiseRule:
    """The parameters of a detector of slow rises; recorded with each finding."""

    name: str
    log: bool
    block: int = 8
    """values of which one median is taken"""
    reference: int = 64
    """block medians that the reference and the scatter come from"""
    warmup: int = 8
    """block medians before anything is judged"""
    quantile: float = 0.25
    k: float = 1.5
    h: float = 12.0
    clip: float = 5.0
    relative: float = 0.03
    """least rise, as a share of the reference (linear domain)"""
    absolute: float = 0.01
    """least rise in the stream's own unit, or in nats of the log domain"""
    least_scale: float = 0.002
    """least scatter, as a share of the reference, or in nats"""
    patience: int = 32
    """blocks under alarm after which their level becomes the reference"""

    def parameters(self) -> dict[str, Plain]:
        """The rule as plain values."""
        return parameters_of(self)


LOSS_RISE = RiseRule("loss-rise/1", log=False)
NORM_RISE = RiseRule("norm-rise/1", log=True, relative=0.0, absolute=math.log(2.0), least_scale=0.02)

RISE_RULES = {"loss": LOSS_RISE, "grad_norm_local": NORM_RISE, "grad_norm": NORM_RISE}


class Rise:
    """Judges one stream by blocks. Feed it what the spike detector found healthy; non-finite values are left out.

    `update` returns a finding at the block that raises the alarm (`slow_rise`, with `since` = values since the sum
    left zero, the usual estimate of where it began) and when a new level is taken (`new_level`). While
    `alarmed` is true the reference stands still.
    """

    def __init__(self, rule: RiseRule, state: Mapping[str, Any] | None = None) -> None:
        """A new detector, or one that goes on from what `state()` gave."""
        self.rule = rule
        self.alarmed = False
        self._block: list[float] = []
        self._reference = Window(rule.reference)
        self._moves = Window(rule.reference - 1)
        self._blocks = 0
        """blocks since the sum left zero"""
        self._alarmed: list[float] = []
        """medians of the blocks under alarm"""
        self._sum = 0.0
        if state is not None:
            check_state(state, rule.name)
            for m in state["reference"]:
                self._accept(m)
            self._block, self._alarmed = list(state["block"]), list(state["under_alarm"])
            self._blocks = int(state["blocks"])
            self._sum, self.alarmed = float(state["sum"]), bool(state["alarmed"])

    def state(self) -> dict[str, Any]:
        """All that the next verdict depends on, as JSON values."""
        return {
            "name": self.rule.name,
            "block": list(self._block),
            "reference": self._reference.values(),
            "under_alarm": list(self._alarmed),
            "blocks": self._blocks,
            "sum": self._sum,
            "alarmed": self.alarmed,
        }

    def update(self, value: float) -> Finding | None:
        """Add the next value; at the end of a block, judge it."""
        if not math.isfinite(value) or (self.rule.log and value <= 0.0):
            return None
        self._block.append(math.log(value) if self.rule.log else value)
        if len(self._block) < self.rule.block:
            return None
        m, self._block = median(self._block), []
        return self._judge(m)

    def _judge(self, m: float) -> Finding | None:
        if len(self._reference) < self.rule.warmup:
            self._accept(m)
            return None
        reference = self._reference.quantile(self.rule.quantile)
        unit = 1.0 if self.rule.log else abs(reference)
        scale = max(TO_SIGMA * self._moves.median(), self.rule.least_scale * unit, 1e-12)
        least = max(self.rule.absolute, self.rule.relative * unit)
        self._sum = max(0.0, self._sum + min((m - reference) / scale, self.rule.clip) - self.rule.k)
        self._blocks += 1
        if self._sum == 0.0:
            self.alarmed, self._blocks, self._alarmed = False, 0, []
        if not self.alarmed and self._sum > self.rule.h and m - reference > least:
            self.alarmed = True
            self._alarmed.append(m)
            return self._finding("slow_rise", m, reference, reference + least)
        self._sum = min(self._sum, self.rule.h)  # or the end of a long rise would be seen late
        if not self.alarmed:
            self._accept(m)
            return None
        self._alarmed.append(m)
        return self._take_new_level(reference) if len(self._alarmed) >= self.rule.patience else None

    def _take_new_level(self, reference: float) -> Finding:
        levels = self._alarmed
        found = self._finding("new_level", levels[-1], reference, median(levels))
        self._reference.clear()
        self._moves.clear()
        self._alarmed, self._blocks, self._sum, self.alarmed = [], 0, 0.0, False
        for m in levels:
            self._accept(m)
        return found

    def _accept(self, m: float) -> None:
        if len(self._reference):
            self._moves.push(abs(m - self._reference.newest()))
        self._reference.push(m)

    def _finding(self, abnormal: Any, m: float, reference: float, threshold: float) -> Finding:
        since = max(self._blocks, 1) * self.rule.block - 1
        return Finding(
            abnormal,
            self._out(m),
            self._out(reference),
            self._out(threshold),
            self.rule.parameters(),
            since,
        )

    def _out(self, x: float) -> float:
        return math.exp(min(x, 700.0)) if self.rule.log else x
