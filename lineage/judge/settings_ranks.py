"""Values that all ranks must have alike in each step, from the series that each wrote: rates, clipping, counters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .._rooms import schemas
from . import rank_sets
from .cells import Point

CHECK = "settings-over-ranks/1"
LEAST, GREATEST = "optimizer_step_min", "optimizer_step_max"
ALIKE = ("lr", "clip_threshold", "loss_scale", "update_skipped", "update_held_back", LEAST, GREATEST)
"""Signals that are the same on every rank of a healthy run: each holds the whole schedule and every update."""
COUNTED = ("update_skipped", "update_held_back", LEAST, GREATEST)
"""Of these: no healthy run lets one rank update and another not."""
STANDING = (" of group ",)
"""Signals of parameter groups are written when they change, and stand until then."""


@dataclass(frozen=True)
class Unlike:
    """One signal that ranks have unlike each other."""

    signal: str
    step: int
    until: int | None
    """the last step at which it was so; None where it lasts"""
    alike: int | None
    """the last step before it at which ranks were compared and had it alike: some signals are read every some steps"""
    classes: tuple[tuple[float, tuple[int, ...]], ...]
    """(value, its ranks), the most ranks first; NaN stands for a rank without the value"""


def wanted(signal: str) -> bool:
    """Whether a signal must be alike on all ranks."""
    return signal in ALIKE or any(s in signal for s in STANDING)


def compare(points: Iterable[Point]) -> list[Unlike]:
    """Each signal at the first step at which ranks that recorded that step have it unlike each other."""
    by_signal: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    present: dict[int, set[int]] = defaultdict(set)
    for p in points:
        if wanted(p.signal):
            by_signal[p.signal][p.step][p.rank] = p.value
        present[p.step].add(p.rank)
    out = []
    for signal, steps in sorted(by_signal.items()):
        found = _one(signal, steps, present)
        if found is not None:
            out.append(found)
    least = next((u for u in out if u.signal == LEAST), None)
    if least is not None:  # all counters of a rank moved alike: said once
        out = [u for u in out if u.signal != GREATEST or u.step != least.step]
    return sorted(out, key=lambda u: (u.step, u.signal))


def _one(signal: str, steps: dict[int, dict[int, float]], present: dict[int, set[int]]) -> Unlike | None:
    standing = any(s in signal for s in STANDING)
    held: dict[int, float] = {}
    first: tuple[int, tuple[tuple[float, tuple[int, ...]], ...]] | None = None
    alike: int | None = None
    last = 0
    for step in sorted(steps):
        here = steps[step]
        held.update(here)
        ranks = present[step]
        values = {r: held.get(r, math.nan) if standing else here.get(r, math.nan) for r in ranks}
        unlike = len({_key(v) for v in values.values()}) > 1
        if first is None and len(ranks) > 1 and not unlike and not standing:
            alike = step
        if len(ranks) > 1 and unlike:
            first = first or (step, _classes(values))
            last = step
    if first is None:
        return None
    return Unlike(signal, first[0], None if last == max(steps) else last, alike, first[1])


def _key(value: float) -> float | str:
    return "none" if math.isnan(value) else value


def _classes(values: dict[int, float]) -> tuple[tuple[float, tuple[int, ...]], ...]:
    found: dict[float | str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        found[_key(value)].append(rank)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))
    return tuple((math.nan if isinstance(v, str) else v, tuple(r)) for v, r in ordered)


def findings(points: Iterable[Point]) -> list[schemas.Finding]:
    """One finding per signal."""
    return [_said(u) for u in compare(points)]


def _said(u: Unlike) -> schemas.Finding:
    each = "; ".join(
        f"{'none' if math.isnan(v) else f'{v:.6g}'} on {rank_sets.words(r)}" for v, r in u.classes[:4]
    )
    lasted = "and still at the end" if u.until is None else f"until step {u.until:,}"
    before = (
        f" (read before at step {u.alike:,}, and alike)"
        if u.alike is not None and u.alike < u.step - 1
        else ""
    )
    every = sum(len(r) for _, r in u.classes)
    odd = [r for _, ranks in u.classes[1:] for r in ranks] if 2 * len(u.classes[0][1]) > every else []
    values: dict[str, object] = {
        "first_step": u.step,
        "last_step": u.until,
        "agreed_at": u.alike,
        "rank": odd[0] if len(odd) == 1 else None,
        "odd_ranks": rank_sets.text(odd),
    }
    return schemas.Finding(
        code="LIN-R003",
        check=CHECK,
        severity="fault" if u.signal in COUNTED else "warning",
        subject=u.signal,
        text=f"ranks have it unlike each other from step {u.step:,}{before}, {lasted}: {each}",
        values={k: schemas.Scalar.of(v) for k, v in values.items() if v is not None},
        remedy="each rank must take the same update: look at what sets this value on those ranks",
    )
