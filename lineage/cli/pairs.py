"""Comparing two runs or checkpoints, also of different ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .._rooms import schemas
from ..judge import pairs
from . import joining
from .joining import Named


def compare(a: Named, b: Named, more: Iterable[Path] = ()) -> pairs.Comparison:
    """Judge B against A. `more` are folders of further ledgers to look in."""
    world = joining.world([a, b], more)
    return pairs.compare(world, joining.branch(world, a), joining.branch(world, b))


def pair_verdict(subject: Named, against: Named) -> schemas.Verdict:
    """What may be concluded from comparing a run with another."""
    return compare(against, subject).verdict
