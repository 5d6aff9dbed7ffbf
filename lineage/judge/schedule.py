"""Comparing two schedules by what they predict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def same_future(
    old: Mapping[int, Sequence[float]], new: Mapping[int, Sequence[float]], *, relative: bool = False
) -> tuple[bool | None, int | None]:
    """Compare two predictions at the steps that both have.

    With `relative`, each side is divided by its own value at the first common step, so that a changed peak
    alone does not count as another schedule. Returns (equal or None where no step is common, first step
    that differs).
    """
    common = sorted(set(old) & set(new))
    if not common:
        return None, None
    for step in common:
        a, b = old[step], new[step]
        if relative:
            a, b = _ratio(a, old[common[0]]), _ratio(b, new[common[0]])
        if len(a) != len(b) or any(
            not math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-15) for x, y in zip(a, b, strict=True)
        ):
            return False, step
    return True, None


def _ratio(values: Sequence[float], by: Sequence[float]) -> list[float]:
    return [v / b if b else v for v, b in zip(values, by, strict=False)]
