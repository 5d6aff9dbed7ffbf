"""The exact digests of `capture.digest`, of bytes in files and with NumPy alone: the same lanes, bit for bit.

A lane is a sum over words of multiplier times word modulo 2^64, and a word's multiplier depends on its place in the
whole tensor only. So a tensor is read in stretches, in any order and from any number of files, and what they add is
put together. As on the CPU with torch (`capture.digest_cpu`), multipliers are written in digits small enough for a
float64 matrix product to be exact.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..capture import digest as d
from ..capture.digest_cpu import _DIGITS as DIGITS
from . import dtypes

_ROWS = 16
"""Blocks per pass: 512 KiB of float64, which stay in the second-level cache."""
_KEPT = 1 << 15
"""Block multipliers that are kept."""

Lanes = tuple[int, int]
"""Two signed 64-bit sums."""


def word(dtype: str) -> int | None:
    """Bytes of a word of a type, as `capture.digest.words` takes them; None for types without a digest."""
    size = dtypes.SIZE.get(dtype)
    if size is None or dtype == "untyped" or dtype.startswith(("qint", "quint")):
        return None
    return min(4, size // 2 if dtype.startswith("complex") else size)


def part(words: Any, first: int) -> Lanes:
    """What a run of words adds to both lanes: an unsigned NumPy array, and the index of its first in the tensor."""
    import numpy as np

    total = [0, 0]
    head = min(-first % d.BLOCK, len(words))
    pieces = [(words[head:], first + head)]
    if head:
        block = np.zeros(d.BLOCK, words.dtype)  # zeros add nothing
        block[first % d.BLOCK : first % d.BLOCK + head] = words[:head]
        pieces.append((block, first - first % d.BLOCK))
    for some, at in pieces:
        if len(some):
            sums = _sums(some)
            for lane in (0, 1):
                multipliers = _multipliers(lane, at // d.BLOCK, sums.shape[1])
                total[lane] += int((sums[lane] * multipliers).sum(dtype=np.uint64))
    return signed(total[0]), signed(total[1])


def add(a: Lanes, b: Lanes) -> Lanes:
    """Two sums put together, modulo 2^64."""
    return signed(a[0] + b[0]), signed(a[1] + b[1])


def signed(value: int) -> int:
    """A number modulo 2^64, as int64 holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def _sums(words: Any) -> Any:
    """Sum of table entry times word for each lane and block: uint64[2, blocks]; the last block may be short."""
    import numpy as np

    size = words.dtype.itemsize
    bits, count = DIGITS[size]
    table = _digits(size)
    whole = len(words) // d.BLOCK
    blocks = -(-len(words) // d.BLOCK)
    out: Any = np.empty((blocks, 2 * count), np.float64)
    buffer: Any = np.empty((min(_ROWS, max(whole, 1)), d.BLOCK), np.float64)
    body = words[: whole * d.BLOCK].reshape(-1, d.BLOCK)
    for start in range(0, whole, _ROWS):
        some = body[start : start + _ROWS]
        wide = buffer[: len(some)]
        np.copyto(wide, some)
        np.matmul(wide, table, out=out[start : start + len(some)])
    tail = words[whole * d.BLOCK :]
    if len(tail):
        out[whole] = tail.astype(np.float64) @ table[: len(tail)]
    digits: Any = out.astype(np.int64).view(np.uint64).reshape(blocks, 2, count)
    sums = digits[:, :, 0].copy()
    for at in range(1, count):  # shifted out is what is beyond 2^64
        sums += digits[:, :, at] << np.uint64(bits * at)
    return sums.T


@cache
def _digits(size: int) -> Any:
    """The digits of both tables for words of a size in bytes, float64[BLOCK, 2 * digits]."""
    import numpy as np

    bits, count = DIGITS[size]
    columns = []
    for lane in (0, 1):
        rest = _odd(1 << (40 + lane), d.BLOCK).view(np.int64).copy()
        for _ in range(count):
            digit = ((rest + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))
            columns.append(digit.astype(np.float64))
            rest = (rest - digit) >> bits
    return np.ascontiguousarray(np.stack(columns, 1))


def _multipliers(lane: int, begin: int, blocks: int) -> Any:
    """The multipliers of some blocks of a lane, from block `begin` on: uint64[blocks]."""
    if begin + blocks <= _KEPT:
        return _kept(lane)[begin : begin + blocks]
    return _odd((lane << 50) + begin, blocks)


@cache
def _kept(lane: int) -> Any:
    return _odd(lane << 50, _KEPT)


def _odd(start: int, count: int) -> Any:
    """Odd multipliers: splitmix64 (Steele et al., 2014) of start, start+1, ..., as `capture.digest` makes them."""
    import numpy as np

    low = (1 << 64) - 1
    x = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(d._GOLDEN & low)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(d._MIX1 & low)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(d._MIX2 & low)
    return (x ^ (x >> np.uint64(31))) | np.uint64(1)
