"""Whether logged series show what happened: dead, stale, coarse, missing, hidden, of another scope or definition.

Judged are training losses and norms of gradients, by the words of their keys, and the layer's own signals; what is
constant by nature (rates, epochs, settings, evaluation) is not. Where the evidence is not enough, nothing is said.
Each finding carries the name and version of its rule and the parameters that it was made with (docs/series_health.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._rooms import schemas
from . import series_gaps, series_match, series_still, series_switches
from .series_match import Match
from .series_shape import OWN, Logged

__all__ = ["OWN", "Health", "Logged", "Match", "check"]


@dataclass
class Health:
    """What the checks say about the series of one segment."""

    findings: list[schemas.Finding] = field(default_factory=list)
    looked_at: list[Match] = field(default_factory=list)
    """each judged series, with what it was found to show"""
    not_judged: list[str] = field(default_factory=list)
    """what there was no time or room for, in words"""


def check(
    series: Sequence[Logged],
    *,
    config: Mapping[str, Any] | None = None,
    thresholds: Sequence[float] = (),
    observed: bool = False,
    go_on: Callable[[], bool] = lambda: True,
) -> Health:
    """Judge the series of one segment, over all its ranks.

    Args:
        series: what was logged, and the layer's own signals (`by="probes"`), in the order of logging.
        config: the config that was asked for, flattened.
        thresholds: clip thresholds that were asked for or in effect.
        observed: the own signals are copies of what was logged, so nothing is learned from comparing them.
        go_on: asked before each series; once it says no, the rest is not judged.
    """
    found = [_where_updated(series, s) if s.own and s.key == "update_norm" else s for s in series]
    copied = [s for s in found if not (observed and s.own)]
    out = Health()
    for s in copied:
        out.findings += series_gaps.replaced(s)
    for s in copied:
        if s.name is None:
            continue
        if not go_on():
            out.not_judged.append(f"{s.said} of rank {s.rank}")
            continue
        told = list(series_still.dead(copied, s))
        told += [] if told else series_still.stale(copied, s)
        told += [] if told else series_still.quantised(s)
        out.findings += [*told, *_lost(copied, s)]
        m = series_match.match(copied, s)
        out.looked_at.append(m)
        out.findings += _compared(copied, m, thresholds)
    out.findings += series_match.equal_ranks(copied)
    out.findings += series_switches.named(config)
    out.findings = _once(out.findings)
    return out


def _lost(found: Sequence[Logged], s: Logged) -> list[schemas.Finding]:
    """Rows that are not there, and values put in place of others."""
    return [*series_gaps.missing(found, s), *series_gaps.frozen_at_nan(found, s)]


def _compared(found: Sequence[Logged], m: Match, thresholds: Sequence[float]) -> list[schemas.Finding]:
    """What the comparison with the own signals shows."""
    told = [*series_match.scope(m), *series_match.definition(m), *series_match.hidden(found, m)]
    if not m.readings:
        told += series_match.at_threshold(m.series, thresholds)
    return told


def _where_updated(found: Sequence[Logged], s: Logged) -> Logged:
    """The norm of updates, without the steps that make none: skipped, held back, at a rate of zero."""
    own = {x.key: x.at() for x in found if x.own and x.rank == s.rank}
    idle = {k for name in ("update_skipped", "update_held_back") for k, v in own.get(name, {}).items() if v}
    idle |= {k for k, v in own.get("lr", {}).items() if v == 0.0}
    kept = [(k, v) for k, v in zip(s.steps, s.values, strict=True) if k not in idle]
    return replace(s, steps=[k for k, _ in kept], values=[v for _, v in kept])


def _once(found: Sequence[schemas.Finding]) -> list[schemas.Finding]:
    """One finding per code and series and rank: the first, which rests on more."""
    out: dict[tuple[Any, ...], schemas.Finding] = {}
    for f in found:
        rank = f.values.get("rank")
        out.setdefault((f.code, *f.names, rank.plain() if rank else None), f)
    return list(out.values())
