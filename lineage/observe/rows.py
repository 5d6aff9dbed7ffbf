"""The logged values of one observed run, on the way to its series and to the detectors."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..capture.later import Later
from ..recorder import incidents, streams
from .recording import ObservedRecorder
from .steps import signal

MOST = 50_000
"""Values that wait for the ledger to be open; further ones are counted."""


class Rows:
    """Takes rows as they are logged, and writes them a few times a second.

    `judged`: losses and norms among them are signals of the run too, for the detectors.
    """

    def __init__(self, *, judged: bool = True) -> None:
        self._judged = judged
        self.first: int | None = None
        self.last: int | None = None
        """steps of the first and of the newest row"""
        self.keys: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        """keys whose values are no numbers"""
        self.axes: set[str] = set()
        self.lost = 0
        self._ready: list[dict[str, Any]] = []
        self._signals: list[streams.Values] = []
        self._on_device: list[tuple[Later, str, datetime, int, str, str]] = []
        self._streams = streams.Streams()

    def logged(self, tracker: str, at: float, step: int, axis: str, row: Mapping[Any, Any]) -> None:
        """A row was logged at a step; `axis` says what that was read from."""
        when = datetime.fromtimestamp(at, UTC)
        self.axes.add(axis)
        self.first = step if self.first is None else self.first
        self.last = step
        flat: dict[str, float] = {}
        for key, value in leaves("", row):
            if key.startswith("lineage/"):
                continue
            if isinstance(value, Later):
                self._on_device.append((value, tracker, when, step, axis, key))
            elif isinstance(value, bool | int | float):
                flat[key] = float(value)
            elif value is not None:
                self.others[key] += 1
        self._take(tracker, when, step, axis, flat)

    def _take(self, tracker: str, at: datetime, step: int, axis: str, flat: Mapping[str, float]) -> None:
        signals: dict[str, float] = {}
        for key, value in flat.items():
            self.keys[key] += 1
            if len(self._ready) >= MOST:
                self.lost += 1
                continue
            self._ready.append(
                {"step": step, "tracker": tracker, "axis": axis, "key": key, "value": value, "at": at}
            )
            name = signal(key)
            if name is not None and name not in signals:
                signals[name] = value
        if signals and self._judged:
            self._signals.append(streams.Values(step, at, signals, [], []))

    def arrived(self, patience: float = 0.0) -> None:
        """Take what has come off the device, at the end within `patience` seconds."""
        end = time.monotonic() + patience
        while True:
            waits, self._on_device = self._on_device, []
            for item in waits:
                later, tracker, at, step, axis, key = item
                if later.ready():
                    self._take(tracker, at, step, axis, {key: float(later.values()[0])})
                else:
                    self._on_device.append(item)
            if not self._on_device or time.monotonic() >= end:
                return
            time.sleep(0.02)

    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self._ready or self._signals)

    def write(self, rec: ObservedRecorder) -> None:
        """Write the rows so far, and let the detectors look at the signals among them."""
        w = rec.begin()
        if w is None:
            return
        w.step = rec.steps.done = self.last or 0
        segment, rank = w.ids.segment, rec.world.rank
        w.rows(metrics=self.metrics(segment, rank))
        found, self._signals = self._signals, []
        for values in found:
            w.rows(probes=streams.rows(segment, rank, values))
            for name, phase, finding in self._streams.judge(values):
                incidents.raise_alarm(rec, w, name, phase, finding, values)

    def metrics(self, segment: str, rank: int) -> list[dict[str, Any]]:
        """Take the rows so far, as those of the series."""
        ready, self._ready = self._ready, []
        return [_row(segment, rank, r) for r in ready]


def leaves(prefix: str, row: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """(key, value) of a row; W&B joins the keys of nested ones with dots."""
    out: list[tuple[str, Any]] = []
    for k, v in row.items():
        key = f"{prefix}.{k}" if prefix else str(k)
        out += leaves(key, v) if isinstance(v, Mapping) else [(key, v)]
    return out


def _row(segment: str, rank: int, r: dict[str, Any]) -> dict[str, Any]:
    value = r["value"]
    counts = {
        "n_nan": int(math.isnan(value)),
        "n_posinf": int(value == math.inf),
        "n_neginf": int(value == -math.inf),
    }
    return {"segment": segment, "rank": rank, **r, **counts}
