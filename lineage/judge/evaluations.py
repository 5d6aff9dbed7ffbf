"""Abnormal values of evaluations: apart from training, since an evaluator has faults of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .._rooms import schemas
from .cells import Point
from .detectors import LOSS, Detector
from .execution import EVALUATION, number
from .series_names import LOSS as LOSS_WORDS
from .series_names import words

EVALUATING = frozenset(
    ("eval", "evaluation", "val", "valid", "validation", "test", "dev", "holdout", "heldout")
)
"""Words by which a logged key says that it is of an evaluation."""


def is_evaluation(key: str) -> bool:
    """Whether a logged key names a value of an evaluation."""
    return bool(EVALUATING & set(words(key)))


def cells(points: Iterable[Point]) -> list[schemas.Cell]:
    """The abnormal values of evaluations under their logged keys: losses are judged, others only have to be finite."""
    detectors: dict[tuple[str, int, str], Detector] = {}
    out = []
    for p in sorted(points, key=lambda p: (p.segment, p.step, p.signal, p.rank)):
        usual = None
        abnormal = "non_finite"
        if LOSS_WORDS & set(words(p.signal)):
            found = detectors.setdefault((p.segment, p.rank, p.signal), Detector(LOSS)).update(p.value)
            if found is None or found.abnormal not in ("non_finite", "out_of_range"):
                continue
            abnormal, usual = found.abnormal, found.baseline
        elif math.isfinite(p.value):
            continue
        was = f", {usual:.4g} was usual" if usual is not None and abnormal == "out_of_range" else ""
        out.append(
            schemas.Cell(
                segment=p.segment,
                rank=p.rank,
                step=p.step,
                signal=f"{EVALUATION}{p.signal}",
                abnormal=abnormal,
                value=p.value,
                text=f"evaluation {p.signal} is {number(p.value)}{was}",
            )
        )
    return out
