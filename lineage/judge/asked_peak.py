"""The peak learning rate that the config asks for, and the one that the run had."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from . import asked

CHECK = "asked-peak/1"
APART = 0.05
"""Relative difference from which it is told: a schedule in steps may miss its peak by a little."""
STEADY = 20
"""Updates at one rate after which a rate without a schedule is taken for constant."""

Rates = Sequence[tuple[int, float]]
"""(step, rate) in the order of steps"""


@dataclass(frozen=True)
class Course:
    """The rates of one segment's branch."""

    own: Rates
    """of the segment itself"""
    before: Rates = ()
    """of what it descends from"""
    ahead: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """step -> rates of the groups, as the schedule predicts them"""
    from_start: bool = True
    """whether all of the branch is on record, from its first update on"""
    others: Sequence[float] = ()
    """highest rates of further parameter groups"""


def findings(config: schemas.Config | None, course: Course) -> list[schemas.Finding]:
    """Whether the rate that was asked for was reached, and not passed. Nothing while that is open."""
    (read,) = asked.read([config])
    entries = read.entries("learning_rate") if read else []
    wanted = {e.key: float(e.normal) for e in entries if isinstance(e.normal, float) and e.normal > 0}
    if not wanted or not course.own or any(e.open for e in entries):
        return []
    highest, reached = max(course.own, key=lambda r: r[1]), _reached(course)
    held = [highest[1], *course.others, *([reached[1]] if reached else [])]
    if any(math.isclose(v, h, rel_tol=APART) for v in wanted.values() for h in held):
        return []
    for key, value in wanted.items():
        if highest[1] > max(wanted.values()) and math.isfinite(highest[1]):
            return [_said(key, value, *highest)]
        if reached is not None and 0 < reached[1] < min(wanted.values()):
            return [_said(key, value, *reached)]
    return []


def _reached(course: Course) -> tuple[int, float] | None:
    """The peak of the whole branch, once it is known to be passed; None while the rate may still rise."""
    if not course.from_start:
        return None
    step, peak = max((*course.before, *course.own), key=lambda r: r[1])
    last, rate = course.own[-1]
    coming = {s: max(rates) for s, rates in course.ahead.items() if s > last and rates}
    if coming:
        further, highest = max(coming.items(), key=lambda x: x[1])
        if highest <= peak:
            return step, peak
        return (further, highest) if coming[max(coming)] < highest else None
    steady = len(course.own) >= STEADY and all(r == peak for _, r in course.own)
    return (step, peak) if steady or rate < peak * (1 - APART / 10) else None


def _said(key: str, wanted: float, step: int, peak: float) -> schemas.Finding:
    values = {"first_step": step, "requested": wanted, "peak": peak, "ratio": round(peak / wanted, 6)}
    return schemas.Finding(
        code="LIN-D005",
        check=CHECK,
        severity="warning",
        subject="learning rate",
        text=f"{key} asks for {wanted:.6g}, and the rate in effect has its peak at {peak:.6g} (step {step:,}): "
        f"{peak / wanted:.3g} times what was asked for",
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="trust the rate in effect; look at what scales it (batch, world size), or what a load put back",
    )
