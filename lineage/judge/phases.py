"""The phase table: the intervals between changes of regime, and what held in each.

Pure functions over records: a recorded run, an imported one, a run of which half is missing. What no record
shows is `NOT_SHOWN`; what somebody reported, or what was only asked for, says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from .graph import Graph, Stretch
from .phase_amounts import Amounts, amounts
from .phase_cells import Cells
from .phase_mitigations import Mitigated, Mitigations
from .phase_spans import Boundary, Piece, Span, spans
from .phase_told import Value

NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Measured:
    """What series add to the records."""

    rates: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """segment -> step -> learning rate as the optimizer held it"""
    amounts: Mapping[str, Amounts] = field(default_factory=dict)
    seen: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """segment -> its first and last step of which any value is recorded"""


@dataclass(frozen=True)
class Phase:
    """One interval under the same conditions. Cells are text; `None` is not shown."""

    number: int
    pieces: tuple[Piece, ...]
    """the segments it runs through, oldest first"""
    abandoned: bool
    """no later segment of the surviving branch stands on it"""
    first: int
    last: int | None
    """None: how far it went is not shown"""
    unplaced: str | None
    """where changes came within it at steps that are not stated, what is known instead; None where there are none"""
    regime: int | None
    """the number of the regime at its end"""
    first_regime: int | None
    """... and at its beginning: another one where changes within it have no step"""
    because: tuple[str, ...]
    """the changes that began it, one line each"""
    samples: str | None
    tokens: str | None
    data_mix: Value | None
    learning_rate: Value | None
    batch: Value | None
    precision: Value | None
    clip: Value | None
    mitigations: tuple[Mitigated, ...]
    hardware: Value | None
    restarts: int
    """restarts within it, from its own states and without a change of regime"""
    start: str
    """the checkpoint it started from, in words"""
    start_checkpoint: str | None
    reported: bool
    """all of it is what a source reports: nothing was seen live"""

    @property
    def segments(self) -> tuple[int, ...]:
        """The numbers of its segments."""
        return tuple(dict.fromkeys(p.number for p in self.pieces))

    @property
    def steps(self) -> str:
        """The interval in steps."""
        if self.last is None:
            return f"{self.first:,} on"
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,} to {self.last:,}"


def phases(
    records: Sequence[schemas.Record], graph: Graph, measured: Measured | None = None, run: str | None = None
) -> list[Phase]:
    """All phases of a run: those of the surviving branch in order, each abandoned branch after the phase it left.

    Every step of every segment lies in one phase.
    """
    measured = measured or Measured()
    cells, mitigations = Cells(records, graph, measured.rates), Mitigations(records)
    main_path = graph.surviving(run)
    covered: dict[str, int | None] = {}
    main = _new(spans(records, graph, main_path, measured.seen), covered)
    _cover(covered, main_path)
    rows: list[tuple[tuple[float, int], Span, bool]] = [((i, 0), s, False) for i, s in enumerate(main)]
    order = list(graph.segments)
    for tip in graph.tips():
        if run not in (None, graph.runs.get(tip)):
            continue
        path = graph.path_to_segment(tip)
        left = _new(spans(records, graph, path, measured.seen), covered)
        rows += [((_left_at(main, graph, s), 1 + order.index(s.pieces[0].segment)), s, True) for s in left]
        _cover(covered, path)
    rows.sort(key=lambda row: row[0])
    return [_phase(i, s, left, cells, mitigations, graph, measured) for i, (_, s, left) in enumerate(rows, 1)]


def _cover(covered: dict[str, int | None], path: Sequence[Stretch]) -> None:
    for s in path:
        old = covered.get(s.segment, 0)
        covered[s.segment] = None if s.upto is None or old is None else max(old, s.upto)


def _new(found: Sequence[Span], covered: Mapping[str, int | None]) -> list[Span]:
    """Of the spans of a path what no earlier path went through."""
    out = []
    for span in found:
        pieces = []
        for p in span.pieces:
            if p.segment not in covered:
                pieces.append(p)
                continue
            upto = covered[p.segment]
            if upto is not None and (p.last is None or p.last > upto):
                pieces.append(p.after(upto))
        if pieces:
            whole = pieces[0] == span.pieces[0]
            out.append(Span(tuple(pieces), span.boundary if whole else None, span.path, span.known))
    return out


def _left_at(main: Sequence[Span], graph: Graph, span: Span) -> float:
    """Behind which phase of the surviving branch an abandoned one stands: the one that held the state it left."""
    segment, step = span.pieces[0].segment, span.pieces[0].first - 1
    order = {uid: i for i, uid in enumerate(graph.segments)}
    seen: set[str] = set()
    while segment not in seen:
        seen.add(segment)
        for i, s in enumerate(main):
            for p in s.pieces:
                if p.segment == segment and (p.last is None or step <= p.last):
                    return i
        info = graph.segments.get(segment)
        parent = graph.nodes.get(info.parent_checkpoint or "") if info else None
        if parent is None:
            break
        segment, step = parent.segment, parent.checkpoint.step
    earlier = main and order.get(segment, 0) < order[main[0].pieces[0].segment]
    return -1 if earlier else len(main)


def _phase(
    number: int,
    span: Span,
    left: bool,
    cells: Cells,
    mitigations: Mitigations,
    graph: Graph,
    measured: Measured,
) -> Phase:
    first, last = span.pieces[0], span.pieces[-1]
    interval = (first.first, last.last)
    start, checkpoint = _start(graph, span, number)
    samples, tokens = amounts(span, cells, graph, measured.amounts)
    boundary = span.boundary or Boundary(first.first)
    regimes = cells.regimes(span)
    return Phase(
        number=number,
        pieces=span.pieces,
        abandoned=left,
        first=interval[0],
        last=interval[1],
        unplaced=cells.unplaced(span),
        regime=regimes[1] if regimes else None,
        first_regime=regimes[0] if regimes else None,
        because=cells.because(boundary),
        samples=samples,
        tokens=tokens,
        data_mix=cells.value(span, "data_mix"),
        learning_rate=cells.learning_rate(span),
        batch=cells.batch(span),
        precision=cells.value(span, "precision"),
        clip=cells.value(span, "grad_clip"),
        mitigations=mitigations.of(span),
        hardware=cells.hardware(span),
        restarts=sum(p.begins for p in span.pieces[1:]),
        start=start,
        start_checkpoint=checkpoint,
        reported=all(cells.imported(p.segment) for p in span.pieces),
    )


def _start(graph: Graph, span: Span, number: int) -> tuple[str, str | None]:
    """The state that a phase started from."""
    piece = span.pieces[0]
    info = graph.segments.get(piece.segment)
    if info is None:
        return NOT_SHOWN, None
    if not piece.begins:
        return f"went on without a restart after step {piece.first - 1:,}", None
    if info.parent_checkpoint is None:
        return ("nothing: a fresh start" if info.start == "fresh" else NOT_SHOWN), None
    node = graph.nodes.get(info.parent_checkpoint)
    short = info.parent_checkpoint[-8:]
    if node is None:
        step = "" if info.parent_step is None else f"step {info.parent_step:,} "
        return f"{step}({short}) of another ledger", info.parent_checkpoint
    known = graph.number(node.segment)
    of = f"segment {known}" if known else "a segment whose record is lost"
    return f"step {node.checkpoint.step:,} of {of} ({short})", node.uid
