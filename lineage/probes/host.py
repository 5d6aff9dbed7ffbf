"""One read on the CPU: three fast passes over a piece that lies in the cache, a slow one only over broken pieces.

There is no queue to wait for on a CPU, so the values of a piece may decide what is done with it: a piece without
NaN, infinity or extreme magnitude, which is nearly every one, is done after its norm, its smallest and its largest
element. Sums: float32 over runs of 2,048 elements (relative error below 2e-6), then exactly rounded float64 over
the runs, in an order that no thread count changes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..capture import digest as d

RUN = 2048
"""Elements whose squares are added in float32. Below torch's grain of 32,768, so that one thread adds them."""
PIECE = 64 * RUN
"""Elements at a time: 512 KiB of float32, which stay in the second-level cache."""
LOW, HIGH = 1e-15, 1e18
"""Largest magnitudes between which squares neither vanish nor overflow in float32."""

Row = list[float]


def read(flats: Sequence[Any], *, digest: bool = False, starts: Sequence[int] = (0,)) -> Row:
    """Read one tensor on the CPU, whose elements lie in flat contiguous tensors; returns the row, see `columns`.

    `starts`: for each of them the index of its first element in the unsharded tensor, for the digest.
    """
    tally, parts = Tally(), []
    lanes = torch.zeros(2, dtype=torch.int64) if digest else None
    for i, flat in enumerate(flats):
        widen = Widen(flat)
        for at, part in pieces(flat):
            parts.append(part)
            tally.add(widen(part))
            if lanes is not None:
                words = d.words(part)
                lanes += d.part(words, (starts[i] + at) * (words.numel() // part.numel()))
    return tally.row(sum(flat.numel() for flat in flats), parts.__getitem__, lanes)


def pieces(flat: Any) -> Iterator[tuple[int, Any]]:
    """(offset, piece) of a flat tensor."""
    if flat.numel() <= PIECE:
        yield 0, flat
        return
    for i, part in enumerate(flat.split(PIECE)):
        yield i * PIECE, part


class Widen:
    """Gives pieces of one tensor as float32, where that holds every value of its type."""

    def __init__(self, flat: Any) -> None:
        self._as_it_is = flat.dtype in (torch.float32, torch.float64)
        self._scratch = None if self._as_it_is else torch.empty(min(PIECE, flat.numel()))

    def __call__(self, piece: Any) -> Any:
        """The piece in float32 (float64 stays), good until the next call."""
        return piece if self._scratch is None else self._scratch[: piece.numel()].copy_(piece)


def norms(piece: Any) -> list[Any]:
    """The norms of the runs of a float32 piece, as tensors."""
    whole = piece.numel() // RUN * RUN
    found = []
    if whole:
        found.append(torch.linalg.vector_norm(piece[:whole].view(-1, RUN), dim=1))
    if whole < piece.numel():
        found.append(torch.linalg.vector_norm(piece[whole:]).reshape(1))
    return found


class Tally:
    """Adds up the pieces of one tensor. Looking at what was found is left for the end: once, not per piece."""

    def __init__(self) -> None:
        self._norms: list[Any] = []
        self._ends: list[int] = []
        self._high: list[Any] = []
        self._low: list[Any] = []
        self._slow: list[int] = []
        self._runs = 0

    def add(self, piece: Any) -> None:
        """Add a piece as `Widen` gives it. It may be overwritten afterwards."""
        if piece.dtype == torch.float32:
            found = norms(piece)
            self._norms += found
            self._runs += sum(len(f) for f in found)
            # as integers, positive floats keep their order, and the greatest of negative ones is the lowest float:
            # with the smallest float beside it the largest magnitude is known, at half the time of a float maximum
            self._high.append(torch.amax(piece.view(torch.int32)))
            self._low.append(torch.amin(piece))
        else:
            self._slow.append(len(self._ends))
        self._ends.append(self._runs)

    def row(self, elements: int, again: Callable[[int], Any], lanes: Any = None, factor: float = 1.0) -> Row:
        """The row of all pieces, each element taken times `factor`. `again`: gives a piece a second time."""
        sums = [n * n for found in self._norms for n in found.tolist()]
        low = [v.tolist() for v in self._low]
        high = list(
            struct.unpack(f"{len(low)}f", struct.pack(f"{len(low)}i", *(v.tolist() for v in self._high)))
        )
        largest = max(map(max, high, map(float.__neg__, low)), default=0.0)
        # a NaN with the sign bit, which arithmetic on x86 makes, is no greatest integer: the smallest float shows it
        calm = all(
            lo == lo and (LOW < max(h, -lo) < HIGH or h == lo == 0.0)  # noqa: PLR0124 - false for NaN alone
            for h, lo in zip(high, low, strict=True)
        )
        if calm and not self._slow:
            return _row(sums, largest, min([0.0, *low]), [0, 0, 0], elements, lanes, factor)
        return self._broken(sums, high, low, again, elements, lanes, factor)

    def _broken(
        self,
        sums: list[float],
        high: list[float],
        low: list[float],
        again: Callable[[int], Any],
        elements: int,
        lanes: Any,
        factor: float,
    ) -> Row:
        """Some pieces are not finite, or out of the range of float32's squares: those are read again."""
        kept: list[float] = []
        counts, largest, lowest = [0, 0, 0], 0.0, 0.0
        fast, begin = iter(zip(high, low, strict=True)), 0
        for i, end in enumerate(self._ends):
            h, lo = (math.nan, math.nan) if i in self._slow else next(fast)
            size = max(h, -lo) if not math.isnan(lo) else math.nan
            if size < math.inf:
                kept += sums[begin:end] if LOW < size < HIGH else scaled(again(i), size)
                largest, lowest = max(largest, size), min(lowest, lo)
            else:
                total, top, bottom, found = slowly(again(i))
                kept.append(total)
                largest, lowest = max(largest, top), min(lowest, bottom)
                counts = [a + b for a, b in zip(counts, found, strict=True)]
            begin = end
        return _row(kept, largest, lowest, counts, elements, lanes, factor)


def scaled(piece: Any, largest: float) -> list[float]:
    """Sums of squares of a finite piece that leaves their range: a power of two more or less loses nothing."""
    if largest == 0.0:
        return [0.0]
    scale = 2.0 ** max(-126, min(126, -math.frexp(largest)[1]))
    found = norms(piece.to(torch.float32) * scale)
    return [(n / scale) ** 2 for runs in found for n in runs.tolist()]


def slowly(piece: Any) -> tuple[float, float, float, list[int]]:
    """Of a piece in its own type: sum of squares, largest, lowest (of the finite), NaN and infinities, in float64."""
    wide = piece.to(torch.float64)
    finite = torch.isfinite(wide)
    clean = torch.where(finite, wide, 0.0)
    low, high = (v.tolist() for v in torch.aminmax(clean))
    counts = [0, 0, 0]
    if not finite.all().tolist():
        counts = [f.sum().tolist() for f in (torch.isnan(wide), wide == math.inf, wide == -math.inf)]
    return (clean * clean).sum().tolist(), max(high, -low), min(low, 0.0), counts


def _row(
    sums: list[float],
    largest: float,
    lowest: float,
    counts: list[int],
    elements: int,
    lanes: Any,
    factor: float,
) -> Row:
    bits = struct.unpack("<2d", struct.pack("<2q", *lanes.tolist())) if lanes is not None else (0.0, 0.0)
    try:
        total = math.fsum(sums) * factor * factor
    except OverflowError:  # float64 tensors with elements beyond 1e154
        total = math.inf
    size = abs(factor)
    return [total, largest * size, lowest * size, *map(float, counts), float(elements), *bits]
