"""Which of the layer's own signals a logged series shows: its definition, its scope, and what it leaves out at NaN."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .._rooms import schemas
from .series_shape import Logged, finding, grid, spans

LEAST = 10
"""Rows that are compared at least."""
SHARE = 0.9
"""Share of them that agree in a match."""
APART = 0.5
"""At most this share agrees with what the series is said not to be."""
MOST = 2_000
"""Rows that are compared at most, spread over the series."""
TOLERANCE = 1e-4
"""Relative difference of two readings of one value; a coarser grid of the logged one counts too."""
CLIPPED = 0.2
"""Share of rows at the threshold in a norm that was taken after clipping."""
WORDS = {
    "loss": "this rank's loss",
    "loss of all ranks": "the mean loss over the ranks",
    "grad_norm_local": "this rank's gradient norm before the reduction",
    "grad_norm": "the gradient norm after the reduction, before clipping",
    "clipped": "the gradient norm after clipping",
}
SIGNALS: tuple[str, ...] = ("loss", "grad_norm_local", "grad_norm")


@dataclass(frozen=True)
class Reading:
    """One signal that a series may show, by step."""

    name: str
    at: Mapping[int, float]
    mean_of: int = 1
    """steps over which it is averaged"""


@dataclass
class Match:
    """What a series was found to show."""

    series: Logged
    readings: list[Reading] = field(default_factory=list)
    """those that agree; several where they are the same in this run"""
    apart: frozenset[str] = frozenset()
    """those that it was compared with and is not"""
    offset: int = 0
    """own step minus logged step"""
    factor: float = 1.0
    rows: int = 0

    @property
    def names(self) -> frozenset[str]:
        """The signals that agree."""
        return frozenset(r.name for r in self.readings)

    @property
    def text(self) -> str:
        """The definition in words, or that none is known."""
        if not self.readings:
            return "not shown"
        said = " or ".join(WORDS[r.name] for r in self.readings)
        if self.readings[0].mean_of > 1:
            said += f", averaged over {self.readings[0].mean_of} steps"
        return said if self.factor == 1.0 else f"{self.factor:.4g} times {said}"


def readings(found: Sequence[Logged], rank: int) -> dict[str, dict[int, float]]:
    """The own signals that series of a rank may show, by name."""
    own = {s.key: s.at() for s in found if s.own and s.rank == rank}
    out: dict[str, dict[int, float]] = {k: own[k] for k in SIGNALS if k in own}
    losses = [s.at() for s in found if s.own and s.key == "loss"]
    if len(losses) > 1:
        common = set.intersection(*(set(x) for x in losses))
        out["loss of all ranks"] = {k: statistics.fmean(x[k] for x in losses) for k in common}
    if "grad_norm" in out and "clip_threshold" in own:
        limit = own["clip_threshold"]
        out["clipped"] = {k: min(v, limit[k]) for k, v in out["grad_norm"].items() if k in limit}
    return out


def match(found: Sequence[Logged], s: Logged) -> Match:
    """Compare a logged loss or norm with each own signal of its kind, also one step off, averaged, or by a factor."""
    if s.name is None or s.own:
        return Match(s)
    kind = {"loss": ("loss", "loss of all ranks"), "norm": ("grad_norm_local", "grad_norm", "clipped")}
    own = {k: v for k, v in readings(found, s.rank).items() if k in kind.get(s.name.kind, ())}
    stride = _stride(s.steps)
    for mean_of in (1, stride) if stride > 1 else (1,):
        for offset in (0, -1, 1):
            shares = {k: _agree(s, v, offset, mean_of) for k, v in own.items()}
            good = [k for k, (share, rows) in shares.items() if share >= SHARE and rows >= LEAST]
            if good:
                apart = frozenset(
                    k for k, (share, rows) in shares.items() if share <= APART and rows >= LEAST
                )
                rows = max(shares[k][1] for k in good)
                return Match(s, [Reading(k, own[k], mean_of) for k in good], apart, offset, rows=rows)
    if s.name.kind == "loss" and "loss" in own:
        for offset in (0, -1, 1):
            factor, rows = _factor(s, own["loss"], offset)
            if factor is not None:
                return Match(s, [Reading("loss", own["loss"])], offset=offset, factor=factor, rows=rows)
    return Match(s)


def _stride(steps: Sequence[int]) -> int:
    gaps = Counter(b - a for a, b in pairwise(steps) if b > a)
    return gaps.most_common(1)[0][0] if gaps else 1


def _spread(s: Logged) -> list[tuple[int, float]]:
    """(step, value) of the rows that are compared."""
    every = max(1, len(s.steps) // MOST)
    return list(zip(s.steps[::every], s.values[::every], strict=True))


def _agree(s: Logged, own: Mapping[int, float], offset: int, mean_of: int) -> tuple[float, int]:
    """(share of compared rows that agree, how many were compared)."""
    coarse = 0.51 * grid(s.values)[0]
    good = rows = 0
    for step, v in _spread(s):
        inside = [own.get(step + offset - i, math.nan) for i in range(min(mean_of, 1000))]
        o = sum(inside) / len(inside)
        if math.isfinite(v) and math.isfinite(o):
            rows += 1
            good += abs(v - o) <= max(TOLERANCE * abs(o), coarse, 1e-12)
    return (good / rows if rows else 0.0), rows


def _factor(s: Logged, own: Mapping[int, float], offset: int) -> tuple[float | None, int]:
    """A constant factor between the two, other than 1; None where there is none."""
    ratios = [
        v / own[step + offset]
        for step, v in _spread(s)
        if math.isfinite(v) and math.isfinite(own.get(step + offset, math.nan)) and own[step + offset] != 0.0
    ]
    if len(ratios) < LEAST or len(set(s.values)) < LEAST:
        return None, 0
    middle = statistics.median(ratios)
    near = sum(abs(r - middle) <= 1e-3 * abs(middle) for r in ratios)
    return (
        (middle, len(ratios))
        if near >= SHARE * len(ratios) and abs(middle - 1) > 0.01 and middle > 0
        else (None, 0)
    )


def scope(m: Match) -> Iterator[schemas.Finding]:
    """A name that says global on a value of one rank, or local on a reduced one; and what a neutral name means."""
    s, name = m.series, m.series.name
    if name is None or not m.readings:
        return
    pairs = {"loss": "loss of all ranks", "grad_norm_local": "grad_norm"}
    local, reduced = next((p for p in pairs.items() if set(p) & (m.names | m.apart)), ("", ""))
    compared = {"rows_compared": m.rows, "share": SHARE, "tolerance": TOLERANCE}
    if local in m.names and reduced in m.apart:
        if name.scope == "global":
            yield finding(
                "series-scope/1",
                "LIN-S007",
                "warning",
                s,
                f"its name says global, and it is {WORDS[local]} in {m.rows:,} rows, not {WORDS[reduced]}",
                "reduce it before it is logged, or give it the rank's name: other ranks may look otherwise",
                **compared,
            )
        elif name.scope is None:
            yield _definition(m, f"it is {m.text}; other ranks differ")
    elif name.scope == "local" and reduced in m.names and local in m.apart:
        yield finding(
            "series-scope/1",
            "LIN-S007",
            "warning",
            s,
            f"its name says local, and it is {WORDS[reduced]} in {m.rows:,} rows",
            "log it before the reduction: a rank that breaks alone does not show in it",
            **compared,
        )


def definition(m: Match) -> Iterator[schemas.Finding]:
    """A definition that its name does not say: after clipping, or by a constant factor."""
    if m.names == {"clipped"} and "grad_norm" in m.apart:
        yield _definition(m, f"it is {m.text}: never above the threshold, so no spike shows in it")
    elif m.factor != 1.0:
        yield _definition(
            m, f"it is {m.text} in {m.rows:,} rows, as where it is divided by the accumulation steps"
        )


def _definition(m: Match, text: str) -> schemas.Finding:
    return finding(
        "series-definition/1",
        "LIN-S008",
        "note",
        m.series,
        text,
        "compare it only with series of the same definition",
        rows_compared=m.rows,
        factor=m.factor,
        share=SHARE,
        tolerance=TOLERANCE,
    )


def at_threshold(s: Logged, thresholds: Sequence[float]) -> Iterator[schemas.Finding]:
    """Without an own signal: a norm that often is a clip threshold in effect, and never above it."""
    finite = [v for v in s.values if math.isfinite(v)]
    if s.name is None or s.name.kind != "norm" or not s.name.main or s.own or len(finite) < 2 * LEAST:
        return
    for limit in thresholds:
        if limit <= 0 or max(finite) > limit * (1 + TOLERANCE):
            continue
        there = sum(v >= limit * (1 - 1e-3) for v in finite)
        if there >= max(LEAST, CLIPPED * len(finite)):
            yield finding(
                "series-definition/1",
                "LIN-S008",
                "note",
                s,
                f"never above the clip threshold {limit:g}, and at it in {there:,} of {len(finite):,} rows: it is "
                "taken after clipping, so no spike shows in it",
                "log the norm that clip_grad_norm_ returns, which is the one before clipping",
                threshold=limit,
                at_threshold=there,
                share=CLIPPED,
            )
            return


def hidden(found: Sequence[Logged], m: Match) -> Iterator[schemas.Finding]:
    """Where the own signal is not finite: rows that are absent or finite in the logged series."""
    s, name = m.series, m.series.name
    if name is None or not name.main or s.own or not s.steps:
        return
    own = m.readings[0] if m.readings else _of_its_kind(found, s)
    if own is None:
        return
    logged = s.at()
    bad = sorted(k - m.offset for k, v in own.at.items() if not math.isfinite(v))
    bad = [k for k in bad if min(s.steps) < k <= max(s.steps)]
    # Where no row shows how the two are numbered, both neighbours must be finite too.
    beside = (0,) if m.readings else (-1, 0, 1)
    finite = [k for k in bad if all(math.isfinite(logged.get(k + i, math.nan)) for i in beside)]
    regular = _stride(s.steps) == 1 and m.readings
    absent = [k for k in bad if k not in logged and (k - 1 in logged or k - 1 in bad)] if regular else []
    if finite:
        yield finding(
            "series-hidden/2",
            "LIN-S006",
            "warning",
            s,
            f"finite at steps {spans(finite, s.steps)}, where {WORDS[own.name]} is not",
            "a filter in front of the log leaves non-finite values out or repeats the last one: switch it off",
            first_step=finite[0],
            lacking=len(finite),
            rows_compared=m.rows,
        )
    if absent:
        yield finding(
            "series-gap/2",
            "LIN-S004",
            "warning",
            s,
            f"absent at steps {spans(absent)}, where {WORDS[own.name]} is not finite",
            "log the value as it is: a field that is left out at NaN looks like a row that was never due",
            first_step=absent[0],
            lacking=len(absent),
            rows_compared=m.rows,
        )


def _of_its_kind(found: Sequence[Logged], s: Logged) -> Reading | None:
    """The own signal that a series shows by its name alone."""
    own = readings(found, s.rank)
    wanted = ("loss",) if s.name and s.name.kind == "loss" else ("grad_norm", "grad_norm_local")
    return next((Reading(k, own[k]) for k in wanted if k in own), None)


def equal_ranks(found: Sequence[Logged]) -> Iterator[schemas.Finding]:
    """Series that say local and are equal on all ranks: they were reduced before."""
    groups: dict[tuple[str, str], list[Logged]] = {}
    for s in found:
        if s.name is not None and not s.own and s.name.scope == "local":
            groups.setdefault((s.by, s.key), []).append(s)
    for members in groups.values():
        by_rank = {s.rank: s.at() for s in members}
        if len(by_rank) < 2:
            continue
        common = set.intersection(*(set(x) for x in by_rank.values()))
        values = [[x[k] for x in by_rank.values()] for k in common]
        values = [row for row in values if all(map(math.isfinite, row))]
        moving = len({row[0] for row in values}) >= LEAST
        if moving and all(len(set(row)) == 1 for row in values):
            yield finding(
                "series-scope/1",
                "LIN-S007",
                "warning",
                members[0],
                f"its name says local, and it is equal on {len(by_rank)} ranks in {len(values):,} rows: it was reduced",
                "log it before the reduction: a rank that breaks alone does not show in it",
                rows_compared=len(values),
                least=LEAST,
            )
