"""Exact digests of tensors: bit-exact, sensitive to position, cheap.

Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is fast", 2014): a lane is the sum
over all 32-bit words of a(i) * w(i) modulo 2^64, with fixed pseudo-random odd multipliers. a(i) is an entry
of a table times a multiplier of the block, so contributions of parts add up. Two lanes are independent.

Odds of a collision, over the choice of the multipliers. A change of a single word is always found, since a(i) is
odd. For a change of several words the odds are at most 2^-32 in a lane and 2^-64 in both where multipliers are
independent (Lemire and Kaser, section 3); the worst case is a change of top bits only. They are independent but for
one pattern: a(i) is a product of two, so where the same two places of two blocks change, by the same amount and with
signs +, -, -, +, only the product of two differences is left. Top bits again are the worst, with 33 * 2^-32 in a lane
and 2^-53 in both. This finds faults, not attackers: the multipliers are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..digest_text import ALGORITHM, finish, root

if TYPE_CHECKING:
    import torch

__all__ = ["ALGORITHM", "finish", "root"]
BLOCK = 4096
"""Words per block: the length of the multiplier table."""
BY_FLOATS = ("cpu",)
"""Kinds of devices whose sums are taken by float64 products, see `digest_cpu`; the others multiply integers."""
_ROWS = 1024
"""Blocks per pass on a device: few launches, 32 MiB of scratch."""

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def _odd(start: int, count: int, device: Any) -> torch.Tensor:
    """Return `count` odd int64 multipliers: splitmix64 (Steele et al., 2014) of start, start+1, ..."""
    import torch

    return _mixed(torch.arange(start, start + count, dtype=torch.int64, device=device))


def _mixed(x: torch.Tensor) -> torch.Tensor:
    x = (x + 1) * _GOLDEN
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX1
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX2
    return (x ^ ((x >> 31) & ((1 << 33) - 1))) | 1


@cache
def tables(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The two lanes' multiplier tables on a device, int64[BLOCK] each."""
    return _odd(1 << 40, BLOCK, device), _odd(1 << 41, BLOCK, device)


def has_digest(tensor: torch.Tensor) -> bool:
    """Whether elements of this type have a digest: they, or both parts of a complex one, are of 1, 2, 4 or 8 bytes."""
    return tensor.element_size() // (2 if tensor.is_complex() else 1) in (1, 2, 4, 8)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """The raw bits as a flat integer tensor of at most 32-bit words, without a copy where it is contiguous."""
    import torch

    t = tensor.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    t = t.contiguous().reshape(-1)
    view = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}[t.element_size()]
    return t.view(view) if t.dtype != view else t


def lanes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the two lanes as int64[2] on the tensor's device; nothing is copied off it.

    Words are zero-extended; 8-byte elements are two words, low one first.
    Raises `KeyError` for element sizes other than 1, 2, 4 and 8 bytes.
    """
    return part(words(tensor), 0)


def part(found: torch.Tensor, first: int) -> torch.Tensor:
    """Return what a run of words adds to the two lanes, int64[2]: parts of a tensor add up modulo 2^64.

    `found` is the run as `words` gives it, `first` the index of its first word in the whole tensor.
    """
    import torch

    head = min(-first % BLOCK, found.numel())
    total = torch.zeros(2, dtype=torch.int64, device=found.device)
    if head:
        at = first % BLOCK
        wide = found[:head].to(torch.int64) & mask(found)
        for lane, table in enumerate(tables(str(found.device))):
            multiplier = multipliers_from(lane, first // BLOCK, 1, found.device)[0]
            total[lane] = (wide * table[at : at + head]).sum() * multiplier
    rest = found[head:]
    if rest.numel():
        begin, blocks = (first + head) // BLOCK, -(-rest.numel() // BLOCK)
        sums = _sums(rest, blocks)
        for lane in (0, 1):
            total[lane] += (sums[lane] * multipliers_from(lane, begin, blocks, found.device)).sum()
    return total


def mask(found: torch.Tensor) -> int:
    """The bits that a word has: what zero-extends it once it is int64."""
    return (1 << (8 * int(found.element_size()))) - 1


def _sums(found: torch.Tensor, blocks: int) -> torch.Tensor:
    """Sum of table entry times word for each lane and block: int64[2, blocks]."""
    import torch

    if found.device.type in BY_FLOATS:
        from . import digest_cpu

        return digest_cpu.sums(found, blocks)
    bits = mask(found)
    known = tables(str(found.device))
    sums = torch.zeros(2, blocks, dtype=torch.int64, device=found.device)
    whole = found.numel() // BLOCK
    buffer = torch.empty(min(_ROWS, max(whole, 1)), BLOCK, dtype=torch.int64, device=found.device)
    body = found[: whole * BLOCK].view(-1, BLOCK)
    for start in range(0, whole, _ROWS):
        some = body[start : start + _ROWS]
        wide = buffer[: some.shape[0]].copy_(some)
        wide.bitwise_and_(bits)
        for lane, table in enumerate(known):
            sums[lane, start : start + some.shape[0]] = product(wide, table)
    tail = found[whole * BLOCK :]
    if tail.numel():
        wide = tail.to(torch.int64) & bits
        for lane, table in enumerate(known):
            sums[lane, whole] = (wide * table[: tail.numel()]).sum()
    return sums


def product(wide: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Row sums of a product modulo 2^64. There is no integer matrix product on CUDA."""
    return wide.mv(table) if wide.device.type == "cpu" else (wide * table).sum(1)


KEPT_BLOCKS = 1 << 15
"""Block multipliers that are kept: enough for a tensor of 134 million words, 256 KiB per lane."""


@cache
def _kept(lane: int, device: str) -> torch.Tensor:
    return _odd(lane << 50, KEPT_BLOCKS, device)


def multipliers(lane: int, blocks: int, device: Any) -> torch.Tensor:
    """The multipliers of the first `blocks` blocks of a lane."""
    if blocks <= KEPT_BLOCKS:
        return _kept(lane, str(device))[:blocks]
    return _odd(lane << 50, blocks, device)


def multipliers_from(lane: int, begin: int, blocks: int, device: Any) -> torch.Tensor:
    """The multipliers of `blocks` blocks of a lane, from block `begin` on."""
    if begin + blocks <= KEPT_BLOCKS:
        return _kept(lane, str(device))[begin : begin + blocks]
    return _odd((lane << 50) + begin, blocks, device)


def multipliers_at(lane: int, blocks: torch.Tensor) -> torch.Tensor:
    """The multipliers of some blocks of a lane, given as int64, wherever they are."""
    return _mixed(blocks + (lane << 50))


def header(tensor: torch.Tensor) -> str:
    """What goes with the lanes: dtype and logical shape."""
    return header_of(tensor.dtype, tensor.shape)


def header_of(dtype: Any, shape: Sequence[int]) -> str:
    """The header of tensors of a type and a shape."""
    return f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"


def tensor_digest(tensor: torch.Tensor) -> str:
    """Digest one tensor. Reads the result back, so on CUDA this waits for the device."""
    return finish(header(tensor), lanes(tensor).tolist())
