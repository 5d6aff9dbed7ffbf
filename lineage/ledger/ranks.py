"""What a ledger holds of the ranks of its segments: who recorded what from when to when, and what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import evaluations as evaluations_
from ..judge.cells import Point
from ..judge.seen import RankSeen, Seen
from . import series, tables
from .reader import Ledger

HOLES = 8
"""Holes of one rank that are kept."""
SAMPLED = 32
"""Steps of a segment by which clocks are compared."""
LAYOUTS = {"tensor_parallel": "tensor", "pipeline_parallel": "pipeline", "expert_parallel": "expert"}
"""Concept -> its word in `Seen.layout`."""


@dataclass(frozen=True)
class Read:
    """The series `probes` of all writers, and a summary of each rank."""

    probes: pa.Table
    """with a column `writer`: the process, where several wrote the same steps as one rank, else empty"""
    seen: dict[str, Seen]


def read(ledger: Ledger) -> Read:
    """Read the values and sum them up by rank. Files that cannot be read are named in `Seen.unread`."""
    table, unread = _probes(ledger.path)
    twins = _twins(table)
    writer = table["writer"].to_pylist() if twins else []
    if twins:
        ids = zip(table["segment"].to_pylist(), table["rank"].to_pylist(), writer, strict=True)
        writer = [w if (s, r) in twins else "" for s, r, w in ids]
        apart = pa.array(writer, pa.string())
    else:
        apart = pa.repeat(pa.scalar("", pa.string()), table.num_rows)
    table = table.set_column(table.schema.get_field_index("writer"), "writer", apart)
    return Read(table, _seen(ledger, table, twins, unread))


def _probes(ledger: Path) -> tuple[pa.Table, dict[str, list[str]]]:
    schema = tables.PROBES
    parts, unread = [], defaultdict(list)
    for path in series.files(ledger, "probes"):
        try:
            held = series.read_one(path)
            part = series.fitted(held, schema)
        except (ValueError, OSError) as e:
            unread[path.parent.name].append(_unread(ledger, path, e))
            continue
        name = pa.repeat(pa.scalar(path.name.split(".")[0], pa.string()), part.num_rows)
        if series.WRITER in held.schema.names:  # a merged file
            name = held[series.WRITER]
        parts.append(part.append_column("writer", name))
    empty = schema.append(pa.field("writer", pa.string())).empty_table()
    return pa.concat_tables(parts) if parts else empty, dict(unread)


def _unread(ledger: Path, path: Path, error: Exception) -> str:
    return cannot_read(str(path.relative_to(ledger)), str(error) or type(error).__name__)


def cannot_read(file: str, why: str) -> str:
    """That a series file cannot be read, in words."""
    what = "what it held is missing here; `lineage verify` says more"
    return f"{file} cannot be read ({why.splitlines()[0][:120]}): {what}"


def _twins(table: pa.Table) -> dict[tuple[str, int], tuple[int, int]]:
    """(segment, rank) -> the steps that more than one process wrote."""
    spans: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    groups = table.group_by(["segment", "rank", "writer"]).aggregate([("step", "min"), ("step", "max")])
    for row in groups.to_pylist():
        spans[row["segment"], row["rank"]].append((row["step_min"], row["step_max"]))
    out = {}
    for key, found in spans.items():
        found.sort()
        shared = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairwise(found)]
        shared = [s for s in shared if s[0] <= s[1]]
        if shared:
            out[key] = min(s[0] for s in shared), max(s[1] for s in shared)
    return out


def _seen(
    ledger: Ledger,
    table: pa.Table,
    twins: Mapping[tuple[str, int], tuple[int, int]],
    unread: Mapping[str, Sequence[str]],
) -> dict[str, Seen]:
    spans = _rows(table.group_by(["segment", "rank"]).aggregate([("step", "min"), ("step", "max")]))
    signals: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in table.group_by(["segment", "rank", "signal"]).aggregate([]).to_pylist():
        signals[row["segment"], row["rank"]].add(row["signal"])
    return summed(ledger, spans, signals, _holes(table), _clocks(table), twins, unread)


def summed(
    ledger: Ledger,
    spans: Mapping[tuple[str, int], tuple[int, int]],
    signals: Mapping[tuple[str, int], set[str]],
    holes: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    clocks: Mapping[tuple[str, int], float],
    twins: Mapping[tuple[str, int], tuple[int, int]],
    unread: Mapping[str, Sequence[str]],
) -> dict[str, Seen]:
    """Put together what the values and the journals tell of each (segment, rank); `unread` is by segment."""
    places, ended, journals = _journal(ledger)
    out = {}
    for segment in ledger.segments:
        uid = segment.uid
        imported = segment.info.place.node == schemas.IMPORTED
        there = set(spans) if imported else {*spans, *journals}  # an import writes its own records as rank 0
        every = {r for s, r in there if s == uid}
        found = {}
        for r in sorted(every):
            key = (uid, r)
            first, last = spans.get(key, (None, None))
            found[r] = RankSeen(
                first=first,
                last=last,
                signals=frozenset(signals.get(key, ())),
                journal=key in journals,
                place=places.get(key),
                holes=tuple(holes.get(key, ())),
                ended=ended.get(key),
                clock=clocks.get(key),
                twins=twins.get(key),
            )
        out[uid] = Seen(
            ranks=found,
            world=None if imported else segment.info.world_size,
            unread=tuple(unread.get(uid, ())),
            layout=tuple(_layout(ledger, uid)),
        )
    return out


def _rows(groups: pa.Table) -> dict[tuple[str, int], tuple[int, int]]:
    return {(r["segment"], r["rank"]): (r["step_min"], r["step_max"]) for r in groups.to_pylist()}


def _journal(
    ledger: Ledger,
) -> tuple[dict[tuple[str, int], schemas.Place], dict[tuple[str, int], int], set[tuple[str, int]]]:
    """Of each (segment, rank) its place, the step at which it said it ended, and whether it left a journal."""
    places: dict[tuple[str, int], schemas.Place] = {}
    ended: dict[tuple[str, int], int] = {}
    journals = set()
    for r in ledger.records:
        key = (r.segment, r.rank)
        journals.add(key)
        if r.kind in ("segment", "journal_header"):
            places[key] = r.payload.place
        elif r.kind == "segment_end":
            ended[key] = r.payload.last_step or 0
    return places, ended, journals


def _holes(table: pa.Table) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Steps that other ranks of the segment recorded and this one did not, between its first and its last."""
    counts = table.group_by(["segment", "rank"]).aggregate(
        [("step", "count_distinct"), ("step", "min"), ("step", "max")]
    )
    by_segment: dict[str, list[Any]] = defaultdict(list)
    for row in counts.to_pylist():
        by_segment[row["segment"]].append(row)
    out: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for segment, rows in by_segment.items():
        if len(rows) < 2:
            continue
        mine = table.filter(pc.equal(table["segment"], segment))
        union = sorted(mine["step"].unique().to_pylist())
        for row in rows:
            span = [s for s in union if row["step_min"] <= s <= row["step_max"]]
            if row["step_count_distinct"] < len(span):
                own = mine.filter(pc.equal(mine["rank"], row["rank"]))["step"].unique().to_pylist()
                out[segment, row["rank"]] = list(runs(span, set(own)))[:HOLES]
    return out


def runs(span: Sequence[int], own: set[int]) -> Iterator[tuple[int, int]]:
    """The stretches of `span` that `own` lacks."""
    start = last = None
    for s in span:
        if s in own:
            if start is not None and last is not None:
                yield start, last
            start = None
        else:
            start = s if start is None else start
            last = s
    if start is not None and last is not None:
        yield start, last


def _clocks(table: pa.Table) -> dict[tuple[str, int], float]:
    """Seconds by which each rank's clock is ahead of the middle one, from when it wrote the same steps."""
    at: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    timed = table.filter(pc.is_valid(table["at"]))
    for segment in timed["segment"].unique().to_pylist():
        mine = timed.filter(pc.equal(timed["segment"], segment))
        if len(mine["rank"].unique()) < 2:
            continue
        steps = sorted(mine["step"].unique().to_pylist())
        chosen = pa.array(steps[:: max(1, len(steps) // SAMPLED)], pa.int64())
        few = (
            mine.filter(pc.is_in(mine["step"], chosen)).group_by(["rank", "step"]).aggregate([("at", "min")])
        )
        for row in few.to_pylist():
            at[segment][row["step"]][row["rank"]] = row["at_min"].timestamp()
    out: dict[tuple[str, int], float] = {}
    for segment, by_step in at.items():
        ahead: dict[int, list[float]] = defaultdict(list)
        for ranks in by_step.values():
            if len(ranks) > 1:
                middle = median(ranks.values())
                for r, t in ranks.items():
                    ahead[r].append(t - middle)
        out |= {(segment, r): median(found) for r, found in ahead.items()}
    return out


def _layout(ledger: Ledger, segment: str) -> Iterable[str]:
    """How the model is divided over ranks, as config and wrapper tell it."""
    found = set()
    for r in ledger.of("config", segment):
        for key, value in r.payload.values.items():
            concept = schemas.catalogue().find(key)
            if (
                concept is not None
                and concept.id in LAYOUTS
                and value.text().isdigit()
                and int(value.text()) > 1
            ):
                found.add(LAYOUTS[concept.id])
    for r in ledger.of("effective", segment):
        wrapper = r.payload.values.get("dp_sharding")
        if wrapper is not None and wrapper.value.text() in ("FullyShardedDataParallel", "FSDPModule"):
            found.add("fsdp")
    return sorted(found)


def evaluations(ledger: Ledger) -> list[Point]:
    """The values of evaluations: those logged under a key that says so, and those that the loop gave."""
    table = ledger.series("metrics", ["segment", "rank", "step", "key", "value"])
    keys = [k for k in table["key"].unique().to_pylist() if k and evaluations_.is_evaluation(k)]
    table = table.filter(pc.is_in(table["key"], pa.array(keys, pa.string())))
    columns = [table.column(c).to_pylist() for c in ("segment", "rank", "step", "key", "value")]
    rows = zip(*columns, strict=True)
    out = [Point(s, r, step, k, v) for s, r, step, k, v in rows if v is not None and step is not None]
    saved = {r.payload.uid: (r.segment, r.payload.step) for r in ledger.of("checkpoint")}
    for r in ledger.of("evaluation"):
        segment, step = saved.get(r.payload.checkpoint, (r.segment, r.step or 0))
        out += [Point(segment, r.rank, step, k, v) for k, v in r.payload.results.items()]
    return out
