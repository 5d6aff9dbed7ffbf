"""Faults injected into healthy stretches of real curves, and how often a rule finds them.

Each trial starts from a copy of the rule as it stood at that place of the curve, with its whole past, so that
trials do not disturb each other. A fault multiplies the real values, as a jump of the loss or the norm would.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .curves import Curve

JUMPS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
BURSTS = (1.5, 3.0)
RISES = (1.001, 1.003, 1.01, 1.03)
BURST, RISE, AFTER = 10, 300, 20
"""Steps of a burst; steps within which a slow rise must be found; steps between a NaN and the jump behind it."""
FIRST = 150
"""Position before which nothing is injected: the slowest rule needs 128 values."""

Judge = Callable[[float], bool]
Make = Callable[[Curve], Judge]


@dataclass
class Share:
    """Found of tried, and after how many steps."""

    found: int = 0
    tried: int = 0
    delays: list[int] = field(default_factory=list)

    def count(self, delay: int | None) -> None:
        """Add a trial: None for a fault that was not found."""
        self.tried += 1
        if delay is not None:
            self.found += 1
            self.delays.append(delay)


@dataclass
class Outcome:
    """What one rule did on one or more curves."""

    steps: int = 0
    alarms: list[tuple[str, int]] = field(default_factory=list)
    """(curve, step) of each flagged healthy value"""
    faults: dict[str, Share] = field(default_factory=dict)
    blind: int = 0
    """healthy values flagged between a NaN and the jump behind it"""

    def share(self, fault: str) -> Share:
        """The tally of one fault."""
        return self.faults.setdefault(fault, Share())


def judge(make: Make, curves: Sequence[Curve], trials: int) -> Outcome:
    """False alarms on the healthy values of the curves, and `trials` of each fault per curve.

    A curve too short for a fault is judged for false alarms only.
    """
    out = Outcome()
    for curve in curves:
        healthy = curve.healthy()
        out.steps += len(healthy)
        places = _places(curve, healthy, trials)
        rule = make(curve)
        for i, value in enumerate(curve.values):
            if i in places:
                for _ in range(places[i]):
                    _try_all(out, rule, curve.values[i : i + RISE])
            if rule(value) and i in healthy:
                out.alarms.append((curve.name, curve.steps[i]))
    return out


def _places(curve: Curve, healthy: set[int], trials: int) -> Mapping[int, int]:
    """Position -> trials there: drawn at random, alike for every rule, with a healthy stretch behind each."""
    last = len(curve.values) - RISE
    room = [i for i in range(FIRST, last) if healthy.issuperset(range(i, i + AFTER + BURST))]
    if len(room) < trials:
        return {}
    return dict.fromkeys(random.Random(curve.name).sample(room, trials), 1)


def _try_all(out: Outcome, rule: Judge, stretch: Sequence[float]) -> None:
    for size in JUMPS:
        out.share(f"x{size:g}").count(_first(rule, [stretch[0] * size]))
    for size in BURSTS:
        out.share(f"burst x{size:g}").count(_first(rule, [v * size for v in stretch[:BURST]]))
    for growth in RISES:
        rising = [v * growth ** (i + 1) for i, v in enumerate(stretch)]
        out.share(f"rise x{growth:g}").count(_first(rule, rising))
    blinded = copy.deepcopy(rule)
    out.share("NaN").count(0 if blinded(math.nan) else None)
    out.blind += sum(blinded(v) for v in stretch[:AFTER])
    out.share("x10 after NaN").count(0 if blinded(stretch[AFTER] * 10.0) else None)


def _first(rule: Judge, values: Sequence[float]) -> int | None:
    """The first flagged position, judged by a copy of the rule."""
    fresh = copy.deepcopy(rule)
    return next((i for i, v in enumerate(values) if fresh(v)), None)
