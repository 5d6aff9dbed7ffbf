"""One read on the CPU: two fast passes over a piece that lies in the cache, a slow one only over broken pieces.

There is no queue to wait for on a CPU, so the values of a piece may decide what is done with it: a piece without
NaN, infinity or extreme magnitude, which is nearly every one, is done after its norm and its smallest and largest
element. Sums: float32 over runs of 2,048 elements (relative error below 2e-6), then exactly rounded float64 over
the runs, in an order that no thread count changes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..capture import digest as d

RUN = 2048
"""Elements whose squares are added in float32. Below torch's grain of 32,768, so that one thread adds them."""
PIECE = 64 * RUN
"""Elements at a time: 512 KiB of float32, which stay in the second-level cache."""
_LOW, _HIGH = 1e-15, 1e18
"""Largest magnitudes between which squares neither vanish nor overflow in float32."""

Row = list[float]


def read(flats: Sequence[Any], *, digest: bool = False, starts: Sequence[int] = (0,)) -> Row:
    """Read one tensor on the CPU, whose elements lie in flat contiguous tensors; returns the row, see `columns`.

    `starts`: for each of them the index of its first element in the unsharded tensor, for the digest.
    """
    tally = Tally()
    lanes = torch.zeros(2, dtype=torch.int64) if digest else None
    for i, flat in enumerate(flats):
        widen = Widen(flat)
        for at, part in pieces(flat):
            tally.add(widen(part), part)
            if lanes is not None:
                words = d.words(part)
                lanes += d.part(words, (starts[i] + at) * (words.numel() // part.numel()))
    return tally.row(sum(flat.numel() for flat in flats), lanes)


def pieces(flat: Any) -> Iterator[tuple[int, Any]]:
    """(offset, piece) of a flat tensor."""
    if flat.numel() <= PIECE:
        yield 0, flat
        return
    for i, part in enumerate(flat.split(PIECE)):
        yield i * PIECE, part


def squares(piece: Any) -> list[float]:
    """The sum of squares of each run of a float32 piece, as float64."""
    whole = piece.numel() // RUN * RUN
    norms: list[float] = []
    if whole:
        norms = torch.linalg.vector_norm(piece[:whole].view(-1, RUN), dim=1).tolist()
    if whole < piece.numel():
        norms.append(torch.linalg.vector_norm(piece[whole:]).tolist())
    return [n * n for n in norms]


class Widen:
    """Gives pieces of one tensor as float32, where that holds every value of its type."""

    def __init__(self, flat: Any) -> None:
        self._as_it_is = flat.dtype in (torch.float32, torch.float64)
        self._scratch = None if self._as_it_is else torch.empty(min(PIECE, flat.numel()))

    def __call__(self, piece: Any) -> Any:
        """The piece in float32 (float64 stays), good until the next call."""
        return piece if self._scratch is None else self._scratch[: piece.numel()].copy_(piece)


class Tally:
    """Adds up the pieces of one tensor."""

    __slots__ = ("counts", "largest", "lowest", "sums")

    def __init__(self) -> None:
        self.sums: list[float] = []
        self.largest = self.lowest = 0.0
        self.counts = [0, 0, 0]

    def add(self, piece: Any, original: Any = None) -> None:
        """Add a piece as `Widen` gives it; `original` is the same piece in its own type."""
        if piece.dtype == torch.float64:
            self._slowly(piece)
            return
        low, high = (v.tolist() for v in torch.aminmax(piece))
        largest = max(high, -low)
        if not largest < math.inf:  # also where one is NaN
            self._slowly(piece if original is None else original)
            return
        self.lowest = min(self.lowest, low)
        self.largest = max(self.largest, largest)
        if largest == 0.0:
            self.sums.append(0.0)
        elif _LOW < largest < _HIGH:
            self.sums += squares(piece)
        else:  # a power of two more or less loses nothing
            scale = 2.0 ** max(-126, min(126, -math.frexp(largest)[1]))
            self.sums += [s / scale / scale for s in squares(piece * scale)]

    def _slowly(self, piece: Any) -> None:
        wide = piece.to(torch.float64)
        finite = torch.isfinite(wide)
        clean = torch.where(finite, wide, 0.0)
        low, high = (v.tolist() for v in torch.aminmax(clean))
        self.largest = max(self.largest, high, -low)
        self.lowest = min(self.lowest, low)
        self.sums.append((clean * clean).sum().tolist())
        for i, found in enumerate((torch.isnan(wide), wide == math.inf, wide == -math.inf)):
            self.counts[i] += found.sum().tolist()

    def row(self, elements: int, lanes: Any = None, factor: float = 1.0) -> Row:
        """The row of all pieces, each element taken times `factor`."""
        bits = struct.unpack("<2d", struct.pack("<2q", *lanes.tolist())) if lanes is not None else (0.0, 0.0)
        try:
            total = math.fsum(self.sums) * factor * factor
        except OverflowError:  # float64 tensors with elements beyond 1e154
            total = math.inf
        extremes = (self.largest * abs(factor), self.lowest * abs(factor))
        return [total, *extremes, *map(float, self.counts), float(elements), *bits]
