"""The repaired run against the pre-incident one: at set horizons, is it where its own history lets expect?

At horizon h the median of the last few steps is held against the same median at the restart point. How far such a
median moves over h steps is taken from the run's own healthy history: from the moves over h steps that follow one
another without overlapping, in its newer half, since curves flatten. Of many moves the band leaves out the outermost
5 %; of few it is the prediction interval of Student's t for one more of them. Norms move in the log domain.

On eight healthy public curves 4 to 8 % of the medians lie outside, at every horizon from 1 to 500 steps. Being inside
says that the run goes on as it went. It says nothing of the cause, nor of what may be concluded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from .._rooms import schemas

HORIZONS = (1, 5, 20, 100, 500, 2_000, 10_000, 50_000)
"""Updates after the restart at which the run is looked at."""
WINDOW = 20
"""Steps that a median is taken over, at most: as many as the horizon at the first ones."""
SHARE = 0.5
"""The part of the history, in steps, that the moves are taken from: the newer one."""
FEWEST = 4
"""Moves without which there is no band."""
MANY = 40
"""From so many moves on the band is where 95 % of them lie."""
MOST = 400
"""Moves that are looked at, the newest ones."""
LOG = ("grad_norm", "grad_norm_local")
OUTSIDE = 0.025
"""On each side."""
STUDENT = ((3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (8, 2.306), (10, 2.228), (15, 2.131), (25, 2.06))
"""Degrees of freedom -> the 97.5 % quantile of Student's t; of those between, the one before: it is wider."""


@dataclass(frozen=True)
class Curve:
    """One signal by step; of several ranks their mean, not finite where one of them is not."""

    signal: str
    values: Mapping[int, float]

    def median(self, last: int, window: int) -> float | None:
        """The median of the last steps up to `last`; None where fewer than half are on record or one is not finite."""
        held = [self.values[s] for s in range(last - window + 1, last + 1) if s in self.values]
        if len(held) * 2 < window or not held or not all(map(math.isfinite, held)):
            return None
        return median(held)

    def broken(self, last: int, window: int) -> bool:
        """Whether a step up to `last` is on record and not finite."""
        return any(not math.isfinite(self.values.get(s, 0.0)) for s in range(last - window + 1, last + 1))


@dataclass(frozen=True)
class Given:
    """What is compared: the healthy curves before the incident, and those of the repaired run."""

    before: Sequence[Curve]
    after: Sequence[Curve]
    from_step: int
    """completed updates at the restart point"""
    last_healthy: int
    """last step before the first bad one"""


def horizons(given: Given, at: Iterable[int] = HORIZONS) -> list[schemas.Horizon]:
    """Each signal at each horizon; of those that were not reached only the first is told."""
    out: list[schemas.Horizon] = []
    for after in given.after:
        before = next((c for c in given.before if c.signal == after.signal), None)
        reached = max(after.values, default=given.from_step)
        for steps in at:
            found = _horizon(before, after, given, steps)
            out.append(found)
            if given.from_step + steps > reached:
                break
    return out


def _horizon(before: Curve | None, after: Curve, given: Given, steps: int) -> schemas.Horizon:
    window, at = min(WINDOW, steps), given.from_step + steps
    told = {"signal": after.signal, "steps": steps, "at_step": at, "window": window}
    if at > max(after.values, default=given.from_step):
        return schemas.Horizon(**told, position="not_reached", text=f"step {at:,} is not made yet")
    if after.broken(at, window):
        text = f"{after.signal} is not finite within the {window} steps up to {at:,}"
        return schemas.Horizon(**told, position="non_finite", text=text)
    value = after.median(at, window)
    start = None if before is None else before.median(given.from_step, window)
    if value is None or before is None or start is None:
        which = "after the restart" if value is None else "before the incident"
        text = f"fewer than half of the {window} steps are on record {which}"
        return schemas.Horizon(**told, value=value, start=start, position="not_shown", text=text)
    log = after.signal in LOG
    moves = _moves(before, given, steps, window, log=log)
    if len(moves) < FEWEST:
        half = round(SHARE * given.from_step)
        text = (
            f"the run's own history is too short: a band needs {FEWEST} moves over {steps:,} steps in its newer half, "
            f"from step {half:,} on; there are {len(moves)}"
        )
        return schemas.Horizon(
            **told, value=value, start=start, moves=len(moves), position="not_shown", text=text
        )
    low, high = (_moved(start, m, log=log) for m in _band(moves))
    position = "below" if value < low else "above" if value > high else "inside"
    text = (
        f"{after.signal} {value:.4g}, from {start:.4g} at step {given.from_step:,}; as it moved over {steps:,} steps "
        f"before, {low:.4g} to {high:.4g} ({len(moves)} moves)"
    )
    return schemas.Horizon(
        **told,
        value=value,
        start=start,
        low=low,
        high=high,
        moves=len(moves),
        position=position,
        text=text,
    )


def _moves(before: Curve, given: Given, steps: int, window: int, *, log: bool) -> list[float]:
    """How far the median moved over so many steps, one move after the other, back from the newest healthy step."""
    newest = min(given.last_healthy, max(before.values, default=0))
    oldest = max(window, min(before.values, default=0), round(SHARE * newest))
    out: list[float] = []
    for place in range(newest, oldest + steps - 1, -steps):
        a, b = before.median(place - steps, window), before.median(place, window)
        if a is None or b is None or (log and (a <= 0 or b <= 0)):
            continue
        out.append(math.log(b / a) if log else b - a)
        if len(out) >= MOST:
            break
    return out


def _band(moves: Sequence[float]) -> tuple[float, float]:
    if len(moves) >= MANY:
        ordered = sorted(moves)
        return _quantile(ordered, OUTSIDE), _quantile(ordered, 1 - OUTSIDE)
    n = len(moves)
    factor = next(t for df, t in reversed(STUDENT) if df <= n - 1)
    spread = factor * stdev(moves) * math.sqrt(1 + 1 / n)
    return fmean(moves) - spread, fmean(moves) + spread


def _quantile(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _moved(start: float, move: float, *, log: bool) -> float:
    return start * math.exp(move) if log else start + move


def same_steps(given: Given) -> list[schemas.SameSteps]:
    """The steps that were made twice, value against value."""
    out = []
    for after in given.after:
        before = next((c for c in given.before if c.signal == after.signal), None)
        if before is None:
            continue
        common = sorted(
            s for s in after.values if given.from_step < s <= given.last_healthy and s in before.values
        )
        if not common:
            continue
        pairs = [(before.values[s], after.values[s]) for s in common]
        equal = sum(a == b for a, b in pairs)
        finite = [b - a for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        middle = median(finite) if finite else None
        largest = max(map(abs, finite), default=None)
        shown = "" if middle is None else f"; median difference {middle:+.3g}, largest {largest:.3g}"
        out.append(
            schemas.SameSteps(
                signal=after.signal,
                steps=len(common),
                first=common[0],
                last=common[-1],
                equal=equal,
                median=middle,
                largest=largest,
                text=f"{after.signal}: {equal:,} of {len(common):,} steps that were made twice are equal to the last "
                f"bit{shown}",
            )
        )
    return out


def parameters() -> dict[str, schemas.Scalar]:
    """How it was looked at."""
    held = {"window": WINDOW, "share": SHARE, "outside": 2 * OUTSIDE, "fewest": FEWEST, "many": MANY}
    return {k: schemas.Scalar.of(v) for k, v in held.items()}


LIMITS = (
    "a run that goes on as it went is no evidence of what broke it: that needs a replay that flips with one condition",
    "a band leaves about one in fifteen healthy medians outside: one horizon outside is a reason to look, and no more",
    "loss and gradient norm are looked at, and nothing else: what may be concluded, `lineage verdict` says",
)


def outside(found: Sequence[schemas.Horizon]) -> list[schemas.Horizon]:
    """The horizons at which the repaired run is not where its history lets expect."""
    return [h for h in found if h.position in ("above", "below", "non_finite")]


def judged(found: Sequence[schemas.Horizon]) -> list[schemas.Horizon]:
    """The horizons of which anything can be said."""
    return [h for h in found if h.position in ("inside", "above", "below", "non_finite")]


def summary(found: Sequence[schemas.Horizon]) -> str:
    """One line."""
    said, out = judged(found), outside(found)
    if not said:
        return "nothing can be said yet: no horizon has been reached with a band of the run's own history"
    furthest = _steps(max(h.steps for h in said))
    if out:
        names = ", ".join(f"{h.signal} at {h.steps:,} ({h.position.replace('_', ' ')})" for h in out)
        return f"NOT as before at {len(out)} of {len(said)} horizons up to {furthest}: {names}"
    short = [h.steps for h in found if h.position == "not_shown"]
    if not short:
        return f"as before at all {len(said)} horizons that were reached, up to {furthest} after the restart"
    return (
        f"as before at {len(said)} horizons, up to {furthest} after the restart; not shown at {len(short)} "
        f"that were reached, up to {_steps(max(short))}: its own history has no band for them"
    )


def _steps(n: int) -> str:
    return f"{n:,} step{'' if n == 1 else 's'}"
