"""Everything that ranks of one segment show beside each other: state, settings, starts, data and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import (
    agreement_findings,
    norm_ranks,
    rank_sets,
    settings_ranks,
    slow_rank,
    starts_ranks,
    swapped_ranks,
)
from ..judge.agreement import Compared
from ..judge.cells import Point
from ..judge.swapped_ranks import Batch
from . import reading, series, states
from .reader import Ledger, SegmentView

MOST = 3_000_000
"""Rows of a segment's signals that are compared; of more, those of the newest steps."""


@dataclass
class Beside:
    """What the ranks of one segment were compared on, and what was found."""

    segment: str
    world: int
    state: Compared
    findings: list[schemas.Finding] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    """in words"""


def compare(ledger: Ledger, segment: SegmentView) -> Beside:
    """Compare the ranks of a segment in every way there is. One rank is compared with nothing."""
    state = Compared()
    out = Beside(segment.uid, segment.info.world_size, state)
    if segment.info.world_size < 2:
        return out
    out.state = states.compare(ledger, segment.uid)
    out.findings += agreement_findings.findings(out.state)
    points, left_out = _points(ledger.path, segment.uid)
    out.findings += settings_ranks.findings(points)
    if not out.state.found:  # what replicas do not share says more than the norms that follow from it
        out.findings += norm_ranks.findings(points)
    out.findings += slow_rank.findings(points)
    out.findings += starts_ranks.findings(ledger.records, segment.uid)
    out.findings += _data(ledger, segment)
    out.findings += reading.ranks(ledger.path, segment, *_newest(ledger, segment))
    out.not_compared += _gaps(ledger, segment, out.state)
    if left_out:
        out.not_compared.append(f"{left_out:,} older values of signals: the newest {MOST:,} were compared")
    return out


def _newest(ledger: Ledger, segment: SegmentView) -> list[Any]:
    """Config and effective values of a segment, as they were recorded last."""
    asked = ledger.of("config", segment.uid) or ledger.of("config")
    held = ledger.of("effective", segment.uid)
    return [found[-1].payload if found else None for found in (asked, held)]


def _gaps(ledger: Ledger, segment: SegmentView, state: Compared) -> Iterator[str]:
    records = ledger.of("agreement", segment.uid)
    if not records:
        yield (
            "the state of ranks: none was digested. It takes lineage.attach(run, model=model) on every rank, and "
            "agree_every above 0"
        )
    elif state.steps and not state.tensors:
        yield (
            f"the state of ranks: {len(state.steps):,} steps are digested, and no two ranks hold the same part "
            f"({_why_none(records, state)})"
        )
    if any(r.payload.undeclared for r in records):
        yield (
            f"{max(r.payload.undeclared for r in records):,} tensors that no wrapper and no device mesh declares as "
            "replicas are compared only as far as ranks were seen to agree; lineage.attach(replicas=...) declares them"
        )
    for name, reason in {n: w for r in records for n, w in r.payload.left_out.items()}.items():
        yield f"{name}: {reason}"
    if state.own:
        more = f" and {len(state.own) - 3} more" if len(state.own) > 3 else ""
        yield (
            f"{', '.join(state.own[:3])}{more}: ranks differ, and nothing declares them replicas or showed "
            "them to be: each rank has its own"
        )
    if state.missing:
        last = max(state.missing)
        silent = rank_sets.words(state.missing[last])
        steps = "1 step" if len(state.missing) == 1 else f"{len(state.missing):,} steps"
        yield f"digests of the state are missing for {steps}: of step {last:,} for {silent}"


def _why_none(records: list[Any], state: Compared) -> str:
    if len({r.rank for r in records}) < 2:
        return "only one rank wrote any here; put the folders of all ranks together, or set LINEAGE_DIR to one for all"
    return "each has a shard or a stage of its own; a changed bit in one cannot be told from another rank's"


def _points(ledger: Path, segment: str) -> tuple[list[Point], int]:
    """The values that are compared over ranks, in the order of steps, and how many were left out."""
    names = ["rank", "step", "signal", "value"]
    parts = [t.select(names) for t in series.of_segment(ledger, segment, "probes")]
    if not parts:
        return [], 0
    whole = pa.concat_tables(parts)
    known = pc.unique(whole["signal"]).to_pylist()
    others = (*slow_rank.OWN, slow_rank.WHOLE, *norm_ranks.WANTED)
    wanted = [s for s in known if settings_ranks.wanted(s) or s in others]
    whole = whole.filter(pc.is_in(whole["signal"], pa.array(wanted, pa.string()))).sort_by("step")
    left_out = max(0, whole.num_rows - MOST)
    columns = (whole.slice(left_out)[name].to_pylist() for name in names)
    return [Point(segment, *row) for row in zip(*columns, strict=True)], left_out


def batches(ledger: Path, segment: str) -> Iterator[Batch]:
    """The digests of all micro-batches of a segment."""
    for table in series.of_segment(ledger, segment, "batches"):
        columns = (table[name].to_pylist() for name in ("rank", "step", "micro", "digest"))
        for rank, step, micro, digest in zip(*columns, strict=True):
            if digest:
                yield Batch(rank, step, micro, digest)


def _data(ledger: Ledger, segment: SegmentView) -> Iterable[schemas.Finding]:
    """Held against an earlier segment that has the same steps, such as an abandoned branch."""
    mine = list(batches(ledger.path, segment.uid))
    steps = {b.step for b in mine}
    for other in ledger.segments:
        if other.uid == segment.uid:
            break
        theirs = [b for b in batches(ledger.path, other.uid) if b.step in steps]
        found = swapped_ranks.findings(
            swapped_ranks.find(mine, theirs), f"segment {other.number} at the same steps"
        )
        if found:
            return found
    return []
