"""What a segment's own counters, rates and saves say against its steps, its config and its start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import asked_peak, counters, nothing_left, passed_over
from ..judge.asked_peak import Course
from ..judge.counters import Counted, Reading, Save
from ..judge.graph import Graph, build
from . import series
from .reader import Ledger, SegmentView

COUNTER, WEIGHT, RATE = "optimizer_step_max", "weight_norm", "lr"
IDLE = ("update_skipped", "update_held_back")
OF_GROUP = "lr of group "


def findings(ledger: Ledger, segment: SegmentView) -> list[schemas.Finding]:
    """What the optimizer's counter shows beside the steps and saves, which save the start passed over, what is left."""
    graph = build(ledger.records, reached=ledger.reached)
    return [
        *counters.findings(_counted(ledger, segment.uid)),
        *passed_over.findings(ledger.records, graph, segment.uid),
        *(nothing_left.findings(graph, segment.uid) if segment.uid == ledger.segments[-1].uid else ()),
    ]


def peak(ledger: Ledger, segment: SegmentView) -> list[schemas.Finding]:
    """The peak learning rate that is asked for beside the one that the segment's branch had."""
    config = ledger.of("config", segment.uid)
    observed = segment.info.settings.get("observed")
    if not config or (observed is not None and observed.plain()):
        return []  # what was logged is a sample of the rates, and may leave the peak out
    graph = build(ledger.records, reached=ledger.reached)
    own = _signals(ledger.path, segment.uid)
    rates = sorted(own.get(RATE, {}).items())
    if not rates:
        return []
    before, whole = _before(ledger, graph, segment.uid)
    held = ledger.of("effective", segment.uid)
    others = [max(v.values()) for k, v in own.items() if k.startswith(OF_GROUP)]
    course = Course(rates, before, held[-1].payload.lr_ahead if held else {}, whole, others)
    return asked_peak.findings(config[-1].payload, course)


def _before(ledger: Ledger, graph: Graph, segment: str) -> tuple[list[tuple[int, float]], bool]:
    """The rates of what a segment descends from, and whether that is on record from the first update on."""
    path = [s for s in graph.path_to_segment(segment) if s.segment != segment]
    found: dict[int, float] = {}
    for s in path:
        own = _signals(ledger.path, s.segment).get(RATE, {})
        found |= {k: v for k, v in own.items() if k > s.after and (s.upto is None or k <= s.upto)}
    first = graph.segments[(path[0].segment or segment) if path else segment]
    whole = first.start == "fresh" and all(s.segment for s in path)
    return sorted(found.items()), whole


def _counted(ledger: Ledger, segment: str) -> Counted:
    """The readings of rank 0's counter, and its saves."""
    own = _signals(ledger.path, segment)
    weights = own.get(WEIGHT, {})
    readings = [Reading(s, c, weights.get(s)) for s, c in sorted(own.get(COUNTER, {}).items())]
    idle = frozenset(s for name in IDLE for s, v in own.get(name, {}).items() if v)
    saves: dict[str, Save] = {}
    for r in ledger.of("checkpoint", segment):
        counter = _counter(r.payload.live)
        if r.rank == 0 and counter is not None:
            saves[r.payload.uid] = Save(r.payload.step, counter, r.payload.path)
    return Counted(readings, list(saves.values()), idle)


def _counter(live: Sequence[schemas.ComponentDigest]) -> float | None:
    """The optimizer's counter at a save; None where it keeps none, or parameters have different ones."""
    for c in live:
        if c.component == "optimizer_step" and "step" in c.detail:
            value = c.detail["step"].plain()
            return float(value) if isinstance(value, int | float) else None
    return None


def _signals(ledger: Path, segment: str) -> dict[str, dict[int, float]]:
    """Signal -> step -> value of rank 0."""
    out: dict[str, dict[int, float]] = defaultdict(dict)
    for table in series.of_segment(ledger, segment, "probes"):
        names = [n for n in pc.unique(table["signal"]).to_pylist() if _wanted(n)]
        kept = table.filter(
            pc.and_(pc.equal(table["rank"], 0), pc.is_in(table["signal"], pa.array(names, pa.string())))
        )
        columns = (kept[name].to_pylist() for name in ("signal", "step", "value"))
        for signal, step, value in zip(*columns, strict=True):
            out[signal][step] = value
    return out


def _wanted(signal: str) -> bool:
    return signal in (COUNTER, WEIGHT, RATE, *IDLE) or signal.startswith(OF_GROUP)
