"""Whether the chunks that a tensor was cut into cover it once."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

MOST_PAIRS = 128
"""Chunks of a tensor cut along several axes that are held against each other, each with each."""


def is_size(value: Any) -> bool:
    """Whether a value is a torch.Size: a tuple of ints."""
    return value.__class__ is tuple and all(n.__class__ is int for n in value)


def covers(size: tuple[int, ...], spans: list[tuple[Any, Any]]) -> bool:
    """Whether chunks cover a tensor once: within it, as many elements as it has, and no two overlapping."""
    if any(not is_size(n) or len(a) != len(size) or len(n) != len(size) for a, n in spans):
        return False
    if len(spans) == 1:
        return bool(spans[0][1] == size and not any(spans[0][0]))
    real = [(at, ns) for at, ns in spans if math.prod(ns)]
    if any(a < 0 or a + n > s for at, ns in real for a, n, s in zip(at, ns, size, strict=True)):
        return False
    if sum(math.prod(ns) for _, ns in real) != math.prod(size):
        return False
    cut = [i for i in range(len(size)) if any(ns[i] != size[i] for _, ns in real)]
    if len(cut) == 1:
        i = cut[0]
        rows = sorted((at[i], at[i] + ns[i]) for at, ns in real)
        return all(end == begin for (_, end), (begin, _) in pairwise(rows))
    if len({at for at, _ in real}) != len(real):
        return False
    if len(real) > MOST_PAIRS:
        return True
    return not any(_overlap(a, b) for n, a in enumerate(real) for b in real[n + 1 :])


def _overlap(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    return all(x < y + m and y < x + n for x, n, y, m in zip(a[0], a[1], b[0], b[1], strict=True))
