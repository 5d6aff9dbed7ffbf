"""A loader's own counter, where it has one that can be read at each step without asking the loader to work.

`state_dict()` of a loader may gather the state of its workers, so it is asked once. A counter is a number in it
that stands under the same name on the object itself; or the number of batches that the iterator of a torch
loader has given, where the loader keeps its iterator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .edits import Found

STEADY = 4
"""Updates in a row that must move a counter by the same amount per batch, before another amount is a jump."""
MOST = 3
"""Jumps after which a counter is taken for one that moves as it likes."""


@dataclass
class _Counter:
    """One number, and how it has moved so far."""

    read: Callable[[], Any]
    last: int
    unit: float = 0.0
    streak: int = 0
    jumps: int = 0


class Position:
    """Follows a loader's counter, and finds a jump."""

    def __init__(self, loader: Any) -> None:
        self._counters = [_Counter(read, read()) for read in _readers(loader)]

    @property
    def seen(self) -> bool:
        """Whether this loader has a counter that moves steadily, so that a jump would be found."""
        return any(c.streak >= STEADY and c.jumps < MOST for c in self._counters)

    def after_block(self, step: int, batches: int) -> Found | None:
        """Compare how far the counter moved in one update with what is usual for so many batches."""
        found = None
        for c in self._counters:
            now = c.read()
            if not _whole(now):
                continue
            moved, before, c.last = now - c.last, c.last, now
            usual = c.unit * batches
            if moved > 0 and math.isclose(moved, usual):
                c.streak += 1
                continue
            steady = c.streak >= STEADY and c.jumps < MOST
            if steady and (moved > usual or (moved < 0 and now > usual)):
                c.jumps += 1
                found = found or _jump(step, before, now, usual)
            elif not steady:
                c.unit, c.streak = (moved / batches if moved > 0 else 0.0), 1
        return found


def _jump(step: int, before: int, now: int, usual: float) -> Found:
    """Forwards is skipped data. Backwards is data read twice; to the very beginning is an epoch's end, and silent."""
    ahead = now - before
    where = f"after step {step - 1:,} the loader's counter went from {before:,} to {now:,}; {usual:g} further is usual"
    if ahead > 0:
        return Found("batch_skip", f"data skipped: {where}", before=f"{before}", after=f"{now}")
    return Found("loader_position", f"the loader went back: {where}", before=f"{before}", after=f"{now}")


def _readers(loader: Any) -> list[Callable[[], Any]]:
    out: list[Callable[[], Any]] = []
    holders = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    if hasattr(loader, "_iterator"):  # a torch loader: its state_dict, where there is one, asks the workers
        holders[0] = None
        out.append(lambda: getattr(getattr(loader, "_iterator", None), "_num_yielded", 0))
    for holder in holders:
        state = holder.state_dict() if hasattr(holder, "state_dict") else {}
        for key, value in state.items() if isinstance(state, dict) else ():
            held = getattr(holder, key, None) if isinstance(key, str) else None
            if _whole(value) and _whole(held) and held == value:
                out.append(partial(getattr, holder, key, None))
    return out


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
