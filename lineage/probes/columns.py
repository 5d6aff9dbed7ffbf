"""The layout of a row of statistics: one tensor read once.

A row is nine float64 on the device where the tensor lies. Counts are exact up to 2^53. The last two columns
hold the bits of int64: the lanes of the exact digest (`lineage.capture.digest`), zero where none was asked for.

A row whose `READ` is zero was not read: absent is not zero.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

SUMSQ, LARGEST, LOWEST, N_NAN, N_POSINF, N_NEGINF, READ, LANE0, LANE1 = range(9)
WIDTH = 9
HEADINGS = (
    "sum of squares",
    "largest",
    "lowest",
    "n_nan",
    "n_posinf",
    "n_neginf",
    "elements",
    "lane 0",
    "lane 1",
)


@dataclass(frozen=True)
class Stats:
    """One row on the host."""

    elements: int
    """how many elements were read"""
    sumsq: float
    """sum of squares of the finite elements"""
    largest: float
    """largest magnitude of the finite elements"""
    lowest: float
    """the lowest finite element where that is negative, else zero: below zero in a second moment is a fault"""
    n_nan: int
    n_posinf: int
    n_neginf: int
    lanes: tuple[int, int] | None = None
    """the digest's lanes as signed int64, where they were asked for"""

    @property
    def finite(self) -> bool:
        """Whether every element is finite."""
        return self.n_nan + self.n_posinf + self.n_neginf == 0

    @property
    def norm(self) -> float:
        """L2 norm of all elements, as arithmetic would give it: NaN with a NaN, else infinity with an infinity."""
        if self.n_nan:
            return math.nan
        return math.inf if self.n_posinf + self.n_neginf else math.sqrt(self.sumsq)

    @property
    def norm_of_finite(self) -> float:
        """L2 norm of the finite elements: what the rest of the tensor was when some of it broke."""
        return math.sqrt(self.sumsq)


def stats(row: Sequence[float], *, digest: bool = False) -> Stats | None:
    """Read one row of float64; None where it was not read."""
    if not row[READ]:
        return None
    lanes = struct.unpack("<2q", struct.pack("<2d", row[LANE0], row[LANE1])) if digest else None
    return Stats(
        elements=int(row[READ]),
        sumsq=row[SUMSQ],
        largest=row[LARGEST],
        lowest=row[LOWEST],
        n_nan=int(row[N_NAN]),
        n_posinf=int(row[N_POSINF]),
        n_neginf=int(row[N_NEGINF]),
        lanes=lanes,
    )
