"""All that is judged on one signal of one rank: spikes, and the slow rise of what is no spike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .detect_rise import RISE_RULES, Rise
from .detectors import RULES, Detector, Finding

SIGNALS = tuple(RULES)
"""The signals that have detectors."""


class SignalDetector:
    """The spike detector and the detector of slow rises of one signal (`SIGNALS`). Pure: same values, same findings."""

    def __init__(self, signal: str, state: Mapping[str, Any] | None = None) -> None:
        """A new detector, or one that goes on from what `state()` gave. Raises `ValueError` for a state of
        another version, `KeyError` for a signal that has no detectors."""
        self.spikes = Detector(RULES[signal], state["spikes"] if state else None)
        self.rise = Rise(RISE_RULES[signal], state["rise"] if state else None)

    def state(self) -> dict[str, Any]:
        """All that the next verdict depends on, as JSON values; it belongs into a checkpoint."""
        return {"spikes": self.spikes.state(), "rise": self.rise.state()}

    def update(self, value: float) -> tuple[Finding | None, Finding | None]:
        """Judge the next value: (spike, slow rise). Only what is no spike is looked at for a slow rise."""
        spike = self.spikes.update(value)
        return (spike, None) if spike is not None else (None, self.rise.update(value))


def replay(signal: str, values: Iterable[float]) -> list[tuple[int, Finding]]:
    """Judge a recorded stream from its first value on: (position, finding), as the live layer would have."""
    detector = SignalDetector(signal)
    return [(i, f) for i, value in enumerate(values) for f in detector.update(value) if f is not None]
