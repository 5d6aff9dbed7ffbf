"""The size of the first updates after a resume, held against those before the save.

The first loss after a resume is that of the restored weights, whatever else was lost; the first update is not. With
moments that are kept and a step counter that begins again, Adam's bias correction is that of a first step: the update
is sqrt(1 - b2) / (1 - b1) times as large as it was (Kingma and Ba 2015, algorithm 1, at t = 1 against t -> infinity).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .._rooms import schemas

CHECK = "first-updates/1"
LEAST = 3
"""Updates before the save that a comparison needs."""
BEFORE = 12
"""Updates before the save that are looked at, the newest ones."""
BEYOND = 1.5
"""How far beyond all of those an update's size must lie, as a factor."""


@dataclass(frozen=True)
class Update:
    """One update: its L2 norm over all parameters of a rank, and the learning rate that it was made with."""

    step: int
    norm: float
    lr: float

    @property
    def size(self) -> float:
        """The norm per unit of learning rate, which a schedule does not move."""
        return self.norm / self.lr


@dataclass(frozen=True)
class Sizes:
    """The first updates beside those before."""

    ratios: dict[int, float]
    """step -> its size over the median size before the save"""
    low: float
    high: float
    """least and greatest size before the save, over their median"""
    count: int

    @property
    def odd(self) -> bool:
        """Whether the first update lies far beyond all that were made before."""
        first = next(iter(self.ratios.values()), 1.0)
        return first > self.high * BEYOND or first < self.low / BEYOND


def sizes(before: Sequence[Update], after: Sequence[Update]) -> Sizes | None:
    """Compare the first two updates with the last ones before the save. None where too few are known."""
    known = [u.size for u in sorted(before, key=lambda u: u.step)[-BEFORE:] if _usable(u)]
    first = [u for u in sorted(after, key=lambda u: u.step)[:2] if _usable(u)]
    if len(known) < LEAST or not first:
        return None
    usual = median(known)
    if usual == 0.0:
        return None
    return Sizes({u.step: u.size / usual for u in first}, min(known) / usual, max(known) / usual, len(known))


def _usable(u: Update) -> bool:
    return u.lr > 0.0 and math.isfinite(u.norm) and math.isfinite(u.lr)


def begins_again(betas: tuple[float, float], was: int, now: int = 0) -> float | None:
    """How many times too large the first update is where moments are kept and their counter went from `was` to `now`.

    The ratio of Adam's corrections at the first update after the resume: made with t = now + 1, due with t = was + 1.
    After many updates it is sqrt(1 - b2) / (1 - b1); after few it is another, and at betas .9, .999 even its side
    of one changes.
    """
    if not all(0.0 <= b < 1.0 for b in betas) or min(was, now) < 0:
        return None
    return _correction(betas, now + 1) / _correction(betas, was + 1)


def _correction(betas: tuple[float, float], t: int) -> float:
    first, second = betas
    return math.sqrt(1.0 - second**t) / (1.0 - first**t)


@dataclass(frozen=True)
class Lost:
    """A step counter that was lost, of an Adam whose moments were kept."""

    betas: tuple[float, float]
    was: int
    now: int

    @property
    def factor(self) -> float | None:
        """How many times too large the first update is by that."""
        return begins_again(self.betas, self.was, self.now)

    def text(self) -> str:
        """What follows of it for the first update; "" where nothing can be told."""
        if self.factor is None:
            return ""
        return (
            f"moments that are kept with a step counter that went from {self.was:,} to {self.now:,} make it "
            f"{self.factor:.3g} times as large (betas {self.betas[0]:g}, {self.betas[1]:g})"
        )


def finding(found: Sizes | None, lost: Lost | None = None) -> schemas.Finding | None:
    """What is odd about the first update; None where nothing is."""
    if found is None or not found.odd:
        return None
    step, ratio = next(iter(found.ratios.items()))
    text = (
        f"the update of step {step:,}, the first after the resume, has {ratio:.3g} times the usual size for its "
        f"learning rate ({found.count} updates before the save: {found.low:.2g} to {found.high:.2g} times)"
    )
    expected = lost.factor if lost is not None else None
    if lost is not None and expected is not None:
        text += f"; {lost.text()}"
    values: dict[str, object] = {
        "first_step": step,
        "ratio": round(ratio, 6),
        "expected": round(expected, 6) if expected is not None else None,
        "updates_before": found.count,
        "beyond": BEYOND,
    }
    return schemas.Finding(
        code="LIN-C013",
        check=CHECK,
        severity="warning",
        subject="optimizer",
        text=text,
        values={k: schemas.Scalar.of(v) for k, v in values.items() if v is not None},
        remedy="look at what of the optimizer was restored: `lineage resume`",
    )
