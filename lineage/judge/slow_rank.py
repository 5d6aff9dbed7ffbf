"""A rank that is slower than the others in what it does by itself, before it waits for them.

A collective lets every rank take as long as the slowest, so the time of a whole step tells nothing. Two times are a
rank's own: the one between its steps (its loader, its logging, its saves), and the one from the start of a step to
its first gradient, where nothing is gathered on the way (under sharding weights are, and then it is not its own).
Both are the host's: on a device that works asynchronously the second one is the time of launching.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from .._rooms import schemas
from . import rank_sets
from .cells import Point

CHECK = "slow-rank/1"
BETWEEN, TO_GRADIENT, WHOLE = "time_between", "time_to_gradient", "time_step"
OWN = {
    BETWEEN: "between its steps (loading data, logging, saving)",
    TO_GRADIENT: "from the start of a step to its first gradient (the forward pass)",
}
LEAST_SECONDS, LEAST_SHARE = 0.02, 0.5
"""Excess over the median of the ranks that counts: this much, and this share of a step's usual time."""
LEAST_STEPS = 10
"""Steps in a row that must show it. One slow step is a save, an evaluation or another process on the machine."""
MISSES = 0.2
"""Share of the steps within the stretch that need not show it."""


@dataclass(frozen=True)
class Slow:
    """One rank over a stretch of steps."""

    rank: int
    signal: str
    step: int
    until: int
    excess: float
    """seconds above the median of the ranks, median over the stretch"""
    usual: float
    """seconds of a whole step, the median over all ranks and steps"""
    ranks: tuple[int, ...]


def find(points: Iterable[Point]) -> list[Slow]:
    """Slow ranks of one segment, with the longest stretch of steps each."""
    values: dict[str, dict[int, dict[int, float]]] = {s: defaultdict(dict) for s in (*OWN, WHOLE)}
    for p in points:
        if p.signal in values:
            values[p.signal][p.step][p.rank] = p.value
    whole = [v for ranks in values[WHOLE].values() for v in ranks.values()]
    if not whole:
        return []
    usual = median(whole) + median([v for r in values[BETWEEN].values() for v in r.values()] or [0.0])
    least = max(LEAST_SECONDS, LEAST_SHARE * usual)
    out = []
    for signal in OWN:
        out += _of(signal, values[signal], least, usual)
    return sorted(out, key=lambda s: (s.step, s.rank))


def _of(signal: str, steps: dict[int, dict[int, float]], least: float, usual: float) -> list[Slow]:
    excess: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for step in sorted(steps):
        ranks = steps[step]
        if len(ranks) < 2:
            continue
        for rank, value in ranks.items():
            others = median(v for r, v in ranks.items() if r != rank)
            excess[rank].append((step, value - others))
    every = tuple(sorted(excess))
    out = []
    for rank, found in sorted(excess.items()):
        stretch = _longest([(step, e >= least, e) for step, e in found])
        if stretch is not None:
            first, last, how_much = stretch
            out.append(Slow(rank, signal, first, last, how_much, usual, every))
    return out


def _longest(marks: Sequence[tuple[int, bool, float]]) -> tuple[int, int, float] | None:
    """(first step, last step, median excess) of the longest stretch of steps of which nearly all are slow."""
    best: tuple[int, int] | None = None
    begin: int | None = None
    slow = misses = last = 0
    for i, (_, is_slow, _) in enumerate(marks):
        if begin is None:
            if is_slow:
                begin, slow, misses, last = i, 1, 0, i
            continue
        slow, misses = slow + is_slow, misses + (not is_slow)
        if is_slow:
            last = i
        if misses > max(1, MISSES * (slow + misses)):
            begin = None
            continue
        if slow >= LEAST_STEPS and (best is None or last - begin > best[1] - best[0]):
            best = begin, last
    if best is None:
        return None
    part = marks[best[0] : best[1] + 1]
    return part[0][0], part[-1][0], median(e for _, slow_, e in part if slow_)


def findings(points: Iterable[Point]) -> list[schemas.Finding]:
    """One finding per slow rank and kind of time."""
    return [_said(s) for s in find(points)]


def _said(s: Slow) -> schemas.Finding:
    values: dict[str, object] = {
        "rank": s.rank,
        "first_step": s.step,
        "last_step": s.until,
        "excess_seconds": s.excess,
        "step_seconds": s.usual,
        "least_seconds": LEAST_SECONDS,
        "least_share": LEAST_SHARE,
    }
    others = rank_sets.words(set(s.ranks) - {s.rank})
    return schemas.Finding(
        code="LIN-R004",
        check=CHECK,
        severity="warning",
        subject=s.signal,
        text=(
            f"rank {s.rank} takes {s.excess:.3g} s longer than the median of {others} {OWN[s.signal]}, "
            f"in steps {s.step:,} to {s.until:,}; a whole step usually takes {s.usual:.3g} s"
        ),
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="look at that rank's device, node, loader and neighbours; every other rank waits for it",
    )
