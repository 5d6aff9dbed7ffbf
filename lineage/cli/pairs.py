"""Comparing two runs or checkpoints, also of different ledgers."""

from __future__ import annotations

from .._rooms import schemas
from ..judge import drift as drift_
from ..judge import pairs
from ..judge.graph import latest
from . import judging
from .common import Subject


def side(subject: Subject) -> pairs.PairSide:
    """What is known of one side: its first segment's conditions, its verdict, and its path."""
    graph, records = subject.graph, subject.ledger.records
    tip = subject.tip
    path = graph.path_to(subject.checkpoint) if subject.checkpoint else graph.path_to_segment(tip)
    first = path[0].segment if path else tip

    def payload(kind: str) -> object:
        found = latest(records, kind, first)
        return found.payload if found else None

    settled = [r for r in records if r.kind != "effective" or r.payload.moment == "after_first_step"]
    held = latest(settled, "effective", first, first=True)
    effective = held.payload if held else None
    start = latest(records, "effective", first, first=True)
    return pairs.PairSide(
        name=f"checkpoint:{subject.checkpoint}" if subject.checkpoint else f"run:{subject.ledger.run}",
        side=drift_.Side(
            config=payload("config"),  # type: ignore[arg-type]
            effective=effective,
            code=payload("code"),  # type: ignore[arg-type]
            environment=payload("environment"),  # type: ignore[arg-type]
            lr_ahead=dict(start.payload.lr_ahead) if start else {},
        ),
        verdict=judging.verdict(subject, None if subject.checkpoint else tip),
        first_segment=first,
    )


def pair_drift(a: Subject, b: Subject) -> schemas.Drift:
    """What differs between the beginnings of two runs."""
    return pairs.drift(side(a), side(b))


def pair_verdict(subject: Subject, against: Subject) -> schemas.Verdict:
    """What may be concluded from comparing a run with another."""
    return pairs.verdict(side(subject), side(against))
