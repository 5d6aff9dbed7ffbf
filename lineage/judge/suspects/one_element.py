"""Whether two copies of a tensor differ in one element alone, told from their digests and without the tensors.

A lane of a digest is the sum of a(i) * w(i) over all words, modulo 2^64 (`lineage.capture.digest`). Where two copies
differ in one word i, by d, their lanes differ by a(i) * d, in both lanes alike. So D1 * b(i) = D2 * a(i) for that i,
with D1, D2 the differences of the two lanes and a, b their multipliers; a difference of several words satisfies that
for no i, but by chance (about one in 2^64 for each place). With i found, d follows.

An element of eight bytes is two words: it is found where one of them changed, as a flipped bit does.
That tells a flipped bit, or a word that was damaged on its way, from a tensor that is another one as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

BLOCK = 4096
_ALL = (1 << 64) - 1
_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD_BITS = {
    "bool": 8,
    "uint8": 8,
    "int8": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "int16": 16,
    "uint16": 16,
    "float16": 16,
    "bfloat16": 16,
    "int32": 32,
    "float32": 32,
    "uint32": 32,
}
"""Bits of a word of the types whose elements are one word each."""
_TWO_WORDS = ("int64", "float64", "uint64")
SLOW = 1 << 20
"""Words up to which it is looked for without NumPy."""


@dataclass(frozen=True)
class OneElement:
    """Two ranks' copies of a tensor that differ in one element alone."""

    tensor: str
    kind: str
    """weight, buffer, moment1, ..."""
    rank: int
    other: int
    step: int
    element: int
    """its index in the tensor, row by row"""
    difference: int
    """what the word of `rank` holds more than that of `other`, as integers"""
    first_bit: int = 0
    """the lowest bit of that word within the element"""

    @property
    def bit(self) -> int | None:
        """The bit whose change alone makes that difference, from 0; None where more than one must have changed."""
        size = abs(self.difference)
        return self.first_bit + size.bit_length() - 1 if size & (size - 1) == 0 else None

    def text(self) -> str:
        """In words."""
        what = {"moment1": "first moment of ", "moment2": "second moment of "}.get(self.kind, "")
        bits = f"by {self.difference:,} in its bits"
        if self.bit is not None:
            bits = f"as one flipped bit (bit {self.bit}) leaves it"
        if abs(self.difference) == 1:
            bits += "; another rounding leaves that too"
        return (
            f"at step {self.step:,} rank {self.rank} and rank {self.other} differ in one element alone of "
            f"{what}{self.tensor}, element {self.element:,}, {bits}"
        )


@dataclass(frozen=True)
class Copies:
    """Two ranks' digests of one tensor, or of the same part of it."""

    tensor: str
    kind: str
    rank: int
    other: int
    step: int
    lanes: tuple[int, int]
    other_lanes: tuple[int, int]
    whole: str | None
    """type and shape of the whole tensor, as `float32[4,3]`; None where only the part has indices"""
    elements: int


def find(copies: Copies) -> OneElement | None:
    """The one element in which two copies differ; None where they differ in more, or it cannot be told."""
    words, bits, per_element = _form(copies)
    if words == 0:
        return None
    d1, d2 = ((a - b) & _ALL for a, b in zip(copies.lanes, copies.other_lanes, strict=True))
    if d1 == 0 or d2 == 0:
        return None  # one changed word changes both lanes, since multipliers are odd
    for index in _places(d1, d2, words):
        difference = _signed(d1 * pow(_multiplier(0, index), -1, 1 << 64) & _ALL)
        if abs(difference) < 1 << bits:
            return OneElement(
                copies.tensor,
                copies.kind,
                copies.rank,
                copies.other,
                copies.step,
                index // per_element,
                difference,
                32 * (index % per_element),
            )
    return None


def _form(copies: Copies) -> tuple[int, int, int]:
    """(words that may have changed, bits of a word, words of an element); no words where the type is not known."""
    if copies.whole is None:
        return 0, 0, 1
    name, _, shape = copies.whole.partition("[")
    count = 1
    for n in filter(None, shape.rstrip("]").split(",")):
        count *= int(n)
    if name in _TWO_WORDS:
        return 2 * count, 32, 2
    return (count, _WORD_BITS[name], 1) if name in _WORD_BITS else (0, 0, 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def _odd(x: int) -> int:
    """A multiplier: splitmix64 of x, made odd, as `capture.digest` makes it."""
    x = (x + 1) * _GOLDEN & _ALL
    x = (x ^ (x >> 30)) * _MIX1 & _ALL
    x = (x ^ (x >> 27)) * _MIX2 & _ALL
    return (x ^ (x >> 31)) | 1


@cache
def _table(lane: int) -> Sequence[int]:
    return [_odd((1 << (40 + lane)) + j) for j in range(BLOCK)]


def _multiplier(lane: int, index: int) -> int:
    return _table(lane)[index % BLOCK] * _odd((lane << 50) + index // BLOCK) & _ALL


def _places(d1: int, d2: int, words: int) -> Iterator[int]:
    """The words whose change alone would make both differences."""
    try:
        import numpy
    except ImportError:
        if words <= SLOW:
            yield from (
                i for i in range(words) if (d1 * _multiplier(1, i) - d2 * _multiplier(0, i)) & _ALL == 0
            )
        return
    yield from _by_numpy(numpy, d1, d2, words)


def _by_numpy(np: Any, d1: int, d2: int, words: int) -> Iterator[int]:
    first, second = (np.array(_table(lane), dtype=np.uint64) for lane in (0, 1))
    with np.errstate(over="ignore"):
        for block in range(-(-words // BLOCK)):
            left = second * np.uint64(d1 * _odd((1 << 50) + block) & _ALL)
            right = first * np.uint64(d2 * _odd(block) & _ALL)
            for j in np.flatnonzero(left == right).tolist():
                if block * BLOCK + j < words:
                    yield block * BLOCK + j
