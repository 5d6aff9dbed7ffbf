"""Signals of a run by step, over all ranks: the curve of a path through segments, and the time of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..judge.graph import Stretch
from ..judge.trajectory import Curve
from . import series

TIMES = ("time_step", "time_between")
RECENT = 200
"""Steps that the time of a step is taken from."""
FIRST = 3
"""Steps after a start that are left out of it: they compile and allocate."""


def along(ledger: Path, path: Iterable[Stretch], signals: Sequence[str]) -> list[Curve]:
    """The mean over ranks of each signal at each step of a path; not finite where one rank's is not."""
    found: dict[str, dict[int, float]] = {s: {} for s in signals}
    for stretch in path:
        if not stretch.segment:
            continue
        for signal, values in _of_segment(ledger, stretch.segment, signals).items():
            upto = stretch.upto
            found[signal] |= {
                s: v for s, v in values.items() if s > stretch.after and (upto is None or s <= upto)
            }
    return [Curve(s, values) for s, values in found.items() if values]


def step_times(ledger: Path, segment: str, upto: int | None) -> list[float]:
    """Seconds of each recent step of a segment, up to a step: within it and up to the next, mean over ranks."""
    held = _of_segment(ledger, segment, TIMES)
    inside, between = (held.get(name, {}) for name in TIMES)
    steps = sorted(s for s in inside if upto is None or s <= upto)[FIRST:][-RECENT:]
    return [inside[s] + between.get(s, 0.0) for s in steps]


def _of_segment(ledger: Path, segment: str, signals: Sequence[str]) -> dict[str, dict[int, float]]:
    wanted = pa.array(signals, pa.string())
    parts = [
        t.filter(pc.is_in(t["signal"], wanted)).select(["signal", "step", "value"])
        for t in series.of_segment(ledger, segment, "probes")
    ]
    out: dict[str, dict[int, float]] = {s: {} for s in signals}
    if not parts:
        return out
    grouped = pa.concat_tables(parts).group_by(["signal", "step"]).aggregate([("value", "mean")])
    for signal, step, value in zip(
        *(grouped[c].to_pylist() for c in ("signal", "step", "value_mean")), strict=True
    ):
        if value is not None:
            out[signal][step] = value
    return out
