"""The phase table: intervals over which the conditions were the same, and what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .._rooms import schemas
from ..judge.graph import Graph, latest
from ..judge.values import same
from . import words
from .series import Consumed, Curves

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Phase:
    """One interval of one segment under one regime."""

    segment: int
    uid: str
    first: int
    last: int
    regime: int | None
    samples: str
    tokens: str
    data_mix: str
    learning_rate: str
    batch: str
    clip: str
    mitigations: tuple[str, ...]
    hardware: str
    abandoned_from: int | None = None
    """first step of this phase on which no later segment stands"""

    @property
    def steps(self) -> str:
        """The interval in steps."""
        return words.interval(self.first, self.last)

    @property
    def consumed(self) -> str:
        """Samples and tokens."""
        if self.samples == self.tokens == NOT_RECORDED:
            return NOT_RECORDED
        return f"{self.samples} samples; {self.tokens} tokens"


def phases(
    records: Sequence[schemas.Record], graph: Graph, curves: Curves, consumed: dict[str, Consumed]
) -> list[Phase]:
    """All phases, in the order of segments and steps."""
    out = []
    abandoned = graph.abandoned()
    for uid in graph.segments:
        spans = _spans(records, graph, curves, uid)
        for first, last, regime in spans:
            cut = abandoned.get(uid)
            out.append(
                Phase(
                    segment=graph.number(uid),
                    uid=uid,
                    first=first,
                    last=last,
                    regime=regime.index if regime else None,
                    samples=_amount("samples", graph, uid, consumed, (first, last)),
                    tokens=_amount("tokens", graph, uid, consumed, (first, last)),
                    data_mix=_value(records, uid, regime, "data_mix"),
                    learning_rate=_learning_rate(curves, uid, first, last),
                    batch=_batch(records, uid, regime),
                    clip=_value(records, uid, regime, "grad_clip"),
                    mitigations=_mitigations(records, graph, uid, first, last),
                    hardware=hardware(records, graph, uid),
                    abandoned_from=max(first, cut + 1) if cut is not None and cut < last else None,
                )
            )
    return out


def span(graph: Graph, curves: Curves, uid: str) -> tuple[int, int] | None:
    """The first and last step of a segment, as far as recorded; None where it made no step."""
    info = graph.segments[uid]
    steps = curves.steps(uid)
    first = steps[0] if steps else (info.parent_step or 0) + 1
    last = max(steps[-1] if steps else 0, graph.last_step.get(uid, 0))
    return (first, last) if last >= first else None


def _spans(
    records: Sequence[schemas.Record], graph: Graph, curves: Curves, uid: str
) -> list[tuple[int, int, schemas.Regime | None]]:
    whole = span(graph, curves, uid)
    if whole is None:
        return []
    opened = sorted(
        (r.payload for r in records if r.kind == "regime" and r.segment == uid), key=lambda g: g.from_step
    )
    starts: list[tuple[int, schemas.Regime | None]] = [(g.from_step, g) for g in opened]
    if not starts or starts[0][0] > whole[0]:
        starts.insert(0, (whole[0], inherited(records, graph, uid)))
    out = []
    for i, (first, regime) in enumerate(starts):
        last = starts[i + 1][0] - 1 if i + 1 < len(starts) else whole[1]
        if last >= first:
            out.append((first, last, regime))
    return out


def inherited(records: Sequence[schemas.Record], graph: Graph, uid: str) -> schemas.Regime | None:
    """The regime in which the parent checkpoint of a segment was saved."""
    node = graph.nodes.get(graph.segments[uid].parent_checkpoint or "")
    found = [
        r.payload for r in records if r.kind == "regime" and node and r.payload.id == node.checkpoint.regime
    ]
    return found[-1] if found else None


def _amount(
    what: str, graph: Graph, uid: str, consumed: dict[str, Consumed], interval: tuple[int, int]
) -> str:
    """Consumed samples or tokens, from the start of the run where that is known."""
    info, found, (first, last) = graph.segments[uid], consumed.get(uid), interval
    if found is None:
        return NOT_RECORDED
    by_step = found.samples if what == "samples" else found.tokens
    inside = sum(n for s, n in by_step.items() if first <= s <= last)
    parent = graph.nodes.get(info.parent_checkpoint or "")
    start = getattr(parent.checkpoint, what) if parent else (0 if info.start == "fresh" else None)
    missing = f" (of {found.ranks} of {info.world_size} ranks)" if found.ranks < info.world_size else ""
    if start is None or missing:
        return f"{inside:,} in this phase{missing}"
    begin = start + sum(n for s, n in by_step.items() if s < first)
    return f"{begin:,} to {begin + inside:,}"


def _held(
    records: Sequence[schemas.Record], uid: str, regime: schemas.Regime | None, concept: str
) -> schemas.Scalar | None:
    """The value in effect: the regime's, else the segment's newest live value."""
    if regime is not None and concept in regime.values:
        return regime.values[concept]
    effective = latest(records, "effective", uid)
    held = effective.payload.values.get(concept) if effective else None
    return held.value if held else None


def _value(records: Sequence[schemas.Record], uid: str, regime: schemas.Regime | None, concept: str) -> str:
    held = _held(records, uid, regime, concept)
    return words.value(held) if held is not None else NOT_RECORDED


def _learning_rate(curves: Curves, uid: str, first: int, last: int) -> str:
    ranks = curves.of(uid, "lr")
    if not ranks:
        return NOT_RECORDED
    values = [v for s, v in ranks[min(ranks)].items() if first <= s <= last]
    if not values:
        return NOT_RECORDED
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _batch(records: Sequence[schemas.Record], uid: str, regime: schemas.Regime | None) -> str:
    whole = _held(records, uid, regime, "global_batch")
    if whole is None:
        return NOT_RECORDED
    micro, accumulation, world = (
        _held(records, uid, None, c) for c in ("micro_batch", "grad_accum", "world_size")
    )
    parts = [p.text() for p in (micro, accumulation, world) if p is not None]
    return f"{whole.text()} samples" + (f" ({' x '.join(parts)})" if len(parts) == 3 else "")


def _mitigations(
    records: Sequence[schemas.Record], graph: Graph, uid: str, first: int, last: int
) -> tuple[str, ...]:
    """Mitigations in effect, with evidence, somewhere in an interval.

    One that took effect in an earlier segment counts only where this segment's live value is still its.
    """
    declared = {r.payload.uid: r.payload for r in records if r.kind == "mitigation"}
    path = {s.segment for s in graph.path_to_segment(uid)}
    out = []
    for r in records:
        if r.kind != "mitigation_effect" or r.payload.in_effect != "yes" or r.segment not in path:
            continue
        effect: schemas.MitigationEffect = r.payload
        began = effect.from_step or first
        ended = effect.to_step
        if began > last or (ended is not None and ended < first):
            continue
        asked = declared.get(effect.mitigation)
        if r.segment != uid:
            held = _held(records, uid, None, asked.concept) if asked else None
            if held is None or not same(held, effect.effective):
                continue
        name = schemas.catalogue().concept(asked.concept).title if asked else effect.mitigation
        out.append(f"{name} {words.value(effect.effective)}, since step {began:,}")
    return tuple(dict.fromkeys(out))


def hardware(records: Sequence[schemas.Record], graph: Graph, uid: str) -> str:
    """Ranks, nodes and devices of a segment."""
    info = graph.segments[uid]
    places = {r.rank: r.payload.place for r in records if r.kind == "segment" and r.segment == uid}
    nodes = len({p.node for p in places.values()})
    environment = latest(records, "environment", uid)
    devices = Counter(d.name for d in environment.payload.devices) if environment else Counter()
    if devices:
        kind = ", ".join(f"{n} x {name}" for name, n in devices.items()) + " on rank 0's node"
    else:
        kind = ", ".join(sorted({"CPU" if p.device == "cpu" else p.device for p in places.values()}))
    ranks = f"{info.world_size:,} rank{'s' if info.world_size != 1 else ''}"
    seen = f" ({len(places):,} recorded)" if len(places) < info.world_size else ""
    return f"{ranks}{seen}, {nodes} node{'s' if nodes != 1 else ''}, {kind}"
