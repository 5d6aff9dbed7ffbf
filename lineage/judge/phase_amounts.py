"""Consumed samples and tokens of a phase: counted, else as checkpoints say, else computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import Graph
from .phase_cells import Cells, number
from .phase_spans import Piece, Span
from .phase_told import Value


@dataclass(frozen=True)
class Amounts:
    """What the batches of one segment add up to, over the ranks that recorded them."""

    samples: Mapping[int, int]
    """step -> samples of that step"""
    tokens: Mapping[int, int]
    ranks: int


def amounts(
    span: Span, cells: Cells, graph: Graph, counted: Mapping[str, Amounts]
) -> tuple[str | None, str | None]:
    """Consumed samples and tokens: counted, else from checkpoints, else steps times what a step holds."""
    samples = _counted("samples", span, graph, counted) or _saved("samples", span, graph)
    tokens = _counted("tokens", span, graph, counted) or _saved("tokens", span, graph)
    return samples or _computed("samples", span, cells), tokens or _computed("tokens", span, cells)


def _counted(what: str, span: Span, graph: Graph, counted: Mapping[str, Amounts]) -> str | None:
    """From the batches of every step, from the start of the run where that is known."""
    total = 0
    partial = ""
    for p in span.pieces:
        found = counted.get(p.segment)
        if found is None:
            return None
        by_step = found.samples if what == "samples" else found.tokens
        total += sum(n for s, n in by_step.items() if p.first <= s and (p.last is None or s <= p.last))
        world = graph.segments[p.segment].world_size
        if found.ranks < world:
            partial = f" (of {found.ranks} of {world} ranks)"
    begin = _before(what, span.pieces[0], graph, counted)
    if begin is None or partial:
        return f"{amount(total)} {what} in this phase{partial}"
    return f"{amount(begin)} to {amount(begin + total)} {what}"


def _before(what: str, piece: Piece, graph: Graph, counted: Mapping[str, Amounts]) -> int | None:
    """Consumed up to the beginning of a piece."""
    info = graph.segments[piece.segment]
    parent = graph.nodes.get(info.parent_checkpoint or "")
    start: int | None = 0 if parent is None and info.start == "fresh" else None
    if parent is not None:
        start = parent.checkpoint.samples if what == "samples" else parent.checkpoint.tokens
    if start is None:
        return None
    found = counted[piece.segment]
    by_step = found.samples if what == "samples" else found.tokens
    return start + sum(n for s, n in by_step.items() if s < piece.first)


def _saved(what: str, span: Span, graph: Graph) -> str | None:
    """Consumed by then, as checkpoints say: at the state a span started from, and at its last save."""
    found = [
        (n.checkpoint.step, getattr(n.checkpoint, what))
        for p in span.pieces
        for n in graph.nodes.values()
        if n.segment == p.segment
        and p.first <= n.checkpoint.step
        and (p.last is None or n.checkpoint.step <= p.last)
        and getattr(n.checkpoint, what) is not None
    ]
    info = graph.segments.get(span.pieces[0].segment)
    parent = graph.nodes.get(info.parent_checkpoint or "") if info else None
    begin = getattr(parent.checkpoint, what) if parent and span.pieces[0].begins else None
    if not found:
        return f"from {amount(begin)} {what}" if begin is not None else None
    step, end = max(found)
    start = f"{amount(begin)} to " if begin is not None else ""
    return f"{start}{amount(end)} {what} at step {step:,}"


def _computed(what: str, span: Span, cells: Cells) -> str | None:
    """Steps times what a step holds, where each is one known value over the whole span."""
    first, last = span.pieces[0].first, span.pieces[-1].last
    batch, length = cells.value(span, "global_batch"), cells.value(span, "seq_len")
    per = _number(batch)
    if what == "tokens":
        each = _number(length)
        per = per * each if per is not None and each is not None else None
    if per is None or last is None or last < first:
        return None
    how = "steps x batch x length" if what == "tokens" else "steps x batch"
    return f"about {amount((last - first + 1) * per)} {what} ({how})"


def _number(value: Value | None) -> float | None:
    return number(value.one.text()) if value is not None and value.one is not None else None


def amount(n: float) -> str:
    """A count as a person reads it: exact below ten million, else four digits and M, B or T."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if n >= 1e7 and n >= size:
            return f"{n / size:.4g}{unit}"
    return f"{round(n):,}"
