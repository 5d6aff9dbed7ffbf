"""Which parts of a run survive and which were abandoned, in words that fit on a tracker's page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import Graph

MOST = 6
"""Parts of a path, or of what was left, that are named one by one."""


@dataclass(frozen=True)
class Left:
    """The updates of a segment that no newer state stands on: `first` to `last`."""

    segment: str
    first: int
    last: int


def left(graph: Graph, run: str) -> list[Left]:
    """The abandoned parts of a run, oldest first: tails that a later segment did not stand on, and whole branches.

    A branch is abandoned where the newest segment does not descend from it. The newest segment is never one.
    """
    stands = {s.segment: s.upto for s in graph.surviving(run)}
    out = []
    for uid, info in graph.segments.items():
        if graph.runs.get(uid) != run:
            continue
        began = info.parent_step or 0
        upto = stands.get(uid, began)
        last = graph.last_step.get(uid, 0)
        if upto is not None and last > upto:
            out.append(Left(uid, upto + 1, last))
    return out


def words(graph: Graph, run: str, pages: Mapping[str, str]) -> str:
    """The surviving path and what was abandoned, in one or two sentences; empty where there is nothing to tell.

    There is something to tell where a part was abandoned, or where the segments are on several pages. `pages`:
    segment -> the name of its page, for those that are not on the page that shows this.
    """
    path = [s for s in graph.surviving(run) if graph.runs.get(s.segment) == run]
    gone = left(graph, run)
    if not gone and not any(s.segment in pages for s in path):
        return ""
    parts = []
    for stretch in path[-MOST:]:
        to = "" if stretch.upto is None else f" to step {stretch.upto:,}"
        since = f" from step {stretch.after + 1:,}" if stretch.after else ""
        parts.append(f"segment {_named(graph, stretch.segment, pages)}{since}{to}")
    more = f"{len(path) - MOST} earlier segments, then " if len(path) > MOST else ""
    told = [f"This run stands on {more}{', then '.join(parts)}"]
    if gone:
        names = [
            f"{_steps(g.first, g.last)} of segment {_named(graph, g.segment, pages)}" for g in gone[-MOST:]
        ]
        others = f"{len(gone) - MOST} earlier parts; " if len(gone) > MOST else ""
        told.append(f"Abandoned: {others}{'; '.join(names)}")
    return ". ".join(told)


def _named(graph: Graph, segment: str, pages: Mapping[str, str]) -> str:
    page = f" ({pages[segment]})" if segment in pages else ""
    return f"{graph.number(segment)}{page}"


def _steps(first: int, last: int) -> str:
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
