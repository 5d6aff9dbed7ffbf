"""What stands in the cells of the phase table, and how each is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .._rooms import schemas
from .drift import requested_only
from .graph import Graph, latest
from .phase_spans import Boundary, Piece, Span
from .phase_told import NOT_STATED, How, Step, Value, explained, is_main, keyed, told
from .values import same

PARALLEL = ("dp_sharding", "tensor_parallel", "pipeline_parallel", "context_parallel")


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

    def unplaced(self, span: Span) -> str | None:
        """What is known instead of the steps of the changes within a span; None where all steps are known."""
        if not span.known:
            return None
        loose = [r.payload.lower_bound for r in span.known[-1].drifts if r.payload.lower_bound is not None]
        dates = [t.removeprefix("dated ") for t in dict.fromkeys(loose) if t.startswith("dated ")]
        if not loose:
            return None
        undated = any(not t.startswith("dated ") for t in loose)
        if not dates:
            return "of no known date"
        return f"dated {', '.join(dates)}" + (" and some of no known date" if undated else "")

    def regimes(self, span: Span) -> tuple[int, int] | None:
        """The numbers of the regimes that held, from the first to the last: several where changes have no step."""
        found = [b.regime.index for b in span.known if b.regime is not None]
        if not found:
            return None
        opened = span.known[-1].regimes
        exact = [g.index for g in opened if g.lower_bound is None]
        if not opened or len(exact) == len(opened):
            return found[-1], found[-1]
        return (exact[-1] if exact else opened[0].index - 1), found[-1]

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

    def value(
        self, span: Span, concept: str, words: Callable[[schemas.Scalar], str] | None = None
    ) -> Value | None:
        """The value of a concept over a span: as held, else as asked for, else as a source reports it.

        `words` says a value; without it as `said` does.
        """
        words = words or said
        if self.imported(span.pieces[0].segment):
            return self._told(span, concept, words)
        return (
            self._held(span, concept, words)
            or self._moved(span, concept, words)
            or self._later(span, concept, words)
            or self._asked(span, concept, words)
        )

    def _told(self, span: Span, concept: str, words: Callable[[schemas.Scalar], str]) -> Value | None:
        """What a source reports, and what configs say besides it."""
        known = self._boundaries(span, concept)
        own = known[-1] if known else []
        carried = [s for steps in known[:-1] for s in steps]
        found = told(carried, own, self._next(span, concept), words)
        asked = self._asked(span, concept, words, aside=_keys([*carried, *own]))
        if found is None or asked is None:
            return found or asked
        if not any(s.change.keys for s in [*carried, *own]):
            return found
        return Value(f"{found.text}; {asked.text}", found.how, found.at)

    def _boundaries(self, span: Span, concept: str) -> list[list[Step]]:
        """The changes of a concept at each boundary up to a span, oldest first; the last is the span's own."""
        return [
            [Step(c, r) for r in b.drifts for c in r.payload.changes if c.concept == concept]
            for b in span.known
        ]

    def _next(self, span: Span, concept: str) -> Step | None:
        """The next change of a concept on the path after a span."""
        known = {r.id for b in span.known for r in b.drifts}
        for stretch in span.path:
            for r in sorted(self.drifts.get(stretch.segment, ()), key=lambda r: r.payload.from_step):
                if stretch.upto is not None and r.payload.from_step > stretch.upto:
                    break
                change = next((c for c in r.payload.changes if c.concept == concept), None)
                if change is not None and r.id not in known:
                    return Step(change, r)
        return None

    def _held(self, span: Span, concept: str, words: Callable[[schemas.Scalar], str]) -> Value | None:
        """The regime's value, else the newest live value of the segment."""
        piece = span.pieces[0]
        regimes = [b.regime for b in span.known if b.regime is not None]
        if regimes and concept in regimes[-1].values:
            return _plain(regimes[-1].values[concept], "effective", words)
        for change, record in self._changes(span, concept):
            if record.segment == piece.segment and change.effective_after is not None:
                return _plain(change.effective_after, "effective", words)
        for p in span.pieces:
            mine = self.by_segment.get(p.segment, [])
            effective = latest(mine, "effective", p.segment)
            if effective is not None and concept in effective.payload.values:
                return _plain(effective.payload.values[concept].value, "effective", words)
        return None

    def _moved(self, span: Span, concept: str, words: Callable[[schemas.Scalar], str]) -> Value | None:
        """What the newest change of the concept on the path made of it."""
        for change, _ in self._changes(span, concept):
            if change.effective_after is not None:
                return _plain(change.effective_after, "effective", words)
            after = change.requested_after
            if after is not None and after.type != "null":
                one = after if is_main(change.keys, concept) else None
                return Value(keyed(change.keys, words(after)), "requested", one=one)
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

    def _later(self, span: Span, concept: str, words: Callable[[schemas.Scalar], str]) -> Value | None:
        """What the next change says that it was before, where no earlier one is known."""
        if self._changes(span, concept):
            return None
        later = self._next(span, concept)
        if later is None or later.before is None:
            return None
        return told([], [], later, words)

    def _asked(
        self,
        span: Span,
        concept: str,
        words: Callable[[schemas.Scalar], str],
        aside: frozenset[str] = frozenset(),
    ) -> Value | None:
        """What the newest config up to the span asks for, under its keys; of an imported run, each config of the
        segment in order where they differ. Keys in `aside` are left out."""
        segments = [s.segment for s in span.path]
        here = segments[: segments.index(span.pieces[-1].segment) + 1]
        for segment in reversed(here):
            newest = latest(self.by_segment.get(segment, []), "config", segment)
            if newest is None:
                continue
            configs = [newest]
            if self.imported(segment):
                configs = [r for r in self.by_segment[segment] if r.kind == "config"]
            found = [_of_concept(r.payload, concept, aside) for r in configs]
            if not any(found):
                continue
            texts = [_pairs(keys, words) for keys in found]
            texts = [t for t, before in zip(texts, [None, *texts], strict=False) if t != before]
            one = None
            if len(texts) == 1 and len(found[-1]) == 1 and is_main(list(found[-1]), concept):
                one = next(iter(found[-1].values()))
            return Value(", then ".join(texts), "requested", one=one)
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
        whole = self.value(span, "global_batch", _thousands)
        parts = [self.value(span, c) for c in ("micro_batch", "grad_accum", "world_size")]
        held = [p for p in parts if p is not None]
        whole_of = _product([p.one for p in held]) if len(held) == len(parts) else None
        if whole is None:
            if whole_of is not None and all(p.how == held[0].how for p in held):
                return Value(f"{whole_of:,}", "computed", one=schemas.Scalar.of(whole_of))
            return None
        inside = f" ({' x '.join(p.text for p in held)})" if whole_of is not None else ""
        return replace(whole, text=whole.text + inside)

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


def _plain(value: schemas.Scalar, how: How, words: Callable[[schemas.Scalar], str]) -> Value:
    return Value(words(value), how, one=value)


def _keys(steps: Sequence[Step]) -> frozenset[str]:
    return frozenset(k for s in steps for k in s.change.keys)


def _of_concept(config: schemas.Config, concept: str, aside: frozenset[str]) -> dict[str, schemas.Scalar]:
    """The keys of a config that carry a concept."""
    catalogue = schemas.catalogue()
    return {
        k: v
        for k, v in config.values.items()
        if k not in aside and (known := catalogue.of_key(k)) is not None and known.id == concept
    }


def _pairs(keys: Mapping[str, schemas.Scalar], words: Callable[[schemas.Scalar], str]) -> str:
    shown = [keyed([k], explained(k, v, words)) for k, v in list(keys.items())[:4]]
    more = f", and {len(keys) - 4} more keys" if len(keys) > 4 else ""
    return ", ".join(shown) + more or NOT_STATED


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


def _thousands(value: schemas.Scalar) -> str:
    n = number(value.text())
    return f"{int(n):,}" if n is not None and math.isfinite(n) and n == int(n) else said(value)


def _product(values: Sequence[schemas.Scalar | None]) -> int | None:
    numbers = [number(v.text()) if v is not None else None for v in values]
    if any(n is None or n != int(n) for n in numbers):
        return None
    return math.prod(int(n) for n in numbers if n is not None)
