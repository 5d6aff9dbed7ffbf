"""What a process shows of the values in effect without its objects: little, and what is missing is said."""

from __future__ import annotations

from .._rooms import schemas
from ..capture import effective
from ..capture.watched import LINES, Watched

UNSEEN = {
    "lr_schedule": f"not given: {LINES['scheduler']}",
    "grad_clip": f"not watched by observation alone: {LINES['optimizer']}",
    "seed": "whether and when the training code seeded was not seen: lineage.attach(run)",
}
"""Concepts of which the process says nothing that two processes could compare -> what would show them.

The seed of torch's generator is among them: without a call of `manual_seed` it is another one each time.
"""


def held(moment: schemas.Moment, step: int) -> schemas.Effective:
    """Read what the process itself shows: world size, kernels, switches."""
    found = effective.capture(Watched(), effective.Seen(), moment, step)
    values = {k: v for k, v in found.values.items() if k not in UNSEEN}
    return found.model_copy(update={"values": values, "unseen": {**found.unseen, **UNSEEN}})
