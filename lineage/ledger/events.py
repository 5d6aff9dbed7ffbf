"""The events of a ledger, each once, and each in its place: `lineage.judge.events_placing` over what the files hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge.events_near import Near, near, unsure
from ..judge.events_placing import place, ranks_of
from ..judge.events_run import Life, Placed, RankPlace, Run, Steps, identities
from . import layout, series
from .reader import Ledger

Times = dict[tuple[str, int], Steps]
"""(segment, rank) -> when its steps were recorded"""


def latest(records: Iterable[schemas.Record]) -> dict[str, schemas.Record]:
    """Key -> the newest record of each event: what was read twice is one event, and a later reading corrects it."""
    return {r.payload.key: r for r in records if r.kind == "event"}


def step_times(ledger: Path, wanted: Iterable[tuple[str, int]]) -> Times:
    """When these ranks recorded their steps: the first value of each. Only their own files are read."""
    asked = set(wanted)
    parts: dict[tuple[str, int], dict[int, datetime]] = {}
    for path in series.files(ledger, "probes"):
        writer = layout.writer_of(path.name)
        if writer is None or (path.parent.name, writer[1]) not in asked:
            continue
        try:
            table = series.read_one(path).select(["step", "at"])
        except (ValueError, OSError, KeyError):  # `lineage verify` names it
            continue
        found = parts.setdefault((path.parent.name, writer[1]), {})
        for step, at in _firsts(table):
            found[step] = min(at, found.get(step, at))
    return {key: _ordered(found) for key, found in parts.items() if found}


def _firsts(table: pa.Table) -> Iterable[tuple[int, datetime]]:
    grouped = table.filter(pc.is_valid(table["at"])).group_by("step").aggregate([("at", "min")])
    return zip(grouped["step"].to_pylist(), grouped["at_min"].to_pylist(), strict=True)


def _ordered(found: dict[int, datetime]) -> Steps:
    pairs = sorted((at, step) for step, at in found.items())
    return Steps([step for _, step in pairs], [at for at, _ in pairs])


def places(records: Iterable[schemas.Record]) -> list[RankPlace]:
    """Where each rank of each segment ran: as its newest segment record says."""
    found = {
        (r.segment, r.rank): RankPlace(r.segment, r.rank, r.payload.place)
        for r in records
        if r.kind == "segment" and r.payload.place.node != schemas.IMPORTED
    }
    return list(found.values())


def lives(ledger: Ledger, times: Times) -> list[Life]:
    """When each segment was alive: from its first record to its last, or to its last step.

    Records that a tool added later (evidence, events, anchors) do not keep a segment alive: a file counts whose
    process began a segment.
    """
    writers = {r.file for r in ledger.records if r.kind == "segment"}
    spans: dict[str, list[datetime]] = {}
    for r in ledger.records:
        if r.file in writers:
            spans.setdefault(r.segment, []).append(r.at)
    for (segment, _), steps in times.items():
        spans.setdefault(segment, []).extend((min(steps.at), max(steps.at)))
    ended = {r.segment for r in ledger.of("segment_end")}
    return [
        Life(s.uid, s.number, min(spans[s.uid]), max(spans[s.uid]), open=s.uid not in ended)
        for s in ledger.segments
        if s.uid in spans and s.info.place.node != schemas.IMPORTED
    ]


@dataclass(frozen=True)
class Happened:
    """All events of a ledger in their places, in order of time; those without a time come last."""

    placed: Sequence[Placed]
    run: Run

    def node_of(self, segment: str, rank: int) -> str | None:
        """The node on which a rank ran."""
        return next((p.place.node for p in self.run.places if (p.segment, p.rank) == (segment, rank)), None)


def read(ledger: Ledger, *, also: Iterable[tuple[str, int]] = ()) -> Happened:
    """Read and place the events of a ledger; `also` names ranks whose step times are wanted too.

    A ledger without events costs one pass over its records.
    """
    records = latest(ledger.records)
    if not records and not also:
        return Happened((), Run((), ()))
    known = places(ledger.records)
    events = [r.payload for r in records.values()]
    bare = Run(known, (), {}, identities(events))
    wanted = (
        {(p.segment, p.rank) for e in events for p in ranks_of(e, bare)[0]} if len(events) < _MANY else set()
    )
    wanted |= _one_per_node(known) | set(also)
    times = step_times(ledger.path, wanted)
    run = Run(known, lives(ledger, times), times, bare.devices)
    placed = [place(r.payload, r.id, run) for r in records.values()]
    placed.sort(key=lambda p: (p.event.when is None, p.event.when or schemas.now(), p.event.source.line or 0))
    return Happened(placed, run)


ABOUT = "hardware events: "
"""How a coverage record begins what it says of the watch over its node."""


def watch(ledger: Ledger) -> list[str]:
    """What of the machines was watched while each segment trained, in words; equal segments stand together.

    That no event is on record says nothing of a machine at which nobody looked.
    """
    said: dict[str, list[int]] = {}
    nodes = {(p.segment, p.rank): p.place.node for p in places(ledger.records)}
    for s in ledger.segments:
        told = list(ledger.of("coverage", s.uid))
        lines: dict[str, None] = {}
        for r in told:
            c, node = r.payload, nodes.get((s.uid, r.rank), "")
            missing = [f"{c.missing[k]}" for k in c.missing if k == ABOUT.rstrip(": ")]
            watched = [f"watched: {x.removeprefix(ABOUT)}" for x in c.recorded if x.startswith(ABOUT)]
            not_ = [f"not watched: {x.removeprefix(ABOUT)}" for x in c.gaps if x.startswith(ABOUT)]
            lines |= dict.fromkeys(
                f"{node}: {x}" for x in (*watched, *not_, *(f"not watched: {m}" for m in missing))
            )
        if not lines:
            why = "no watch over its nodes is on record" if told else "it left no word of what was watched"
            lines[why] = None
        for line in lines:
            said.setdefault(line, []).append(s.number)
    return [f"segment {', '.join(map(str, numbers))}: {line}" for line, numbers in said.items()]


_MANY = 20_000
"""Events beyond which steps are told by one rank of each node."""


def _one_per_node(known: Sequence[RankPlace]) -> set[tuple[str, int]]:
    found: dict[tuple[str, str], int] = {}
    for p in known:
        key = (p.segment, p.place.node)
        found[key] = min(p.rank, found.get(key, p.rank))
    return {(segment, rank) for (segment, _), rank in found.items()}


def beside(ledger: Ledger, segment: str, rank: int, step: int) -> tuple[list[Near], int]:
    """Events at the time of a bad step, its node's first; and how many more may be of that time, zone not stated.

    The step's time is that of the rank's first value of it, else of its alarm. Nothing is near an unknown time.
    """
    if not any(r.kind == "event" for r in ledger.records):
        return [], 0
    happened = read(ledger, also=[(segment, rank)])
    steps = happened.run.steps.get((segment, rank))
    known = dict(zip(steps.step, steps.at, strict=True)) if steps else {}
    alarms = [r.at for r in ledger.of("alarm", segment) if (r.rank, r.step) == (rank, step)]
    at = known.get(step) or min(alarms, default=None)
    found = near(happened.placed, segment, rank, happened.node_of(segment, rank), at)
    return found, unsure(happened.placed, at)
