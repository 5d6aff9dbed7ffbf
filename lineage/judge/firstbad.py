"""The first bad cell: the earliest abnormal value over ranks and steps, and how it spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .._rooms import schemas
from .detect_ranks import RANKS, odd_ranks
from .detectors import RULES, Detector, Finding
from .graph import Graph

ORDER = {"loss": 0, "grad_norm_local": 1, "grad_norm": 2}
"""Order of execution within a step: forward, backward, reduction."""


CELLS = ("non_finite", "out_of_range")
"""What makes a cell bad. A slow rise has no step at which it began, and a new baseline is no fault."""


@dataclass(frozen=True)
class Point:
    """One value of the series."""

    segment: str
    rank: int
    step: int
    signal: str
    value: float


def words(
    signal: str, abnormal: str, value: float, baseline: float | None, tensors: Sequence[str] = ()
) -> str:
    """Say an abnormal value in words."""
    name = {
        "loss": "loss",
        "grad_norm_local": "gradient norm before the reduction",
        "grad_norm": "reduced gradient norm",
    }
    number = f"{value:.4g}" if math.isfinite(value) else schemas.float_to_json(value)
    what = f"{name.get(signal, signal)} is {number}"
    if abnormal == "new_level":
        was = "" if baseline is None else f", {baseline:.4g} was usual"
        return f"{what}{was}; it stayed there, and is the baseline from here on"
    if abnormal == "slow_rise" and baseline is not None:
        return f"{name.get(signal, signal)} rises slowly: from {baseline:.4g} to {number}"
    if abnormal == "out_of_range" and baseline is not None:
        what += f", {baseline:.4g} was usual" + (f" ({value / baseline:.1f} times)" if baseline > 0 else "")
    if tensors:
        more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
        what += f"; first non-finite gradients: {', '.join(tensors[:3])}{more}"
    return what


def cells(points: Iterable[Point]) -> list[schemas.Cell]:
    """Re-run the detectors over recorded values; every abnormal cell, in order."""
    detectors: dict[tuple[str, int, str], Detector] = {}
    out = []
    for p in sorted(points, key=lambda p: (p.segment, p.step, ORDER.get(p.signal, 9), p.rank)):
        if p.signal not in RULES:
            continue
        key = (p.segment, p.rank, p.signal)
        finding = detectors.setdefault(key, Detector(RULES[p.signal])).update(p.value)
        if finding and finding.abnormal in CELLS:
            out.append(_cell(p, finding))
    return out


def _cell(p: Point, f: Finding) -> schemas.Cell:
    return schemas.Cell(
        segment=p.segment,
        rank=p.rank,
        step=p.step,
        signal=p.signal,
        abnormal=f.abnormal,
        value=p.value,
        text=words(p.signal, f.abnormal, p.value, f.baseline),
    )


def from_alarms(records: Iterable[schemas.Record]) -> list[schemas.Cell]:
    """The cells that alarms name: they reach the disk at once, while the last steps of a series may not."""
    cell: Any = schemas.open_class(
        schemas.Cell
    )  # an alarm of a newer version may be abnormal in a way unknown here
    return [
        cell(
            segment=r.segment,
            rank=r.rank,
            step=r.step or 0,
            signal=r.payload.signal,
            abnormal=r.payload.abnormal,
            value=r.payload.value,
            text=r.payload.text,
        )
        for r in records
        if r.kind == "alarm"
        and r.payload.phase == "onset"
        and r.payload.abnormal not in ("slow_rise", "new_level")
    ]


def first_bad(
    graph: Graph,
    segment: str,
    found: Iterable[schemas.Cell],
    points: Iterable[Point] = (),
    ranks: Iterable[int] = (),
) -> schemas.FirstBad:
    """Find the first bad cell of a segment.

    Earliest step first; within a step in order of execution, non-finite before out-of-range. Cells of other
    ranks at the same place in the order are ties and are all named. `points` and `ranks` are used to say
    which ranks stopped writing before that step, and how the first cell stands beside the other ranks.
    """
    points = list(points)
    mine = {(c.step, c.rank, c.signal): c for c in found if c.segment == segment}
    ordered = sorted(
        mine.values(),
        key=lambda c: (c.step, ORDER.get(c.signal, 9), c.abnormal != "non_finite", c.rank),
    )
    if not ordered:
        return schemas.FirstBad(cell=None, gaps=_gaps(segment, None, points, ranks))
    first = ordered[0]
    same = [c for c in ordered[1:] if _place(c) == _place(first)]
    before = graph.before(segment, first.step - 1)
    after = [n for n in graph.nodes.values() if n.segment == segment and n.checkpoint.step >= first.step]
    return schemas.FirstBad(
        cell=first,
        ties=same,
        last_good_step=first.step - 1,
        last_good_checkpoint=before[0].uid if before else None,
        first_bad_checkpoint=min(after, key=lambda n: n.checkpoint.step).uid if after else None,
        spread=[*_beside(first, points), *_spread(first, ordered)],
        gaps=_gaps(segment, first.step, points, ranks),
    )


def _place(c: schemas.Cell) -> tuple[int, int, bool]:
    return c.step, ORDER.get(c.signal, 9), c.abnormal != "non_finite"


def _beside(first: schemas.Cell, points: Iterable[Point]) -> list[str]:
    """What the other ranks show at that step, where there are enough to compare."""
    values = {
        p.rank: p.value
        for p in points
        if (p.segment, p.step, p.signal) == (first.segment, first.step, first.signal)
    }
    rule = RANKS.get(first.signal)
    if rule is None or len(values) < rule.minimum:
        return []
    odd = sorted({r for f in odd_ranks(first.signal, values) for r in f.ranks})
    if not odd:
        said = f"no rank stands out from the other {len(values) - 1}"
    else:
        said = f"rank{'s' if len(odd) > 1 else ''} {_ranks(odd)} unlike the median of {len(values)} ranks"
    return [f"step {first.step:,}: {said} ({rule.name})"]


def _spread(first: schemas.Cell, ordered: Sequence[schemas.Cell]) -> list[str]:
    """Later symptoms, one line per step and signal with the ranks that show it."""
    groups: dict[tuple[int, str], list[int]] = {}
    for c in ordered:
        if c is not first:
            groups.setdefault((c.step, c.signal), []).append(c.rank)
    name = {
        "loss": "loss",
        "grad_norm_local": "gradient before the reduction",
        "grad_norm": "reduced gradient",
    }
    return [
        f"step {step:,}: {name.get(signal, signal)} abnormal on rank{'s' if len(r) > 1 else ''} {_ranks(r)}"
        for (step, signal), r in list(groups.items())[:8]
    ]


def _ranks(ranks: Sequence[int]) -> str:
    distinct = sorted(set(ranks))
    return ", ".join(map(str, distinct[:8])) + (f" and {len(distinct) - 8} more" if len(distinct) > 8 else "")


def _gaps(segment: str, step: int | None, points: Iterable[Point], ranks: Iterable[int]) -> list[str]:
    last: dict[int, int] = {}
    for p in points:
        if p.segment == segment:
            last[p.rank] = max(last.get(p.rank, 0), p.step)
    end = max(last.values(), default=0) if step is None else step
    out = []
    for rank in sorted({*ranks, *last}):
        if rank not in last:
            out.append(f"rank {rank} recorded no values in this segment")
        elif last[rank] < end - 1:
            out.append(f"rank {rank} stopped recording after step {last[rank]:,}")
    return out
