"""Cutting a path into the spans of the phase table: at every change of regime, and across restarts that change none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .._rooms import schemas
from .drift import alters
from .graph import Graph, Stretch


@dataclass(frozen=True)
class Piece:
    """The part of one segment that lies in a span."""

    segment: str
    number: int
    first: int
    last: int | None
    """None: how far the segment went is not shown"""
    begins: bool
    """it starts where its segment does"""

    def after(self, step: int) -> Piece:
        """What of it lies after a step."""
        return replace(self, first=max(self.first, step + 1), begins=self.begins and step < self.first)


@dataclass(frozen=True)
class Boundary:
    """A step from which on the conditions are others."""

    step: int
    regimes: tuple[schemas.Regime, ...] = ()
    """those that open there, oldest first; several where steps are not known"""
    drifts: tuple[schemas.Record, ...] = ()

    @property
    def regime(self) -> schemas.Regime | None:
        """The regime that holds from there on."""
        return self.regimes[-1] if self.regimes else None


@dataclass(frozen=True)
class Span:
    """One phase on a path, with all that the path knew by then."""

    pieces: tuple[Piece, ...]
    boundary: Boundary | None
    path: tuple[Stretch, ...]
    known: tuple[Boundary, ...]
    """the boundaries of the path up to this span, oldest first, its own last"""


def spans(
    records: Sequence[schemas.Record],
    graph: Graph,
    path: Sequence[Stretch],
    seen: Mapping[str, tuple[int, int]],
) -> list[Span]:
    """Cut a path into spans. A segment that made no step is no piece, and counts as a restart of the next."""
    by_segment = _boundaries(records, {s.segment for s in path})
    out: list[Span] = []
    known: list[Boundary] = []
    regime: str | None = None
    for stretch in path:
        if stretch.segment not in graph.segments:
            continue
        whole = _interval(graph, stretch, seen)
        if whole is None:
            continue
        first, last = whole
        found = [
            b
            for b in by_segment.get(stretch.segment, ())
            if (last is None or b.step <= last) or b.step <= first
        ]
        cuts = _cuts(found, first, regime)
        for i, (start, boundary) in enumerate(cuts):
            end = cuts[i + 1][0] - 1 if i + 1 < len(cuts) else last
            piece = Piece(stretch.segment, graph.number(stretch.segment), start, end, begins=i == 0)
            if boundary is not None:
                known.append(boundary)
                regime = boundary.regime.id if boundary.regime else None
            if out and boundary is None:
                before = out[-1]
                out[-1] = replace(before, pieces=(*before.pieces, piece))
            else:
                out.append(Span((piece,), boundary, tuple(path), tuple(known)))
    return out


def _interval(
    graph: Graph, stretch: Stretch, seen: Mapping[str, tuple[int, int]]
) -> tuple[int, int | None] | None:
    """The steps of a stretch; None where it made none."""
    info = graph.segments[stretch.segment]
    first, reached = stretch.after + 1, graph.last_step.get(stretch.segment, 0)
    if stretch.segment in seen:
        low, high = seen[stretch.segment]
        first = low if info.parent_step is None and not stretch.cut else first
        reached = max(reached, high)
    imported = info.place.node == schemas.IMPORTED
    if stretch.upto is not None:
        last: int | None = stretch.upto
    else:
        last = None if imported else reached
    return (first, last) if last is None or last >= first else None


def _boundaries(records: Sequence[schemas.Record], segments: set[str]) -> dict[str, list[Boundary]]:
    """segment -> the steps at which a regime opens or a change that alters results is found, in order of step."""
    regimes: dict[tuple[str, int], list[schemas.Regime]] = {}
    drifts: dict[tuple[str, int], list[schemas.Record]] = {}
    for r in sorted(records, key=lambda r: (r.at, r.seq)):
        if r.segment not in segments:
            continue
        if r.kind == "regime":
            regimes.setdefault((r.segment, r.payload.from_step), []).append(r.payload)
        elif r.kind == "drift" and r.rank == 0:
            drifts.setdefault((r.segment, r.payload.from_step), []).append(r)
    out: dict[str, list[Boundary]] = {}
    for segment, step in sorted({*regimes, *drifts}, key=lambda k: k[1]):
        moved = drifts.get((segment, step), [])
        opened = regimes.get((segment, step), [])
        if opened or any(alters(c) for r in moved for c in r.payload.changes):
            out.setdefault(segment, []).append(Boundary(step, tuple(opened), tuple(moved)))
    return out


def _cuts(found: Sequence[Boundary], first: int, regime: str | None) -> list[tuple[int, Boundary | None]]:
    """Where a stretch is cut: (first step, what begins there; None where the span before goes on)."""
    cuts: list[tuple[int, Boundary | None]] = []
    now = regime
    for b in found:
        step = max(b.step, first)
        changed = any(alters(c) for r in b.drifts for c in r.payload.changes)
        if b.regime is not None and b.regime.id == now and not changed:
            continue  # the regime carries on in a new segment
        now = b.regime.id if b.regime else None
        if cuts and cuts[-1][0] == step and cuts[-1][1] is not None:
            cuts[-1] = (step, _joined(cuts[-1][1], b))
        else:
            cuts.append((step, b))
    if not cuts or cuts[0][0] > first:
        cuts.insert(0, (first, None))
    return cuts


def _joined(a: Boundary, b: Boundary) -> Boundary:
    return Boundary(b.step, (*a.regimes, *b.regimes), (*a.drifts, *b.drifts))
