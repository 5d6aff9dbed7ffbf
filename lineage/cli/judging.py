"""Today's judgement of a ledger, made from its records as the live flag was."""

from __future__ import annotations

from collections.abc import Iterable

from .._rooms import schemas
from ..judge import layers, validity
from ..ledger import tensors as tensors_
from . import common
from .common import Subject


def first_bads(subject: Subject) -> dict[str, schemas.FirstBad]:
    """The first bad cell of each segment that has one, from the series, the rows of tensors and the alarms together."""
    return subject.cells.first_bads


def tensors(subject: Subject, cell: schemas.Cell) -> list[str]:
    """What the rows of tensors show of a bad cell, in words; empty where its rank recorded none of that step."""
    bring = getattr(subject.ledger, "bring", None)
    if bring is not None:  # of a big ledger in a store
        bring("tensors", cell.segment, cell.rank)
    found = tensors_.around(
        subject.ledger.path, cell.segment, cell.rank, cell.step - layers.BEFORE, cell.step
    )
    return layers.at_step(found, cell.step)


def tips(subject: Subject) -> list[str]:
    """The segments that nothing goes on from, oldest first: the ends of all branches."""
    return subject.graph.tips()


def damage(subject: Subject) -> list[str]:
    """What of a ledger could not be read, place by place; a torn last line was never acknowledged."""
    return common.damage(subject.ledger)


def verdict(subject: Subject, segment: str | None = None) -> schemas.Verdict:
    """Today's verdict of the checkpoint that was named, or of a segment's newest state."""
    return validity.verdict(
        subject.ledger.records,
        segment=segment,
        checkpoint=subject.checkpoint,
        bad=first_bads(subject),
        graph=subject.graph,
        damage=damage(subject),
    )


def recorded(subject: Subject, segment: str) -> schemas.Verdict | None:
    """The last verdict that was written for a segment while it ran."""
    found = [r.payload for r in subject.ledger.of("verdict", segment)]
    return found[-1] if found else None


def differs(a: schemas.Verdict | None, b: schemas.Verdict) -> list[str]:
    """Claims that a recorded verdict and today's judge otherwise."""
    if a is None:
        return []
    old = {c.claim: c.status for c in a.claims}
    return [c.claim for c in b.claims if old.get(c.claim) not in (None, c.status)]


def worst_of(found: Iterable[schemas.Verdict]) -> schemas.Status:
    """The worst status of several verdicts."""
    return validity.worst(v.status for v in found)
