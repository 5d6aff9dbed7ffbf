"""Digests by row: the two lanes of `digest`, for each sample of a batch at once, on whatever device.

A lane is the sum of a(i) * w(i) modulo 2^64, as in `digest`; i counts within the row. The words of integers are
their int64 values, mixed by a bijection that keeps 0, so that the integer type does not matter and a position
that is masked out adds nothing; other types are read by their raw bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import digest as d
from .batch_containers import is_integer

if TYPE_CHECKING:
    import torch

_AT_ONCE, _AT_ONCE_ON_DEVICE = 1 << 18, 1 << 22
"""Words of scratch: 2 MiB on the CPU, 32 MiB elsewhere."""
LOW = (1 << 32) - 1


def mixed(t: torch.Tensor) -> torch.Tensor:
    """Integers as int64 words, each mixed by a bijection: a difference of top bits reaches the lower ones."""
    import torch

    x = t.to(torch.int64) * d._GOLDEN
    return (x >> 32).bitwise_and_(LOW).bitwise_xor_(x)


def finished(lanes: torch.Tensor) -> torch.Tensor:
    """Each lane through splitmix64's bijection, so that sums over rows do not mix what stands in the rows."""
    x = (lanes >> 30).bitwise_and_((1 << 34) - 1).bitwise_xor_(lanes).mul_(d._MIX1)
    x = (x >> 27).bitwise_and_((1 << 37) - 1).bitwise_xor_(x).mul_(d._MIX2)
    return (x >> 31).bitwise_and_((1 << 33) - 1).bitwise_xor_(x)


def of_rows(t: torch.Tensor) -> torch.Tensor:
    """Lanes of each row of dimension 0, int64[rows, 2]; scratch is bounded, however large the rows.

    Raises `KeyError` for odd element sizes, as `digest.words` does.
    """
    import torch

    t = t.detach()
    rows = int(t.shape[0])
    if not t.numel():
        return torch.zeros(rows, 2, dtype=torch.int64, device=t.device)
    integer = is_integer(t)
    flat = t.reshape(rows, -1) if integer else d.words(t).view(rows, -1)
    width = int(flat.shape[1])
    limit = _AT_ONCE if t.device.type == "cpu" else _AT_ONCE_ON_DEVICE
    tall = max(1, limit // min(width, d.BLOCK))
    wide = max(1, limit // (d.BLOCK * min(tall, rows))) * d.BLOCK
    out = []
    for top in range(0, rows, tall):
        found = None
        for left in range(0, width, wide):
            cut = flat[top : top + tall, left : left + wide]
            words = mixed(cut) if integer else cut.to(torch.int64).bitwise_and_(d.mask(flat))
            part = of_words(words, left)
            found = part if found is None else found + part
        out.append(found)
    return torch.cat(out) if len(out) > 1 else out[0]


def of_words(words: torch.Tensor, first: int = 0) -> torch.Tensor:
    """What words give to the lanes of their rows, int64[rows, 2]. They begin at `first`, a multiple of a block."""
    import torch

    width = int(words.shape[1])
    begin, whole = first // d.BLOCK, width // d.BLOCK * d.BLOCK
    parts = []
    for table, multipliers in _tables(begin, -(-width // d.BLOCK), str(words.device)):
        if width <= d.BLOCK:
            parts.append(d.product(words, table[:width]))
            continue
        sums = d.product(words[:, :whole].reshape(-1, d.BLOCK), table).view(words.shape[0], -1)
        found = d.product(sums, multipliers[: sums.shape[1]])
        if whole < width:
            found = found + d.product(words[:, whole:], table[: width - whole]) * multipliers[-1]
        parts.append(found)
    lanes = torch.stack(parts, 1)
    return lanes * _first(begin, str(words.device)) if width <= d.BLOCK else lanes


@lru_cache(maxsize=256)
def _tables(begin: int, blocks: int, device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each lane the table of a block, and the multipliers of some blocks."""
    return [
        (table, d.multipliers(lane, begin + blocks, device)[begin:])
        for lane, table in enumerate(d.tables(device))
    ]


@lru_cache(maxsize=64)
def _first(begin: int, device: str) -> torch.Tensor:
    """The multiplier of one block in both lanes, int64[2]."""
    import torch

    return torch.stack([multipliers[0] for _, multipliers in _tables(begin, 1, device)])


def of_segments(words: torch.Tensor, cut: Segments) -> torch.Tensor:
    """Lanes of each segment of a flat run of words, int64[segments, 2]; as of a row that holds the segment."""
    import torch

    out = []
    for table in cut.multipliers:
        sums = torch.cat([table.new_zeros(1), (words.reshape(-1) * table).cumsum(0)])
        out.append(sums.index_select(0, cut.ends) - sums.index_select(0, cut.starts))
    return torch.stack(out, 1) * (cut.lengths > 0)[:, None]


class Segments:
    """How a flat run is cut into sequences. Offsets that point outside or fall are held within; none is read back."""

    def __init__(self, offsets: torch.Tensor, total: int) -> None:
        import torch

        found = offsets.detach().reshape(-1).to(torch.int64).clamp(0, total).cummax(0).values
        self.starts, self.ends = found[:-1], found[1:]
        self.lengths = self.ends - self.starts
        self.count = int(self.lengths.shape[0])
        at = torch.arange(total, dtype=torch.int64, device=found.device)
        which = torch.searchsorted(self.ends.contiguous(), at, right=True).clamp_(max=max(0, self.count - 1))
        within = (at - self.starts.index_select(0, which)).clamp_(0, max(0, total - 1))
        blocks = total // d.BLOCK + 1
        low, high = within % d.BLOCK, torch.div(within, d.BLOCK, rounding_mode="floor")
        self.multipliers = [
            table.index_select(0, low) * d.multipliers(lane, blocks, found.device).index_select(0, high)
            for lane, table in enumerate(d.tables(str(found.device)))
        ]


@lru_cache(maxsize=1024)
def multiplier(text: str) -> int:
    """An odd multiplier of a field, from its path, as a signed 64-bit number."""
    import hashlib

    return signed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") | 1)


def signed(value: int) -> int:
    """A number modulo 2^64, as int64 holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


LENGTH: Any = multiplier("length of the sample")
"""What the length of a sample is multiplied with before it is added: tokens of id 0 at the end count."""
