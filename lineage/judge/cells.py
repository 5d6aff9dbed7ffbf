"""Abnormal cells of the series and of the alarms: the detectors, run again over what was recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .._rooms import schemas
from . import execution
from .detectors import RULES, Detector, Finding
from .layers import layer_of

CELLS = ("non_finite", "out_of_range")
"""What makes a cell bad. A slow rise has no step at which it began, and a new baseline is no fault."""
SEARCH = 20
"""Steps in a row with non-finite gradients that a search for the loss scale may take, as the
recorder counts."""
SCALE = "loss_scale"
GRADIENTS = ("grad_norm_local", "grad_norm")


@dataclass(frozen=True)
class Point:
    """One value of the series."""

    segment: str
    rank: int
    step: int
    signal: str
    value: float
    writer: str = ""
    """the process that wrote it, where more than one wrote as this rank"""


def words(
    signal: str, abnormal: str, value: float, baseline: float | None, tensors: Sequence[str] = ()
) -> str:
    """Say an abnormal value in words."""
    what = f"{execution.name(signal)} is {execution.number(value)}"
    if abnormal == "new_level":
        was = "" if baseline is None else f", {baseline:.4g} was usual"
        return f"{what}{was}; it stayed there, and is the baseline from here on"
    if abnormal == "slow_rise" and baseline is not None:
        return f"{execution.name(signal)} rises slowly: from {baseline:.4g} to {execution.number(value)}"
    if abnormal == "out_of_range" and baseline is not None:
        what += f", {baseline:.4g} was usual" + (f" ({value / baseline:.1f} times)" if baseline > 0 else "")
    if tensors:
        what += f"; first non-finite gradients: {execution.listed(tensors)}"
    return what


def cells(points: Iterable[Point]) -> list[schemas.Cell]:
    """Run the detectors over recorded values; every abnormal cell, in order.

    Each writer of a rank is judged by itself. Gradients that are not finite because a scaler searches for its loss
    scale are left out, as they are while the run goes on.
    """
    points = sorted(points, key=lambda p: (p.segment, p.step, execution.place(p.signal), p.rank))
    search = searching(points)
    detectors: dict[tuple[str, int, str, str], Detector] = {}
    before: dict[tuple[str, int, str, str], int] = {}
    out = []
    for p in points:
        if p.signal not in RULES:
            continue
        if p.signal in GRADIENTS and (p.segment, p.rank, p.step) in search:
            continue
        key = (p.segment, p.rank, p.signal, p.writer)
        finding = detectors.setdefault(key, Detector(RULES[p.signal])).update(p.value)
        if finding and finding.abnormal in CELLS:
            out.append(_cell(p, finding, before.get(key)))
        before[key] = p.step
    return out


def searching(points: Iterable[Point]) -> set[tuple[str, int, int]]:
    """(segment, rank, step) at which non-finite gradients are put down to a search for the loss scale.

    A scaler is on (its scale is in the series), and at most `SEARCH` steps in a row were not finite.
    """
    points = points if isinstance(points, Sequence) else list(points)
    scaled = {(p.segment, p.rank, p.writer, p.step) for p in points if p.signal == SCALE}
    if not scaled:
        return set()
    broken: dict[tuple[str, int, str], dict[int, bool]] = {}
    for p in points:
        if p.signal in GRADIENTS:
            steps = broken.setdefault((p.segment, p.rank, p.writer), {})
            steps[p.step] = steps.get(p.step, False) or not math.isfinite(p.value)
    out: set[tuple[str, int, int]] = set()
    for (segment, rank, writer), steps in broken.items():
        row = 0
        for step in sorted(steps):
            row = row + 1 if steps[step] else 0
            if 0 < row <= SEARCH and (segment, rank, writer, step) in scaled:
                out.add((segment, rank, step))
    return out


def _cell(p: Point, f: Finding, before: int | None) -> schemas.Cell:
    """`before`: the step of the value before it. Logs have a row every so many steps."""
    return schemas.Cell(
        segment=p.segment,
        rank=p.rank,
        step=p.step,
        signal=p.signal,
        abnormal=f.abnormal,
        value=p.value,
        text=words(p.signal, f.abnormal, p.value, f.baseline),
        last_good=before if before is not None and before < p.step - 1 else None,
    )


def from_alarms(records: Iterable[schemas.Record]) -> list[schemas.Cell]:
    """The cells that alarms name: they reach the disk at once, while the last steps of a series may not."""
    cell: Any = schemas.open_class(
        schemas.Cell
    )  # an alarm of a newer version may be abnormal in a way unknown here
    out = []
    for r in records:
        if (
            r.kind != "alarm"
            or r.payload.phase != "onset"
            or r.payload.signal
            == "replicas"  # raised by a rank that compares; the digests say which rank is odd
            or r.payload.abnormal in ("slow_rise", "new_level")
        ):
            continue
        first = next(iter(r.payload.tensors), None)
        out.append(
            cell(
                segment=r.segment,
                rank=r.rank,
                step=r.step or 0,
                signal=r.payload.signal,
                abnormal=r.payload.abnormal,
                value=r.payload.value,
                text=r.payload.text,
                tensor=first,
                layer=layer_of(first) if first else None,
            )
        )
    return out


def merged(*found: Iterable[schemas.Cell]) -> list[schemas.Cell]:
    """Cells of several sources, each place once; of two for one place the later source's stays."""
    out: dict[tuple[str, int, int, str, str | None, str | None], schemas.Cell] = {}
    for source in found:
        for c in source:
            series = c.signal in execution.SIGNALS  # an alarm names a tensor, the series' cell of it does not
            out[c.segment, c.rank, c.step, c.signal, *((None, None) if series else (c.layer, c.tensor))] = c
    return list(out.values())
