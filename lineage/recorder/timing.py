"""The times of a rank's steps, by its own clock. Nothing waits for the device: they are the host's times."""

from __future__ import annotations

import time


class Timing:
    """Times a step and what lies between two steps; see `lineage.judge.slow_rank` for what they tell."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._end: float | None = None

    def enter(self) -> None:
        """A step begins."""
        self._begin = time.monotonic()

    def exit(self, first_gradient: float | None) -> dict[str, float]:
        """A step ends; returns signals in seconds. `first_gradient`: when its first gradient arrived."""
        begin, before = self._begin, self._end
        if begin is None:
            return {}
        self._end = time.monotonic()
        found = {"time_step": self._end - begin}
        if before is not None:
            found["time_between"] = begin - before
        if first_gradient is not None and first_gradient >= begin:
            found["time_to_gradient"] = first_gradient - begin
        return found
