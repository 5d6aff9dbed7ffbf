"""One read on CUDA: Triton kernels over a table of pointers, one launch for a whole set of tensors.

The first kernel gives each program a run of one tensor and writes the program's partial row; the second adds the
partial rows of each tensor in a fixed order. Nothing is added atomically, so equal bits give equal sums.

In the common case a program does one pass: squares in float32 (at most 32 in a row per lane, then a tree), the
largest finite magnitude, a count of non-finite elements and, on demand, the digest's lanes. Where a program has
met a non-finite element or magnitudes whose squares vanish or overflow in float32, it reads its run again, which
lies in the cache, and adds in float64. That decision is the device's own: the host learns nothing and waits for
nothing.
"""

# The interpreter and the compiler both read the functions below as source, so they hold to what Triton knows.
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

RUN = 1 << 15
"""Elements per program."""
TILE, TILE_OF_DIGEST = 2048, 1024
"""Elements at a time: 64 bytes of float32 per thread in flight; half of that where the lanes need registers."""
_WARPS = 4


@triton.jit
def _load(pointers, offsets, count, FULL: tl.constexpr):
    """Elements at offsets; zeros from `count` on, which is not asked where the run is full."""
    if FULL:
        return tl.load(pointers + offsets)
    return tl.load(pointers + offsets, mask=offsets < count, other=0)


@triton.jit
def _word(address, offsets, count, KIND: tl.constexpr, ALIGNED: tl.constexpr, FULL: tl.constexpr):
    """Raw bits as int32, 16-bit types zero-extended. KIND: 0 float32, 1 bfloat16, 2 float16."""
    if KIND == 0:
        p32 = address.to(tl.pointer_type(tl.int32))
        if ALIGNED:
            p32 = tl.multiple_of(p32, 16)
        return _load(p32, offsets, count, FULL)
    p16 = address.to(tl.pointer_type(tl.int16))
    if ALIGNED:
        p16 = tl.multiple_of(p16, 16)
    return _load(p16, offsets, count, FULL).to(tl.int32) & 0xFFFF


@triton.jit
def _value(word, KIND: tl.constexpr):
    """The float32 value of raw bits."""
    if KIND == 0:
        return word.to(tl.float32, bitcast=True)
    if KIND == 1:
        return (word << 16).to(tl.float32, bitcast=True)
    return word.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _quickly(
    address,
    first,
    count,
    start,
    table0,
    table1,
    blocks0,
    blocks1,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    DIGEST: tl.constexpr,
    TILE: tl.constexpr,
    PER: tl.constexpr,
    FULL: tl.constexpr,
):
    """One pass over a run: squares, largest, non-finite elements and the lanes, each per lane of the tile.

    A full run is read without masks, or the compiler would load element by element.
    """
    lane = tl.arange(0, TILE)
    squares = tl.zeros([TILE], tl.float32)
    largest = tl.zeros([TILE], tl.float32)
    lowest = tl.zeros([TILE], tl.float32)
    broken = tl.zeros([TILE], tl.int32)
    sum0 = tl.zeros([TILE], tl.int64)
    sum1 = tl.zeros([TILE], tl.int64)
    for i in tl.range(0, PER, loop_unroll_factor=2):
        offsets = first + i * TILE + lane
        word = _word(address, offsets, count, KIND, ALIGNED, FULL)
        x = _value(word, KIND)
        finite = tl.abs(x) < float("inf")  # false for NaN too
        clean = tl.where(finite, x, 0.0)
        squares += clean * clean
        largest = tl.maximum(largest, tl.abs(clean))
        lowest = tl.minimum(lowest, clean)
        broken += tl.where(finite, 0, 1)
        if DIGEST:
            index = start + offsets  # a tile lies in one block of 4,096 words, or in two
            block = (start + first + i * TILE) >> 12
            here = index >> 12 == block
            place = index & 4095
            wide = word.to(tl.int64) & 0xFFFFFFFF
            m0 = tl.where(here, tl.load(blocks0 + block), tl.load(blocks0 + block + 1))
            m1 = tl.where(here, tl.load(blocks1 + block), tl.load(blocks1 + block + 1))
            sum0 += wide * (tl.load(table0 + place) * m0)
            sum1 += wide * (tl.load(table1 + place) * m1)
    return squares, largest, lowest, broken, sum0, sum1


@triton.jit
def _partial(
    addresses,  # int64[tensors]
    counts,  # int64[tensors], elements
    starts,  # int64[tensors], index of the first element in the unsharded tensor
    program_tensor,  # int32[programs]
    program_first,  # int64[programs], first element of the program's run
    table0,  # int64[4096]
    table1,
    blocks0,  # int64[blocks], a run more than the last element's block
    blocks1,
    partial,  # float64[programs, 9]
    partial_bits,  # the same memory as int64
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    DIGEST: tl.constexpr,
    TILE: tl.constexpr,
    PER: tl.constexpr,
):
    program = tl.program_id(0)
    tensor = tl.load(program_tensor + program)
    first = tl.multiple_of(tl.load(program_first + program), 1024)
    address = tl.load(addresses + tensor)
    count = tl.load(counts + tensor)
    start = tl.load(starts + tensor)
    if first + TILE * PER <= count:
        squares, largest, lowest, broken, sum0, sum1 = _quickly(
            address, first, count, start, table0, table1, blocks0, blocks1,
            KIND, ALIGNED, DIGEST, TILE, PER, True,
        )  # fmt: skip
    else:
        squares, largest, lowest, broken, sum0, sum1 = _quickly(
            address, first, count, start, table0, table1, blocks0, blocks1,
            KIND, ALIGNED, DIGEST, TILE, PER, False,
        )  # fmt: skip

    top = tl.max(largest, axis=0)
    bad = tl.sum(broken, axis=0)
    total = tl.sum(squares, axis=0).to(tl.float64)
    n_nan = 0.0
    n_pos = 0.0
    n_neg = 0.0
    if (bad > 0) | (top > 1e18) | ((top > 0.0) & (top < 1e-15)):
        exact = tl.zeros([TILE], tl.float64)
        nan = tl.zeros([TILE], tl.int32)
        pos = tl.zeros([TILE], tl.int32)
        neg = tl.zeros([TILE], tl.int32)
        for i in range(PER):
            offsets = first + i * TILE + tl.arange(0, TILE)
            x = _value(_word(address, offsets, count, KIND, ALIGNED, False), KIND)
            clean64 = tl.where(tl.abs(x) < float("inf"), x, 0.0).to(tl.float64)
            exact += clean64 * clean64
            nan += tl.where(x != x, 1, 0)
            pos += tl.where(x == float("inf"), 1, 0)
            neg += tl.where(x == float("-inf"), 1, 0)
        total = tl.sum(exact, axis=0)
        n_nan = tl.sum(nan, axis=0).to(tl.float32)
        n_pos = tl.sum(pos, axis=0).to(tl.float32)
        n_neg = tl.sum(neg, axis=0).to(tl.float32)

    row = partial + program * 9
    tl.store(row + 0, total)
    tl.store(row + 1, top.to(tl.float64))
    tl.store(row + 2, tl.min(lowest, axis=0).to(tl.float64))
    tl.store(row + 3, n_nan)
    tl.store(row + 4, n_pos)
    tl.store(row + 5, n_neg)
    tl.store(row + 6, tl.minimum(count - first, TILE * PER).to(tl.float64))
    bits = partial_bits + program * 9
    tl.store(bits + 7, tl.sum(sum0, axis=0))
    tl.store(bits + 8, tl.sum(sum1, axis=0))


@triton.jit
def _total(
    partial,  # float64[quantities, programs, 9]
    partial_bits,
    bounds,  # int64[tensors + 1], first program of each tensor
    rows,  # int64[quantities, tensors], where each result goes in `out`
    factors,  # float64[quantities, tensors], by which elements are taken
    out,  # float64[*, 9]
    out_bits,
    programs,
    tensors,
    FACTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    tensor = tl.program_id(0)
    quantity = tl.program_id(1)
    first = tl.load(bounds + tensor)
    last = tl.load(bounds + tensor + 1)
    row = tl.load(rows + quantity * tensors + tensor)
    lane = tl.arange(0, WIDE)
    squares = tl.zeros([WIDE], tl.float64)
    largest = tl.zeros([WIDE], tl.float64)
    lowest = tl.zeros([WIDE], tl.float64)
    nan = tl.zeros([WIDE], tl.float64)
    pos = tl.zeros([WIDE], tl.float64)
    neg = tl.zeros([WIDE], tl.float64)
    read = tl.zeros([WIDE], tl.float64)
    sum0 = tl.zeros([WIDE], tl.int64)
    sum1 = tl.zeros([WIDE], tl.int64)
    for at in range(first, last, WIDE):
        mask = at + lane < last
        place = (quantity * programs + at + lane) * 9
        squares += tl.load(partial + place, mask=mask, other=0.0)
        largest = tl.maximum(largest, tl.load(partial + place + 1, mask=mask, other=0.0))
        lowest = tl.minimum(lowest, tl.load(partial + place + 2, mask=mask, other=0.0))
        nan += tl.load(partial + place + 3, mask=mask, other=0.0)
        pos += tl.load(partial + place + 4, mask=mask, other=0.0)
        neg += tl.load(partial + place + 5, mask=mask, other=0.0)
        read += tl.load(partial + place + 6, mask=mask, other=0.0)
        sum0 += tl.load(partial_bits + place + 7, mask=mask, other=0)
        sum1 += tl.load(partial_bits + place + 8, mask=mask, other=0)
    by = 1.0
    if FACTOR:
        by = tl.load(factors + quantity * tensors + tensor)
    tl.store(out + row * 9 + 0, tl.sum(squares, axis=0) * by * by)
    tl.store(out + row * 9 + 1, tl.max(largest, axis=0) * by)
    tl.store(out + row * 9 + 2, tl.min(lowest, axis=0) * by)
    tl.store(out + row * 9 + 3, tl.sum(nan, axis=0))
    tl.store(out + row * 9 + 4, tl.sum(pos, axis=0))
    tl.store(out + row * 9 + 5, tl.sum(neg, axis=0))
    tl.store(out + row * 9 + 6, tl.sum(read, axis=0))
    tl.store(out_bits + row * 9 + 7, tl.sum(sum0, axis=0))
    tl.store(out_bits + row * 9 + 8, tl.sum(sum1, axis=0))


def launch(table: Any, out: Any, rows: Any, kind: int, aligned: bool, lanes: Any) -> None:
    """Read the tensors of a table into rows of `out`. `lanes`: (table, table, blocks, blocks), or None.

    `table`: see `table.Table`. `rows`: int64[tensors] on the device.
    """
    partial = torch.empty(table.programs, 9, dtype=torch.float64, device=out.device)
    bits = partial.view(torch.int64)
    a, b, c, d = lanes if lanes is not None else (bits,) * 4
    tile = TILE if lanes is None else TILE_OF_DIGEST
    _partial[(table.programs,)](
        table.addresses,
        table.counts,
        table.starts,
        table.program_tensor,
        table.program_first,
        a,
        b,
        c,
        d,
        partial,
        bits,
        KIND=kind,
        ALIGNED=aligned,
        DIGEST=lanes is not None,
        TILE=tile,
        PER=RUN // tile,
        num_warps=_WARPS,
    )
    add_up(table, partial, out, rows)


def add_up(table: Any, partial: Any, out: Any, rows: Any, factors: Any = None) -> None:
    """Add the partial rows of each tensor: `partial` is float64[quantities * programs, 9], `rows` int64[quantities *
    tensors], `factors` float64 alike."""
    quantities = len(partial) // table.programs
    _total[(table.tensors, quantities)](
        partial,
        partial.view(torch.int64),
        table.bounds,
        rows,
        factors if factors is not None else partial,
        out,
        out.view(torch.int64),
        table.programs,
        table.tensors,
        FACTOR=factors is not None,
        WIDE=128,
        num_warps=_WARPS,
    )
