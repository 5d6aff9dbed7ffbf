"""Which samples of a batch stand out by their own loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .._rooms import schemas

MOST = 8
"""Samples that are named."""
SIGMAS = 8.0
"""Robust deviations (1.4826 times the median absolute one) above the batch's median, and at least twice the median."""
FACTOR = 2.0
LEAST = 4
"""Finite samples below which none can be told from the others."""


@dataclass(frozen=True)
class SampleLoss:
    """One sample's loss, as the loop gave it."""

    micro: int
    place: int
    sample: str | None
    digest: str | None
    loss: float


def judge(found: Sequence[SampleLoss]) -> list[schemas.BadSample]:
    """The samples that are not finite; where there are none, those far above the others of the step.

    A sample that is not finite makes its batch so. One that is high may be the cause of a high loss, or the hardest of
    many: its distance is stated, and no cause.
    """
    broken = [s for s in found if not math.isfinite(s.loss)]
    finite = [s for s in found if math.isfinite(s.loss)]
    out = [_said(s, f"loss is {schemas.float_to_json(s.loss)}", len(found)) for s in broken[:MOST]]
    if broken or len(finite) < LEAST:
        return out  # what is high beside a sample that is not finite is the hardest of many
    centre = median(s.loss for s in finite)
    scale = 1.4826 * median(abs(s.loss - centre) for s in finite)
    bound = max(centre + SIGMAS * max(scale, 1e-12), FACTOR * centre)
    high = sorted((s for s in finite if s.loss > bound), key=lambda s: s.loss, reverse=True)
    return [
        _said(s, f"loss is {s.loss:.4g}, the median of the batch is {centre:.4g}", len(found))
        for s in high[:MOST]
    ]


def _said(s: SampleLoss, what: str, of: int) -> schemas.BadSample:
    name = f" ({s.sample})" if s.sample else ""
    return schemas.BadSample(
        micro=s.micro,
        place=s.place,
        sample=s.sample,
        digest=s.digest,
        loss=s.loss,
        text=f"sample {s.place} of micro-batch {s.micro}{name}: {what}; {of:,} samples have a loss of their own here",
    )
