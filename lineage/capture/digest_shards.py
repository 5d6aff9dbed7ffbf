"""What a shard adds to the digest of the whole tensor, so that the digest does not depend on how a tensor is cut.

Each word counts with the multiplier of its place in the unsharded tensor, row-major and without padding. The ranks
that hold a tensor between them each take the sum over their part, and the sums add up modulo 2^64 to the lanes that
`digest.lanes` gives for the whole. Replicas are counted once, which `first_of_replicas` decides; nothing is gathered.

A part is given by the ranges of each dimension that it holds. Its words lie in runs that are contiguous in the whole:
one run for `Shard(0)`, one per row for `Shard(1)`. Rows of most widths begin at few different places of a block, and
those that begin at the same place have the same multipliers but for their block's. So on the CPU they are rows of one
product. Other short runs are taken many at once, each times its own window of the table, and long ones one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from . import digest as d

if TYPE_CHECKING:
    import torch

Ranges = list[tuple[int, int]]
"""Places of one dimension that a part holds, in the order in which it holds them: [first, last)."""

LONG = 2 * d.BLOCK
"""Words from which on a run is taken by itself."""
SHARED = 1 << 14
"""Words that must begin at the same place of a block, on average, for runs to be rows of one product (CPU)."""
SPACED = 512
"""Words from which on runs at even distances are laid into blocks of their own (CPU)."""
_WIDTH = d.BLOCK // 4
"""Words of a window: a longer run is cut, so that few windows cross from one block to the next."""
_WORDS, _WORDS_ON_DEVICE = 1 << 15, 1 << 22
"""Words per pass: 256 KiB of int64 on the CPU, 32 MiB elsewhere."""


class NoShare(ValueError):
    """What a rank holds of a tensor cannot be placed in the whole; the text says why."""


def ranges(tensor: Any) -> list[Ranges]:
    """Which places of each dimension of a distributed tensor this rank holds.

    Raises `NoShare` for partial sums, placements of an unknown kind, and ranks outside the mesh.
    """
    mesh, placements = tensor.device_mesh, tensor.placements
    at = mesh.get_coordinate()
    if at is None:
        raise NoShare("this rank is not on its mesh")
    found = cut(tensor.shape, placements, tuple(mesh.mesh.shape), at, _order(tensor, placements))
    held, local = [sum(b - a for a, b in r) for r in found], tensor.to_local()
    if prod(held) != local.numel():
        raise NoShare(f"it holds {local.numel():,} elements where its placement says {prod(held):,}")
    return found


def _order(tensor: Any, placements: Sequence[Any]) -> list[int]:
    """The dimensions of the mesh in the order in which they cut the tensor: left to right but where it is declared."""
    declared = getattr(getattr(tensor, "_spec", None), "shard_order", None)
    if not declared or any(hasattr(p, "split_factor") for p in placements):
        return list(range(len(placements)))  # a strided shard says itself what was cut before it
    order = [int(n) for entry in declared for n in entry.mesh_dims]
    return [*order, *(n for n in range(len(placements)) if n not in order)]


def cut(
    shape: Sequence[int],
    placements: Sequence[Any],
    mesh: Sequence[int],
    at: Sequence[int],
    order: Sequence[int] | None = None,
) -> list[Ranges]:
    """Which places of each dimension the rank at coordinate `at` of a mesh of shape `mesh` holds.

    Dimensions are cut as `torch.chunk` does, so that the last ranks may hold less or nothing. A strided shard
    (FSDP2 over tensor parallelism) takes its share of each of `split_factor` chunks. `order`: of the mesh's dimensions.

    Raises `NoShare` for a partial sum or a placement of an unknown kind.
    """
    out: list[Ranges] = [[(0, int(n))] for n in shape]
    for n in order if order is not None else range(len(placements)):
        p = placements[n]
        if p.is_replicate():
            continue
        dim = getattr(p, "dim", None)
        if p.is_partial() or dim is None:
            raise NoShare("it is a partial sum" if p.is_partial() else f"{p} is no placement that is known")
        pieces = int(getattr(p, "split_factor", 1))
        out[dim] = [
            r for piece in range(pieces) for r in _chunk(_chunk(out[dim], pieces, piece), mesh[n], at[n])
        ]
    return out


def _chunk(held: Ranges, chunks: int, nth: int) -> Ranges:
    """The nth of some chunks of what is held, the first ones full, as `torch.chunk` cuts."""
    size = sum(b - a for a, b in held)
    full = -(-size // chunks)
    low, high = min(size, nth * full), min(size, (nth + 1) * full)
    out, before = [], 0
    for a, b in held:
        first, last = max(low, before), min(high, before + b - a)
        if first < last:
            out.append((a + first - before, a + last - before))
        before += b - a
    return out


def first_of_replicas(tensor: Any) -> bool:
    """Whether this rank counts, of those that hold the same part: it is the first along each replicated dimension."""
    at = tensor.device_mesh.get_coordinate()
    return at is not None and all(
        c == 0 or not p.is_replicate() for c, p in zip(at, tensor.placements, strict=True)
    )


def lanes(tensor: Any) -> torch.Tensor:
    """What this rank's part of a tensor adds to the two lanes of the whole: int64[2] on the part's device.

    A plain tensor is whole. Of `n` replicas each gives the same; whoever adds up counts one of them.
    Raises `NoShare` where the part cannot be placed, `KeyError` for element sizes other than 1, 2, 4 and 8 bytes.
    """
    if not hasattr(tensor, "placements"):
        return d.lanes(tensor)
    return share(tensor.to_local(), tensor.shape, ranges(tensor))


def share(local: torch.Tensor, shape: Sequence[int], held: Sequence[Ranges]) -> torch.Tensor:
    """What a part adds to the lanes of a tensor of a shape, int64[2]. `held`: the places of each dimension it has."""
    import torch

    words = d.words(local)
    total = torch.zeros(2, dtype=torch.int64, device=words.device)
    if not words.numel():
        return total
    of_one = words.numel() // local.numel()
    cut_dims = [n for n, r in enumerate(held) if r != [(0, int(shape[n]))]]
    inner = cut_dims[-1] if cut_dims else 0
    below = of_one * prod(int(n) for n in shape[inner + 1 :])
    rows = _starts(shape, held, inner, of_one)
    across = sum(b - a for a, b in held[inner]) * below if held else of_one
    body, left = words.view(-1, across), 0
    for a, b in held[inner] if held else [(0, 1)]:
        length = (b - a) * below
        total += _runs(body[:, left : left + length], rows + a * below)
        left += length
    return total


def start(shape: Sequence[int], held: Sequence[Ranges]) -> int | None:
    """Index of the first element of a part that is contiguous in the whole tensor; None where it is in pieces."""
    first, whole = 0, True
    for n in reversed(range(len(held))):
        if len(held[n]) != 1 or not (whole or held[n][0][1] - held[n][0][0] == 1):
            return None
        first += held[n][0][0] * prod(int(s) for s in shape[n + 1 :])
        whole = whole and held[n][0] == (0, int(shape[n]))
    return first


def _starts(shape: Sequence[int], held: Sequence[Ranges], inner: int, of_one: int) -> torch.Tensor:
    """Index of the first word of each row, int64[rows] on the host; a row is all of the dimensions from `inner` on."""
    import torch

    rows = torch.zeros(1, dtype=torch.int64, device="cpu")
    for n in range(inner):
        places = torch.cat([torch.arange(a, b, dtype=torch.int64, device="cpu") for a, b in held[n]])
        stride = of_one * prod(int(s) for s in shape[n + 1 :])
        rows = (rows[:, None] + places * stride).view(-1)
    return rows


def _runs(body: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """What runs of equal length add: row r of `body` is the words from index `starts[r]` on. Returns int64[2]."""
    import torch

    count, length = body.shape
    total = torch.zeros(2, dtype=torch.int64, device=body.device)
    if count == 1:
        return d.part(body[0], int(starts[0]))
    if body.device.type in d.BY_FLOATS:
        from . import digest_cpu

        if body.numel() >= SHARED * len((starts % d.BLOCK).unique()):
            return digest_cpu.runs(body, starts)
        if length >= SPACED and bool((starts.diff() == starts[1] - starts[0]).all()):
            return digest_cpu.spaced(body, starts)
    if length >= LONG:
        for r, start in enumerate(starts.tolist()):
            total += d.part(body[r], start)
        return total
    for left in range(0, length, _WIDTH):
        total += _windows(body[:, left : left + _WIDTH], starts + left)
    return total


def _windows(body: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """As `_runs`, for runs shorter than a block: many at once, each times its own window of the table."""
    import torch

    count, length = body.shape
    device = body.device
    rows = max(1, (_WORDS if device.type == "cpu" else _WORDS_ON_DEVICE) // length)
    total = torch.zeros(2, dtype=torch.int64, device=device)
    scratch = torch.empty(3, min(rows, count), length, dtype=torch.int64, device=device)
    for at in range(0, count, rows):
        first = starts[at : at + rows]
        wide, window, product = scratch[:, : len(first)]
        wide.copy_(body[at : at + rows]).bitwise_and_(d.mask(body))
        offsets, blocks = first % d.BLOCK, first // d.BLOCK
        begin = int(blocks.min())
        span = int(blocks.max()) + 2 - begin
        near, places = (blocks - begin).to(device), offsets.to(device)
        crossing = (offsets + length > d.BLOCK).nonzero().view(-1)
        over = crossing.to(device)
        beyond = places[over, None] + torch.arange(length, device=device) >= d.BLOCK
        for lane, table in enumerate(_twice(str(device))):
            torch.index_select(table.unfold(0, length, 1), 0, places, out=window)
            torch.mul(wide, window, out=product)
            multiplier = d.multipliers_from(lane, begin, span, device)
            total[lane] += (product.sum(1) * multiplier[near]).sum()
            if len(crossing):  # what stands in the next block counts with that block's multiplier
                after = (product[over] * beyond).sum(1)
                total[lane] += (after * (multiplier[near[over] + 1] - multiplier[near[over]])).sum()
    return total


@cache
def _twice(device: str) -> tuple[torch.Tensor, ...]:
    """The two lanes' tables, twice each, so that windows may go on over the end of a block."""
    return tuple(table.repeat(2) for table in d.tables(device))
