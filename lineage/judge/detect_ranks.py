"""One rank against the others at the same step: no history is needed, so the first step can be judged.

Data parallel ranks compute the same thing on different samples. A rank is odd when its value lies farther above
the median of all ranks than `sigmas` robust deviations (1.4826 times the median absolute deviation of the same
step), and by at least a factor. Few ranks estimate a deviation badly: theirs is mixed with what is usual between
ranks, which counts as `prior` ranks, and the bound is widened by 1 + few/n. Many ranks have a far tail: beyond
`many` of them the bound grows as n**(1/tail), as the largest of n values with a power tail does (norms of ranks
in real training have the tails of Student's t with some seven degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from .detectors import Abnormal, Plain, parameters_of


@dataclass(frozen=True)
class RanksRule:
    """The parameters of the comparison of ranks; recorded with each finding."""

    name: str
    sigmas: float = 7.0
    few: float = 1.0
    """`sigmas` is widened by 1 + few / ranks"""
    many: int = 8
    """beyond this many ranks, `sigmas` grows"""
    tail: float = 6.0
    """it grows as (ranks / many) ** (1 / tail)"""
    least_factor: float = 3.0
    """least ratio to the median of the ranks"""
    usual_scale: float = 0.25
    """deviation between ranks that is usual, in nats"""
    prior: float = 16.0
    """how many ranks the usual deviation counts as"""
    least_scale: float = 0.02
    """least deviation between ranks, in nats"""
    minimum: int = 3
    """ranks below which none can be told from the others"""

    def parameters(self) -> dict[str, Plain]:
        """The rule as plain values."""
        return parameters_of(self)


RANKS = {
    "loss": RanksRule("loss-ranks/1", least_factor=1.5, usual_scale=0.12),
    "grad_norm_local": RanksRule("norm-ranks/1"),
}
"""Signals that each rank has of its own; a reduced norm is the same on all."""


@dataclass(frozen=True)
class RanksFinding:
    """The ranks that are unlike the others at one step."""

    abnormal: Abnormal
    ranks: tuple[int, ...]
    """odd ranks, the farthest first; non-finite ones in order"""
    value: float
    """the first one's value"""
    median: float | None
    """median of the finite values of all ranks"""
    threshold: float | None
    of: int
    detector: Mapping[str, Plain] = field(default_factory=dict)


def odd_ranks(signal: str, values: Mapping[int, float]) -> list[RanksFinding]:
    """Compare the ranks' values of one step. Signals without a rule, and too few ranks, give nothing.

    Where some ranks are not finite and others are, those ranks are named; where none is finite, the ranks do
    not differ, and nothing is said here. Values that are not positive have no logarithm and are left out.
    """
    rule = RANKS.get(signal)
    if rule is None or len(values) < rule.minimum:
        return []
    xs = {r: math.log(v) for r, v in values.items() if math.isfinite(v) and v > 0.0}
    centre = median(xs.values()) if xs else None
    out = []
    broken = tuple(sorted(r for r, v in values.items() if not math.isfinite(v)))
    if broken and len(broken) < len(values):
        middle = None if centre is None else math.exp(centre)
        out.append(
            RanksFinding(
                "non_finite", broken, values[broken[0]], middle, None, len(values), rule.parameters()
            )
        )
    if centre is None or len(xs) < rule.minimum:
        return out
    bound = centre + max(
        _sigmas(rule, len(xs)) * _scale(rule, xs, centre),
        math.log(rule.least_factor),
    )
    odd = sorted((r for r, x in xs.items() if x > bound), key=lambda r: xs[r], reverse=True)
    if odd:
        out.append(
            RanksFinding(
                "out_of_range",
                tuple(odd),
                values[odd[0]],
                math.exp(centre),
                math.exp(min(bound, 700.0)),
                len(values),
                rule.parameters(),
            )
        )
    return out


def _scale(rule: RanksRule, xs: Mapping[int, float], centre: float) -> float:
    seen = 1.4826 * median(abs(x - centre) for x in xs.values())
    n, prior = len(xs), rule.prior
    mixed = math.sqrt((n * seen**2 + prior * rule.usual_scale**2) / (n + prior))
    return max(mixed, rule.least_scale)


def _sigmas(rule: RanksRule, n: int) -> float:
    wide: float = max(1.0, n / rule.many) ** (1.0 / rule.tail)
    return rule.sigmas * (1.0 + rule.few / n) * wide
