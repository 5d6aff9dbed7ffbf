"""Sums of multiplier times word modulo 2^64 by a float64 matrix product, exactly: the quickest way on a CPU.

Processors multiply float64 many at a time, and 64-bit integers few. So each multiplier is written in signed digits
small enough that a block's sum of digit times word stays within 2^53, where float64 is exact whatever the order of
adding; digits' sums are put together in int64. Both lanes are columns of one product, and each word is read once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from . import digest as d

if TYPE_CHECKING:
    import torch

ROWS, ROWS_OF_SEVERAL = 16, 256
"""Blocks per pass: on one thread 16 x 4096 words of float64, 512 KiB, which stay in the second-level cache; on several
threads more, since they wait for each other after each operator, and on a busy machine long."""
_DIGITS = {1: (32, 2), 2: (22, 3), 4: (10, 7)}
"""Bytes of a word -> bits of a digit, and digits that it takes for 64 bits: 2^(8 * bytes) * 2^(bits - 1) * 4096 words
are at most 2^53."""


@cache
def digits(size: int) -> torch.Tensor:
    """The digits of both tables for words of a size in bytes, float64[BLOCK, 2 * digits]."""
    import torch

    bits, count = _DIGITS[size]
    columns = []
    for table in d.tables("cpu"):
        rest = table.clone()
        for _ in range(count):
            digit = ((rest + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))
            columns.append(digit.to(torch.float64))
            rest = (rest - digit) >> bits
    return torch.stack(columns, 1).contiguous()


def tall() -> int:
    """Blocks per pass, for as many threads as torch has here."""
    import torch

    return ROWS if torch.get_num_threads() == 1 else ROWS_OF_SEVERAL


def unsigned(found: torch.Tensor) -> torch.Tensor:
    """Words as unsigned integers, so that a copy to a wider type extends them with zeros."""
    import torch

    return found.view({1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[found.element_size()])


def together(sums: torch.Tensor, size: int) -> torch.Tensor:
    """Sums of digits, float64[n, 2 * digits], as the sums of both lanes: int64[2, n]."""
    import torch

    bits, count = _DIGITS[size]
    whole = sums.to(torch.int64).view(-1, 2, count)
    out = whole[:, :, 0].clone()
    for at in range(1, count):  # shifted out is what is beyond 2^64
        out += whole[:, :, at] << (bits * at)
    return out.t()


def sums(found: torch.Tensor, blocks: int) -> torch.Tensor:
    """Sum of table entry times word for each lane and block of a run of words: int64[2, blocks]."""
    import torch

    size, whole, rows = found.element_size(), found.numel() // d.BLOCK, tall()
    table, words = digits(size), unsigned(found)
    out = torch.empty(blocks, table.shape[1], dtype=torch.float64, device=found.device)
    buffer = torch.empty(min(rows, max(whole, 1)), d.BLOCK, dtype=torch.float64, device=found.device)
    body = words[: whole * d.BLOCK].view(-1, d.BLOCK)
    for start in range(0, whole, rows):
        some = body[start : start + rows]
        wide = buffer[: some.shape[0]].copy_(some)
        torch.mm(wide, table, out=out[start : start + some.shape[0]])
    tail = words[whole * d.BLOCK :]
    if tail.numel():
        wide = tail.to(torch.float64)[None]
        torch.mm(wide, table[: tail.numel()], out=out[whole : whole + 1])
    return together(out, size)


def of_rows(wide: Any) -> torch.Tensor:
    """Sums of rows of up to a block of words of any size, given as float64[n, <= BLOCK]: int64[2, n]."""
    return together(wide.mm(digits(4)[: wide.shape[1]]), 4)


_RUNS = 1 << 15
"""Runs whose sums are kept until they are put together: some MiB."""


def runs(body: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """What runs of equal length add to the lanes, int64[2]; row r of `body` is the words from index `starts[r]` on.

    Runs that begin at the same place of a block are rows of one product, cut where blocks end.
    """
    import torch

    total = torch.zeros(2, dtype=torch.int64, device=body.device)
    for some, first in zip(unsigned(body).split(_RUNS), starts.split(_RUNS), strict=True):
        sums = _by_place(some, first % d.BLOCK)
        for nth, of_piece in enumerate(sums):
            total += _by_block(together(of_piece, body.element_size()), first // d.BLOCK + nth)
    return total


def spaced(body: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """As `runs`, for runs that begin at even distances: many are laid into zeroed blocks, each in blocks of its own."""
    import torch

    count, length = body.shape
    step = int(starts[1] - starts[0])
    apart = length + d.BLOCK - 1  # no two runs share a block, and each keeps its place within blocks
    apart += (step - apart) % d.BLOCK
    most = max(1, 4 * tall() * d.BLOCK // apart)
    total = torch.zeros(2, dtype=torch.int64, device=body.device)
    for at in range(0, count, most):
        some = unsigned(body[at : at + most])
        first, offset = int(starts[at]), int(starts[at]) % d.BLOCK
        blocks = (offset + (len(some) - 1) * apart + length - 1) // d.BLOCK + 1
        wide = torch.zeros(blocks, d.BLOCK, dtype=torch.float64, device=body.device)
        wide.as_strided((len(some), length), (apart, 1), offset).copy_(some)
        held = torch.arange(blocks, device=body.device)
        whose = ((held * d.BLOCK + d.BLOCK - 1 - offset) // apart).clamp_(0, len(some) - 1)
        shift = (step - apart) // d.BLOCK
        total += _by_block(together(wide.mm(digits(body.element_size())), body.element_size()),
                           held + first // d.BLOCK + whose * shift)  # fmt: skip
    return total


def _by_place(words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Sums of digits of each run's piece in its first block, its second, and so on: float64[pieces, runs, digits]."""
    import torch

    length, table = int(words.shape[1]), digits(words.element_size())
    pieces = (int(offsets.max()) + length - 1) // d.BLOCK + 1
    out = torch.zeros(pieces, len(words), table.shape[1], dtype=torch.float64, device=words.device)
    buffer = torch.empty(tall() * d.BLOCK, dtype=torch.float64, device=words.device)
    places, counts = offsets.unique(return_counts=True)
    order = offsets.argsort(stable=True).split(counts.tolist())
    for place, mine in zip(places.tolist(), order, strict=True):
        rows = _slice(mine)
        left = 0
        for nth in range(pieces):
            at = place if nth == 0 else 0
            width = min(d.BLOCK - at, length - left)
            if width <= 0:
                break
            held = _at(words, rows)[:, left : left + width]
            most = buffer.numel() // width
            sums = [
                buffer[: part.numel()].view(part.shape).copy_(part).mm(table[at : at + width])
                for part in held.split(most)
            ]
            out[nth, rows] = torch.cat(sums)
            left += width
    return out


def _slice(index: torch.Tensor) -> Any:
    """Places as a slice where they are evenly spaced, so that nothing is gathered."""
    steps = index.diff()
    if len(steps) and not bool((steps == steps[0]).all()):
        return index
    step = int(steps[0]) if len(steps) else 1
    return slice(int(index[0]), int(index[-1]) + 1, step)


def _at(words: torch.Tensor, rows: Any) -> torch.Tensor:
    if isinstance(rows, slice):
        return words[rows]
    import torch

    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[words.element_size()]
    return unsigned(words.view(signed).index_select(0, rows))


def _by_block(sums: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Sums of parts of blocks, int64[2, n], each times the multiplier of its block: int64[2]."""
    import torch

    begin = int(blocks.min())
    span = int(blocks.max()) + 1 - begin
    known = [d.multipliers_from(lane, begin, span, sums.device)[blocks - begin] for lane in (0, 1)]
    return (sums * torch.stack(known)).sum(1)
