"""The order in which a step is executed, and the words for what is executed."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .._rooms import schemas
from . import rank_sets

ORDER = {
    "activation": 0,
    "loss": 1,
    "gradient": 2,
    "grad_norm_local": 3,
    "grad_norm": 4,
    "moment1": 5,
    "moment2": 6,
    "update": 7,
    "weight": 8,
}
"""Signal, or kind of row of the tensors -> its place in a step: forward pass, loss, backward pass (this rank's own
gradients as they arrive, then their norm), reduction, and what the update leaves."""
SIGNALS = ("loss", "grad_norm_local", "grad_norm")
"""Those that are values of the series; the others are rows of the tensors."""
REPLICA, EVALUATION = "replica:", "evaluation:"
"""Prefixes of signals whose rest is a name: a tensor that replicas hold, a key that an evaluation gave."""

LOCAL = ("activation", "loss", "gradient", "grad_norm_local")
"""What a rank has of its own, before anything of other ranks is mixed in by data parallelism."""
STATE = ("moment1", "moment2", "update", "weight")
"""What stands after the update."""

NAMES = {
    "activation": "output",
    "loss": "loss",
    "gradient": "gradient before the reduction",
    "grad_norm_local": "gradient norm before the reduction",
    "grad_norm": "reduced gradient norm",
    "moment1": "first moment",
    "moment2": "second moment",
    "update": "update",
    "weight": "weight",
}


def place(signal: str) -> int:
    """The place of a signal within a step; replicas are compared after it, an evaluation comes last."""
    if signal.startswith(REPLICA):
        return 20
    if signal.startswith(EVALUATION):
        return 40
    return ORDER.get(signal, 30)


def name(signal: str) -> str:
    """A signal in words."""
    for prefix, what in ((REPLICA, "replicas of"), (EVALUATION, "evaluation")):
        if signal.startswith(prefix):
            return f"{what} {signal.removeprefix(prefix)}"
    return NAMES.get(signal, signal.replace("_", " "))


def key(c: schemas.Cell) -> tuple[int, int, bool, int, int]:
    """What cells are sorted by: step, place in the step, non-finite before out of range, arrival, rank.

    Values that say the same of one place (a rank that is not finite beside one that is high) are parted by what is
    certain before they are by when they arrived.
    """
    order = c.order if c.order is not None else (1 << 30)
    return c.step, place(c.signal), c.abnormal != "non_finite", order, c.rank


def same_place(a: schemas.Cell, b: schemas.Cell) -> bool:
    """Whether nothing in the order tells two cells apart but their rank."""
    return key(a)[:4] == key(b)[:4]


def is_certain(c: schemas.Cell) -> bool:
    """Whether a cell can begin something by itself: all but a layer that is out of range (docs/detectors.md)."""
    return c.abnormal != "out_of_range" or c.signal not in (*STATE, "gradient", "activation")


def ranks(found: Iterable[int], most: int = 8) -> str:
    """`rank 3`, `ranks 0-7, 12 and 4 more`: neighbours joined."""
    runs = rank_sets.runs(found)
    parts = []
    for a, b in runs[:most]:
        parts += [f"{a}"] if a == b else [f"{a}", f"{b}"] if b == a + 1 else [f"{a}-{b}"]
    left = sum(b - a + 1 for a, b in runs[most:])
    text = ", ".join(parts) + (f" and {left:,} more" if left else "")
    one = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"rank{'' if one else 's'} {text}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    found = list(dict.fromkeys(names))
    return ", ".join(found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")


def number(x: float) -> str:
    """A measured value: NaN and infinities by their names."""
    return f"{x:.4g}" if math.isfinite(x) else str(schemas.float_to_json(x))
