"""What a big ledger holds of each rank: the same summary as of a small one, from queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import pyarrow as pa

from ..judge.cells import SCALE
from ..ledger import ranks
from . import sql
from .engine import Engine
from .files import File, Unread, ask, portions, ranks_of, rows_of

Rank = tuple[str, int]
"""(segment, rank)"""


@dataclass
class Summary:
    """The ranks of all segments."""

    spans: dict[Rank, tuple[int, int]] = field(default_factory=dict)
    signals: dict[Rank, set[str]] = field(default_factory=lambda: defaultdict(set))
    twins: dict[Rank, tuple[int, int]] = field(default_factory=dict)
    """the steps that several processes wrote as one rank"""
    joined: set[Rank] = field(default_factory=set)
    """ranks that several processes wrote one after the other"""
    holes: dict[Rank, list[tuple[int, int]]] = field(default_factory=dict)
    clocks: dict[Rank, float] = field(default_factory=dict)
    steps: dict[str, list[int]] = field(default_factory=dict)
    """segment -> its steps with any value"""

    @property
    def scaled(self) -> set[Rank]:
        """Ranks with a loss scale."""
        return {rank for rank, found in self.signals.items() if SCALE in found}


def read(engine: Engine, files: Sequence[File], unread: Unread) -> Summary:
    """Sum up the table `probes`."""
    out = Summary()
    spans: dict[Rank, list[tuple[int, int, int]]] = defaultdict(list)
    steps: dict[str, set[int]] = defaultdict(set)
    parts = list(portions(files))
    for portion in parts:
        for segment, rank, _, first, last, count in rows_of(
            ask(engine, portion, sql.PROBES, sql.spans, unread)
        ):
            spans[segment, rank].append((first, last, count))
        for segment, rank, _, signal in rows_of(ask(engine, portion, sql.PROBES, sql.signals, unread)):
            out.signals[segment, rank].add(signal)
        for segment, step in rows_of(ask(engine, portion, sql.PROBES, sql.steps, unread)):
            steps[segment].add(step)
    out.steps = {segment: sorted(found) for segment, found in steps.items()}
    for key, found in spans.items():
        found.sort()
        out.spans[key] = found[0][0], max(f[1] for f in found)
        shared = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairwise(found)]
        shared = [s for s in shared if s[0] <= s[1]]
        if shared:
            out.twins[key] = min(s[0] for s in shared), max(s[1] for s in shared)
        elif len(found) > 1:
            out.joined.add(key)
    _holes(engine, files, unread, spans, out)
    _clocks(engine, files, unread, out)
    return out


def _holes(
    engine: Engine,
    files: Sequence[File],
    unread: Unread,
    spans: dict[Rank, list[tuple[int, int, int]]],
    out: Summary,
) -> None:
    """Steps that other ranks of the segment recorded and this one did not, of the ranks whose counts say so."""
    of_segment: dict[str, int] = defaultdict(int)
    for segment, _ in spans:
        of_segment[segment] += 1
    place = {segment: {s: i for i, s in enumerate(found)} for segment, found in out.steps.items()}
    suspects = set()
    for key, found in spans.items():
        first, last = out.spans[key]
        between = place[key[0]][last] - place[key[0]][first] + 1
        if of_segment[key[0]] > 1 and (len(found) > 1 or found[0][2] < between):
            suspects.add(key)
    if not suspects:
        return
    chosen = ranks_of(suspects)
    own: dict[Rank, set[int]] = defaultdict(set)
    for portion in portions(files):
        for segment, rank, step in rows_of(
            ask(engine, portion, sql.PROBES, sql.steps_of, unread, chosen=chosen)
        ):
            own[segment, rank].add(step)
    for key, steps in own.items():
        first, last = out.spans[key]
        span = [s for s in out.steps[key[0]] if first <= s <= last]
        if len(steps) < len(span):
            out.holes[key] = list(ranks.runs(span, steps))[: ranks.HOLES]


def _clocks(engine: Engine, files: Sequence[File], unread: Unread, out: Summary) -> None:
    """Seconds by which each rank's clock is ahead of the middle one, from when it wrote some steps."""
    sampled = [
        (g, s) for g, found in out.steps.items() for s in found[:: max(1, len(found) // ranks.SAMPLED)]
    ]
    chosen = pa.table(
        {
            "segment": pa.array([g for g, _ in sampled], pa.string()),
            "step": pa.array([s for _, s in sampled], pa.int64()),
        }
    )
    at: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for portion in portions(files):
        for segment, rank, step, when in rows_of(
            ask(engine, portion, sql.PROBES, sql.times, unread, chosen=chosen)
        ):
            at[segment, step][rank] = when / 1e6
    ahead: dict[Rank, list[float]] = defaultdict(list)
    for (segment, _), by_rank in at.items():
        if len(by_rank) > 1:
            middle = median(by_rank.values())
            for rank, when in by_rank.items():
                ahead[segment, rank].append(when - middle)
    out.clocks = {key: median(found) for key, found in ahead.items()}
