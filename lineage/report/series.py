"""The series as a report needs them: points to judge, and curves to draw."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..judge.firstbad import ORDER, Point
from ..ledger.reader import Ledger

MOST_VALUES = 1_000_000
"""Above this many recorded values only the ranks that raised alarms, and the lowest one, are read."""

MOST_POINTS = 2_000
"""Points of one drawn line; a screen has no more columns."""

SIGNALS = (*ORDER, "lr")


@dataclass(frozen=True)
class Consumed:
    """What the batches of one segment add up to, over the ranks that recorded them."""

    samples: Mapping[int, int]
    """step -> samples of that step"""
    tokens: Mapping[int, int]
    ranks: int


@dataclass(frozen=True)
class Curves:
    """All recorded values: segment -> signal -> rank -> step -> value."""

    values: Mapping[str, Mapping[str, Mapping[int, Mapping[int, float]]]] = field(default_factory=dict)
    left_out: str | None = None
    """which ranks were not read, in words"""

    def points(self) -> list[Point]:
        """The values of the judged signals."""
        return [
            Point(segment, rank, step, signal, value)
            for segment, signals in self.values.items()
            for signal, ranks in signals.items()
            if signal in ORDER
            for rank, steps in ranks.items()
            for step, value in steps.items()
        ]

    def of(self, segment: str, signal: str) -> Mapping[int, Mapping[int, float]]:
        """rank -> step -> value."""
        return self.values.get(segment, {}).get(signal, {})

    def mean(self, segment: str, signal: str) -> dict[int, float]:
        """step -> mean over the recorded ranks; a step with any non-finite rank is not finite."""
        sums: dict[int, list[float]] = defaultdict(list)
        for steps in self.of(segment, signal).values():
            for step, value in steps.items():
                sums[step].append(value)
        return {step: sum(v) / len(v) for step, v in sorted(sums.items())}

    def steps(self, segment: str) -> list[int]:
        """All steps of which any value is recorded, in order."""
        found = self.values.get(segment, {})
        return sorted({s for ranks in found.values() for steps in ranks.values() for s in steps})


def read(ledger: Ledger) -> Curves:
    """Read the recorded values of all writers."""
    table = ledger.series("probes", ["segment", "rank", "step", "signal", "value"])
    left_out = None
    if table.num_rows > MOST_VALUES:
        table, left_out = _fewer(ledger, table)
    values: dict[str, dict[str, dict[int, dict[int, float]]]] = {}
    columns = [table.column(c).to_pylist() for c in ("segment", "rank", "step", "signal", "value")]
    for segment, rank, step, signal, value in zip(*columns, strict=True):
        if signal in SIGNALS and value is not None:
            values.setdefault(segment, {}).setdefault(signal, {}).setdefault(rank, {})[step] = value
    return Curves(values, left_out)


def _fewer(ledger: Ledger, table: Any) -> tuple[Any, str]:
    """Keep the ranks that raised alarms and the lowest one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ranks = sorted(set(table.column("rank").unique().to_pylist()))
    keep = sorted({ranks[0], *(r.rank for r in ledger.of("alarm"))})
    text = (
        f"{table.num_rows:,} values are recorded; those of {len(keep):,} of {len(ranks):,} ranks were read "
        "here (the lowest one and those that raised alarms)"
    )
    return table.filter(pc.is_in(table.column("rank"), pa.array(keep, table.schema.field("rank").type))), text


def consumed(ledger: Ledger) -> dict[str, Consumed]:
    """Samples and tokens of each step, by segment."""
    table = ledger.series("batches", ["segment", "rank", "step", "samples", "tokens"])
    if table.num_rows == 0:
        return {}
    sums = table.group_by(["segment", "step"]).aggregate([("samples", "sum"), ("tokens", "sum")])
    ranks = table.group_by("segment").aggregate([("rank", "count_distinct")]).to_pylist()
    samples: dict[str, dict[int, int]] = defaultdict(dict)
    tokens: dict[str, dict[int, int]] = defaultdict(dict)
    for row in sums.to_pylist():
        samples[row["segment"]][row["step"]] = row["samples_sum"] or 0
        tokens[row["segment"]][row["step"]] = row["tokens_sum"] or 0
    return {
        r["segment"]: Consumed(samples[r["segment"]], tokens[r["segment"]], r["rank_count_distinct"])
        for r in ranks
    }


def thin(line: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """Thin a line for drawing: of each bucket of steps the lowest and the highest value stay, so spikes do.

    Non-finite values are no part of a line; `non_finite` lists them.
    """
    finite = [(s, v) for s, v in line if math.isfinite(v)]
    if len(finite) <= most:
        return finite
    size = math.ceil(len(finite) / (most // 2))
    kept: dict[int, float] = {}
    for i in range(0, len(finite), size):
        bucket = finite[i : i + size]
        for pick in (min, max):
            step, value = pick(bucket, key=lambda p: p[1])
            kept[step] = value
    return sorted(kept.items())


def non_finite(line: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The steps whose value a line cannot show."""
    return [(s, v) for s, v in line if not math.isfinite(v)]
