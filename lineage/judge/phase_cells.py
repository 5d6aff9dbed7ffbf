"""What stands in the cells of the phase table, and how each is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .drift import requested_only
from .graph import Graph, latest
from .phase_spans import Boundary, Piece, Span
from .values import same

How = Literal["effective", "measured", "predicted", "requested", "reported", "before", "computed"]
"""effective: a live object held it; measured: a series did; predicted: by the schedule at a save or a start;
requested: a config asks for it; reported: a source says so; before: a later change says that it was so until
then; computed: from other cells."""

PARALLEL = ("dp_sharding", "tensor_parallel", "pipeline_parallel", "context_parallel")


@dataclass(frozen=True)
class Value:
    """A cell and how it is known."""

    text: str
    how: How
    at: int | None = None
    """for before: the step of the change that says so"""


class Cells:
    """Reads the cells of spans from the records of a run."""

    def __init__(
        self, records: Sequence[schemas.Record], graph: Graph, rates: Mapping[str, Mapping[int, float]]
    ) -> None:
        self.graph, self.rates = graph, rates
        self.by_segment: dict[str, list[schemas.Record]] = {}
        self.reported: dict[str, schemas.Reported] = {}
        self.drifts: dict[str, list[schemas.Record]] = {}
        for r in sorted(records, key=lambda r: (r.at, r.seq)):
            self.by_segment.setdefault(r.segment, []).append(r)
            if r.kind == "reported":
                self.reported[r.id] = r.payload
            elif r.kind == "drift":
                self.drifts.setdefault(r.segment, []).append(r)

    def imported(self, segment: str) -> bool:
        """Whether a segment is what a source reports, and nothing of it was seen live."""
        info = self.graph.segments.get(segment)
        return info is not None and info.place.node == schemas.IMPORTED

    def placed(self, boundary: Boundary) -> str | None:
        """Where a beginning is only a lower bound: the date that the source gives, or why not even that."""
        entries = [
            self.reported[e]
            for r in boundary.drifts
            for c in r.payload.changes
            for e in c.evidence
            if e in self.reported
        ]
        loose = [e for e in entries if e.placed_by in ("neighbours", "nothing")]
        if not loose or len(loose) < len(entries):
            return None
        dates = dict.fromkeys(e.date for e in loose if e.date)
        return f"dated {', '.join(dates)}" if dates else "neither step nor date is given"

    def regime(self, span: Span) -> int | None:
        """The number of the regime that held."""
        found = [b.regime.index for b in span.known if b.regime is not None]
        return found[-1] if found else None

    def because(self, boundary: Boundary) -> tuple[str, ...]:
        """The changes that began a span."""
        texts = [
            c.text
            for r in boundary.drifts
            for c in r.payload.changes
            if c.cls in ("R", "C") and not requested_only(c)
        ]
        if not texts and boundary.regime is not None:
            texts = list(boundary.regime.because)
        return tuple(dict.fromkeys(texts))

    # -- one concept

    def value(self, span: Span, concept: str) -> Value | None:
        """The value of a concept over a span: as held, else as asked for, else as a source reports it."""
        return (
            self._held(span, concept)
            or self._moved(span, concept)
            or self._later(span, concept)
            or self._asked(span, concept)
        )

    def _held(self, span: Span, concept: str) -> Value | None:
        """The regime's value, else the newest live value of the segment."""
        piece = span.pieces[0]
        if self.imported(piece.segment):
            return None
        regimes = [b.regime for b in span.known if b.regime is not None]
        if regimes and concept in regimes[-1].values:
            return Value(said(regimes[-1].values[concept]), "effective")
        for change, record in self._changes(span, concept):
            if record.segment == piece.segment and change.effective_after is not None:
                return Value(said(change.effective_after), "effective")
        for p in span.pieces:
            mine = self.by_segment.get(p.segment, [])
            effective = latest(mine, "effective", p.segment)
            if effective is not None and concept in effective.payload.values:
                return Value(said(effective.payload.values[concept].value), "effective")
        return None

    def _moved(self, span: Span, concept: str) -> Value | None:
        """What the newest change of the concept on the path made of it."""
        for change, record in self._changes(span, concept):
            how: How = "reported" if record.payload.moment == "reported" else "requested"
            if change.effective_after is not None and how != "reported":
                return Value(said(change.effective_after), "effective")
            if change.requested_after is not None and change.requested_after.type != "null":
                return Value(_among(change, record, said(change.requested_after)), how)
            return None
        return None

    def _changes(self, span: Span, concept: str) -> list[tuple[schemas.Change, schemas.Record]]:
        """Changes of a concept on the path up to a span, newest first."""
        found = [
            (c, r)
            for b in span.known
            for r in b.drifts
            for c in r.payload.changes
            if c.concept == concept and not requested_only(c)
        ]
        return found[::-1]

    def _later(self, span: Span, concept: str) -> Value | None:
        """What the next change says that it was before, where no earlier one is known."""
        if self._changes(span, concept):
            return None
        for stretch in span.path:
            for r in sorted(self.drifts.get(stretch.segment, ()), key=lambda r: r.payload.from_step):
                if stretch.upto is not None and r.payload.from_step > stretch.upto:
                    break
                change = next((c for c in r.payload.changes if c.concept == concept), None)
                if change is None:
                    continue
                before = change.effective_before or change.requested_before
                if before is None or before.type == "null":
                    return None
                return Value(_among(change, r, said(before)), "before", r.payload.from_step)
        return None

    def _asked(self, span: Span, concept: str) -> Value | None:
        """What the newest config up to the span asks for."""
        segments = [s.segment for s in span.path]
        here = segments[: segments.index(span.pieces[-1].segment) + 1]
        for segment in reversed(here):
            config = latest(self.by_segment.get(segment, []), "config", segment)
            if config is None:
                continue
            keys = {
                k: v
                for k, v in config.payload.values.items()
                if (known := schemas.catalogue().of_key(k)) is not None and known.id == concept
            }
            if len(keys) == 1:
                return Value(said(next(iter(keys.values()))), "requested")
            if keys:
                return Value(", ".join(f"{k}={said(v)}" for k, v in list(keys.items())[:4]), "requested")
        return None

    # -- cells of their own kind

    def learning_rate(self, span: Span) -> Value | None:
        """The range of the rate: of the series, else as the schedule predicts it, else the peak that is set."""
        measured = [
            rate
            for p in span.pieces
            for step, rate in self.rates.get(p.segment, {}).items()
            if p.first <= step and (p.last is None or step <= p.last) and math.isfinite(rate)
        ]
        if measured:
            return Value(_range(measured), "measured")
        predicted = [rate for p in span.pieces for rate in self._predicted(p)]
        if predicted:
            return Value(_range(predicted), "predicted")
        peak, schedule = self.value(span, "learning_rate"), self.value(span, "lr_schedule")
        if peak is None and schedule is None:
            return None
        parts = ([peak.text] if peak else []) + ([f"schedule {schedule.text}"] if schedule else [])
        first = peak or schedule
        assert first is not None
        return Value("; ".join(parts), first.how, first.at)

    def _predicted(self, piece: Piece) -> list[float]:
        """The rates of the first group that a schedule predicts for the steps of a piece."""
        rates: dict[int, float] = {}
        for r in self.by_segment.get(piece.segment, ()):
            ahead = r.payload.lr_ahead if r.kind in ("effective", "checkpoint") and r.rank == 0 else {}
            for step, groups in ahead.items():
                if groups and piece.first <= step and (piece.last is None or step <= piece.last):
                    rates[step] = groups[0]
        return [x for x in rates.values() if math.isfinite(x)]

    def batch(self, span: Span) -> Value | None:
        """The global batch, and what it is made of where that is known."""
        whole = self.value(span, "global_batch")
        parts = [self.value(span, c) for c in ("micro_batch", "grad_accum", "world_size")]
        held = [p for p in parts if p is not None]
        if whole is None:
            if len(held) == len(parts) and all(p.how == held[0].how for p in held):
                product = _product([p.text for p in held])
                return Value(f"{product:,}", "computed") if product else None
            return None
        inside = f" ({' x '.join(p.text for p in held)})" if len(held) == len(parts) else ""
        return Value(_thousands(whole.text) + inside, whole.how, whole.at)

    def hardware(self, span: Span) -> Value | None:
        """Ranks, nodes and devices, and how the work is divided between them."""
        texts = [t for t in (self._machine(p.segment) for p in span.pieces) if t]
        divided = [
            f"{schemas.catalogue().concept(c).title} {v.text}"
            for c in PARALLEL
            if (v := self.value(span, c)) is not None and v.text not in ("1", "False", "none", "")
        ]
        if texts:
            return Value(
                "; then ".join(dict.fromkeys(texts)) + "".join(f"; {d}" for d in divided), "effective"
            )
        told = [v for c in ("hardware", "world_size") if (v := self.value(span, c)) is not None]
        if not told and not divided:
            return None
        text = "; ".join([*dict.fromkeys(v.text for v in told), *divided])
        return Value(text, told[0].how if told else "reported", told[0].at if told else None)

    def _machine(self, segment: str) -> str | None:
        info = self.graph.segments.get(segment)
        if info is None or self.imported(segment):
            return None
        mine = self.by_segment.get(segment, [])
        places = {r.rank: r.payload.place for r in mine if r.kind == "segment"}
        nodes = len({p.node for p in places.values()})
        environment = latest(mine, "environment", segment)
        devices = Counter(d.name for d in environment.payload.devices) if environment else Counter()
        if devices:
            kind = ", ".join(f"{n} x {name}" for name, n in devices.items()) + " on rank 0's node"
        else:
            kind = ", ".join(sorted({"CPU" if p.device == "cpu" else p.device for p in places.values()}))
        ranks = f"{info.world_size:,} rank{'s' if info.world_size != 1 else ''}"
        seen = f" ({len(places):,} recorded)" if len(places) < info.world_size else ""
        return f"{ranks}{seen}, {nodes} node{'s' if nodes != 1 else ''}, {kind}"


def _among(change: schemas.Change, record: schemas.Record, text: str) -> str:
    """A value that a source gives for several concepts at once is not the value of one of them."""
    others = [
        c
        for c in record.payload.changes
        if c is not change and c.evidence and c.evidence == change.evidence and c.concept != change.concept
    ]
    return f"told with others: {text}" if others and record.payload.moment == "reported" else text


def said(value: schemas.Scalar) -> str:
    """A value as a cell shows it."""
    text = value.text()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return (
        f"{low:.4g}" if same(schemas.Scalar.of(low), schemas.Scalar.of(high)) else f"{low:.4g} to {high:.4g}"
    )


def number(text: str) -> float | None:
    """The number that a cell's text is, if it is one."""
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None


def _thousands(text: str) -> str:
    n = number(text)
    return f"{int(n):,}" if n is not None and n == int(n) else text


def _product(texts: Sequence[str]) -> int | None:
    numbers = [number(t) for t in texts]
    if any(n is None or n != int(n) for n in numbers):
        return None
    return math.prod(int(n) for n in numbers if n is not None)
