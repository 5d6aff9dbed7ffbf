"""What the ranks of a run read, beside each other: `lineage.judge.batches_ranks` over the table of samples."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import batches_ranks
from ..judge.batches_ranks import Read
from . import series
from .reader import SegmentView

STEPS = 32
"""Steps of a segment that are compared at its beginning, and as many at its end."""
MOST = 200_000
"""Rows of such a window; where ranks and samples are many, it has fewer steps."""
_COLUMNS = ["rank", "step", "micro", "place", "digest", "sample", "tokens"]


REPLICA = ("tensor_parallel", "pipeline_parallel", "context_parallel")
"""Concepts whose degrees multiply to the ranks that hold one replica of the model."""


def group(config: schemas.Config | None, effective: schemas.Effective | None) -> int | None:
    """Ranks of one replica as the config asks for them, else 1 under DistributedDataParallel; None if neither tells."""
    degrees: dict[str, int] = {}
    for key, value in (config.values if config is not None else {}).items():
        concept = schemas.catalogue().find(key)
        if concept is not None and concept.id in REPLICA and value.text().isdigit():
            degrees[concept.id] = max(degrees.get(concept.id, 1), int(value.text()))
    if degrees:
        return math.prod(degrees.values())
    wrapper = effective.values.get("dp_sharding") if effective is not None else None
    return 1 if wrapper is not None and wrapper.value.text() == "DistributedDataParallel" else None


def ranks(
    ledger: Path,
    segment: SegmentView,
    config: schemas.Config | None = None,
    effective: schemas.Effective | None = None,
) -> list[schemas.Finding]:
    """Findings about ranks that read the same, each code once. Nothing is said of a segment with one rank."""
    if segment.info.world_size < 2:
        return []
    files = [p for p in series.files(ledger, "samples") if p.parent.name == segment.uid]
    found: dict[str, schemas.Finding] = {}
    for window in _windows(files) if len(files) > 1 else ():
        for f in batches_ranks.judge(window, group(config, effective)):
            found.setdefault(f.code, f)
    return list(found.values())


def _windows(files: list[Path]) -> list[list[Read]]:
    """The samples of the first steps, and of the last ones that all ranks made."""
    spans = [span for path in files if (span := _span(path)) is not None]
    if len(spans) < 2:
        return []
    begin, end = min(s[0] for s in spans), min(s[1] for s in spans)
    a_step = sum(s[2] / (s[1] - s[0] + 1) for s in spans)
    steps = max(1, min(STEPS, int(MOST / max(1.0, a_step))))
    first = (begin, min(end, begin + steps - 1))
    last = (max(first[1] + 1, end - steps + 1), end)
    windows: tuple[list[Read], list[Read]] = ([], [])
    for path in files:
        table = _table(path)
        if table is None:
            continue
        for window, (low, high) in zip(windows, (first, last), strict=True):
            if low <= high:
                window.extend(_reads(table, low, high))
    return [w for w in windows if w]


def _table(path: Path) -> Any:
    try:
        return series.read_one(path).select(_COLUMNS)
    except (ValueError, OSError):  # `lineage verify` names it
        return None


def _span(path: Path) -> tuple[int, int, int] | None:
    """First step, last step and rows of a file; None where it holds none or cannot be read."""
    table = _table(path)
    if table is None or not table.num_rows:
        return None
    limits = pc.min_max(table["step"]).as_py()
    return limits["min"], limits["max"], table.num_rows


def _reads(table: Any, low: int, high: int) -> list[Read]:
    step = table["step"]
    near = pc.and_(pc.greater_equal(step, low), pc.less_equal(step, high))
    chosen: pa.Table = table.filter(pc.and_(near, pc.is_valid(table["digest"])))
    columns = (chosen[name].to_pylist() for name in _COLUMNS)
    return [
        Read(rank, step, (micro << 32) + place, digest, tokens, sample)
        for rank, step, micro, place, digest, sample, tokens in zip(*columns, strict=True)
    ]
