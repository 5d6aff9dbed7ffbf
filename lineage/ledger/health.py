"""The health of the logged series of a ledger: what `lineage.judge.series_health` says of each segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import incident_findings, quarantined, series_gaps, series_health, series_names
from ..judge.series_health import Health, Logged
from . import beside, bookkeeping, pulled, resumes, series
from .reader import Ledger, SegmentView

MOST = 400_000
"""Values of one segment that are judged; of more, the newest ones."""
MARK = "health of"
"""How a coverage record begins to say that the series of a segment were judged when it ended."""
ALSO = frozenset(("lr", "clip_threshold", "update_skipped", "update_held_back"))
"""Own signals that the judgement of others needs."""


@dataclass(frozen=True)
class Said:
    """A finding, recorded or made just now, and where it stands."""

    segment: str
    rank: int
    step: int | None
    payload: schemas.Finding
    recorded: bool


def check(ledger: Ledger, segment: SegmentView, go_on: Callable[[], bool] = lambda: True) -> Health:
    """Judge the series of one segment, all ranks; `go_on` is asked before each series."""
    found, left_out = logged(ledger.path, segment.uid)
    config = _config(ledger, segment)
    health = series_health.check(
        found,
        config={k: v.plain() for k, v in config.values.items()} if config else None,
        thresholds=_thresholds(ledger, segment, config, found),
        observed=copied(ledger, segment),
        go_on=go_on,
    )
    health.findings += bookkeeping.peak(ledger, segment)
    if left_out:
        health.not_judged.append(f"{left_out:,} older values: the newest {MOST:,} were judged")
    return health


def copied(ledger: Ledger, segment: SegmentView) -> bool:
    """Whether the signals of a segment are copies of what was logged, and none that the layer read itself.

    So it is of a run that was only observed, of one that was read from other sources, and of a ledger that was pulled
    out of a tracker: a series that is like its own copy shows nothing.
    """
    observed = segment.info.settings.get("observed")
    if observed is not None and observed.plain():
        return True
    return segment.info.place.node == schemas.IMPORTED or (ledger.path / pulled.NAME).is_file()


def findings(ledger: Ledger) -> list[Said]:
    """What checks found, as recorded, and for segments whose end judged no series what is found in them now.

    A segment that was killed, or goes on, has not been judged; those that were are not judged again.
    """
    out = [Said(r.segment, r.rank, r.step, r.payload, True) for r in ledger.of("finding")]
    done = {r.segment for r in ledger.of("coverage") if any(x.startswith(MARK) for x in r.payload.recorded)}
    for segment in ledger.segments:
        if segment.uid not in done:
            out += said(segment.uid, check(ledger, segment))
        out += said(segment.uid, Health(findings=beside.compare(ledger, segment).findings))
        out += said(segment.uid, Health(findings=_of_resume(ledger, segment)))
        out += said(segment.uid, Health(findings=bookkeeping.findings(ledger, segment)))
    for uid, found in audit(ledger).items():
        out += said(uid, Health(findings=found))
    for uid, one in incident_findings.findings(ledger.records):
        out += said(uid, Health(findings=[one]))
    return out


def audit(ledger: Ledger) -> dict[str, list[schemas.Finding]]:
    """Segment -> what an audit of its checkpoints finds by the records, and what no process recorded while it ran."""
    told = {(r.segment, r.payload.code) for r in ledger.of("finding")}
    out: dict[str, list[schemas.Finding]] = {}
    for uid, found in quarantined.findings(ledger.records):
        if (uid, found.code) not in told:
            out.setdefault(uid, []).append(found)
    return out


def of_checkpoints(ledger: Ledger, segment: str) -> list[schemas.Finding]:
    """What is found of a segment's checkpoints and of the one that it resumed from, recorded or by the records."""
    codes = ("LIN-C006", "LIN-C030", "LIN-C031")
    recorded = [r.payload for r in ledger.of("finding", segment) if r.payload.code in codes]
    return [*recorded, *audit(ledger).get(segment, [])]


def _of_resume(ledger: Ledger, segment: SegmentView) -> list[schemas.Finding]:
    """What the saves of a segment show, and what it went on from. What ranks and probes found stands elsewhere."""
    resumed = resumes.look(ledger, segment)
    own = [f for f in resumed.findings if not f.code.startswith(("LIN-R", "LIN-P"))] if resumed else []
    return [*resumes.saves(ledger, segment.uid), *own]


@dataclass(frozen=True)
class Gathered:
    """A finding where it was made first, and how many other segments it was made in."""

    first: Said
    others: int


def gathered(
    ledger: Ledger, segments: Collection[str], every: Collection[Said] | None = None
) -> list[Gathered]:
    """The findings of these segments, the worst first; the same of several ranks and segments once.

    `every`: what `findings` gave, where it was asked already: to judge the series of a long run takes seconds.
    """
    places: dict[tuple[str, ...], list[Said]] = {}
    every = findings(ledger) if every is None else every
    named: dict[str, int] = {}
    for r in every:
        if _of_replicas(r) and r.payload.names:
            named[r.segment] = min(named.get(r.segment, r.step or 0), r.step or 0)
    for r in every:
        if r.segment in segments and not (_of_replicas(r) and _told_by_now(r, named)):
            f = r.payload
            places.setdefault((f.code, f.severity, f.subject, *f.names), []).append(r)
    found = [Gathered(same[0], len({r.segment for r in same}) - 1) for same in places.values()]
    return sorted(found, key=lambda g: schemas.severity_place(g.first.payload.severity))


def _of_replicas(r: Said) -> bool:
    return r.payload.subject == "replicas"


def _told_by_now(r: Said, named: Mapping[str, int]) -> bool:
    """Whether what the run said before the tensors were known is told with them by now.

    `named`: segment -> the first step of which it is.
    """
    return not r.payload.names and named.get(r.segment, math.inf) <= (r.step or 0)


def said(segment: str, health: Health) -> list[Said]:
    """Findings just made, at the step and rank that they name."""
    return [
        Said(segment, _number(f, "rank") or 0, _number(f, "first_step"), f, False) for f in health.findings
    ]


def _number(f: schemas.Finding, name: str) -> int | None:
    value = f.values[name].plain() if name in f.values else None
    return value if isinstance(value, int) else None


def covered(coverage: schemas.Coverage, health: Health | None) -> schemas.Coverage:
    """The coverage, with what was judged of the series, and with each series that stopped."""
    if health is None:
        return coverage
    stopped = [f"{f.names[0]}: {f.text}" for f in health.findings if f.code == "LIN-S005"]
    return coverage.model_copy(
        update={
            "recorded": [*coverage.recorded, f"{MARK} {len(health.looked_at)} series"],
            "gaps": [
                *coverage.gaps,
                *stopped,
                *(f"series not judged (lineage check): {x}" for x in health.not_judged),
            ],
        }
    )


def logged(ledger: Path, segment: str) -> tuple[list[Logged], int]:
    """The series of a segment that can be judged or judge others, and how many values were left out."""
    own, more = _read(ledger, segment, "probes", "signal", lambda k: k in series_health.OWN or k in ALSO)
    theirs, further = _read(ledger, segment, "metrics", "key", _matters)
    return own + theirs, more + further


def _matters(key: str) -> bool:
    """Whether a logged key is judged, or helps to judge others."""
    return series_names.of(key) is not None or series_gaps.of_training(key) or series_names.shows_rewards(key)


def _read(
    ledger: Path, segment: str, table: str, key: str, wanted: Callable[[str], bool]
) -> tuple[list[Logged], int]:
    """Read one table of a segment; series in the order of their rows."""
    names = ["rank", "step", "at", key, "value", *(["tracker"] if table == "metrics" else [])]
    parts = [found.select(names) for found in series.of_segment(ledger, segment, table)]
    if not parts:
        return [], 0
    whole = pa.concat_tables(parts)
    limits = pa.array(list(series_gaps.LIMITS), pa.float64())
    replaced = whole.filter(pc.is_in(pc.abs(whole["value"]), limits))[key]
    chosen = {k for k in pc.unique(whole[key]).to_pylist() if wanted(k)} | set(replaced.to_pylist())
    whole = whole.filter(pc.is_in(whole[key], pa.array(sorted(chosen), pa.string()))).sort_by("at")
    left_out = max(0, whole.num_rows - MOST)
    newest = whole.drop_columns(["at"]).slice(left_out)  # Python's own times would take longer than all else
    return list(_series(newest.to_pydict(), key)), left_out


def _series(columns: dict[str, list[Any]], key: str) -> Iterable[Logged]:
    groups: dict[tuple[str, int, str], tuple[list[int], list[float]]] = {}
    by = columns.get("tracker") or ["probes"] * len(columns[key])
    for tracker, rank, name, step, value in zip(
        by, columns["rank"], columns[key], columns["step"], columns["value"], strict=True
    ):
        steps, values = groups.setdefault((tracker, rank, name), ([], []))
        steps.append(step)
        values.append(value)
    for (tracker, rank, name), (steps, values) in groups.items():
        yield Logged(name, steps, values, rank, tracker)


def _config(ledger: Ledger, segment: SegmentView) -> schemas.Config | None:
    """The newest config of a segment."""
    found = ledger.of("config", segment.uid)
    return found[-1].payload if found else None


def _thresholds(
    ledger: Ledger, segment: SegmentView, config: schemas.Config | None, found: Iterable[Logged]
) -> list[float]:
    """Clip thresholds: those in effect step by step, else those asked for."""
    in_effect = {v for s in found if s.own and s.key == "clip_threshold" for v in s.values}
    if in_effect:
        return sorted(in_effect)
    catalogue = schemas.catalogue()
    asked = []
    for key, value in (config.values if config else {}).items():
        concept = catalogue.of_key(key)
        plain = value.plain()
        if concept is not None and concept.id == "grad_clip" and type(plain) in (int, float):
            asked.append(float(plain))
    return sorted(set(asked))
