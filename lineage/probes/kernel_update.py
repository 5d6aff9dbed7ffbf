"""Weights, moments and the update of Adam on CUDA: one launch that reads p, m and v once.

Second moments are squared after a scaling by 2^40, since squares of 1e-20 vanish in float32; where a program meets a
non-finite element or leaves the range, it adds again in float64, as in `kernel`.
"""

# Triton compiles the source of the functions below, so they hold to what Triton knows.
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from . import kernel
from .kernel import _value, _word

TILE = 1024
_SCALE = tl.constexpr(1099511627776.0)  # 2^40


@triton.jit
def _store(row, squares, largest, lowest, broken, exact, nan, pos, neg, read, SCALE: tl.constexpr, rare):
    """One partial row. `exact`, `nan`, `pos`, `neg` count only where the run was read again."""
    total = tl.sum(squares, axis=0).to(tl.float64) / (SCALE * SCALE)
    tl.store(row + 0, tl.where(rare, tl.sum(exact, axis=0), total))
    tl.store(row + 1, tl.max(largest, axis=0).to(tl.float64))
    tl.store(row + 2, tl.min(lowest, axis=0).to(tl.float64))
    tl.store(row + 3, tl.sum(nan, axis=0).to(tl.float64))
    tl.store(row + 4, tl.sum(pos, axis=0).to(tl.float64))
    tl.store(row + 5, tl.sum(neg, axis=0).to(tl.float64))
    tl.store(row + 6, read)
    tl.store(row + 7, 0.0)
    tl.store(row + 8, 0.0)


@triton.jit
def _out_of_range(largest, broken, LOW: tl.constexpr, HIGH: tl.constexpr):
    top = tl.max(largest, axis=0)
    return (tl.sum(broken, axis=0) > 0) | (top > HIGH) | ((top > 0.0) & (top < LOW))


@triton.jit
def _again(
    address, other, third, first, count, k, e, decay,
    WHICH: tl.constexpr, KP: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr,
    TILE: tl.constexpr, PER: tl.constexpr, rare,
):  # fmt: skip
    """Sums in float64 and counts of one quantity, where `rare`: 0 weight, 1 and 2 moments, 3 update."""
    exact = tl.zeros([TILE], tl.float64)
    nan = tl.zeros([TILE], tl.int32)
    pos = tl.zeros([TILE], tl.int32)
    neg = tl.zeros([TILE], tl.int32)
    if rare:
        for i in range(PER):
            offsets = first + i * TILE + tl.arange(0, TILE)
            if WHICH == 0:
                x = _value(_word(address, offsets, count, KP, False, False), KP)
            elif WHICH == 1:
                x = _value(_word(other, offsets, count, KA, False, False), KA)
            elif WHICH == 2:
                x = _value(_word(third, offsets, count, KB, False, False), KB)
            else:
                p = _value(_word(address, offsets, count, KP, False, False), KP)
                a = _value(_word(other, offsets, count, KA, False, False), KA)
                b = _value(_word(third, offsets, count, KB, False, False), KB)
                x = decay * p + k * (a / (tl.sqrt(b) + e))
                x = tl.where(offsets < count, x, 0.0)
            clean = tl.where(tl.abs(x) < float("inf"), x, 0.0).to(tl.float64)
            exact += clean * clean
            nan += tl.where(x != x, 1, 0)
            pos += tl.where(x == float("inf"), 1, 0)
            neg += tl.where(x == float("-inf"), 1, 0)
    return exact, nan, pos, neg


@triton.jit
def _loop(
    at_p, at_a, at_b, first, count, k, e, decay,
    KP: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr, ALIGNED: tl.constexpr, SCALE: tl.constexpr,
    TILE: tl.constexpr, PER: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """One pass over a run of p, m and v: twelve sums per lane of the tile, three for each quantity and a count."""
    ps = tl.zeros([TILE], tl.float32)
    pt = tl.zeros([TILE], tl.float32)
    pl = tl.zeros([TILE], tl.float32)
    pb = tl.zeros([TILE], tl.int32)
    a_s = tl.zeros([TILE], tl.float32)
    at = tl.zeros([TILE], tl.float32)
    al = tl.zeros([TILE], tl.float32)
    ab = tl.zeros([TILE], tl.int32)
    bs = tl.zeros([TILE], tl.float32)
    bt = tl.zeros([TILE], tl.float32)
    bl = tl.zeros([TILE], tl.float32)
    bb = tl.zeros([TILE], tl.int32)
    us = tl.zeros([TILE], tl.float32)
    ut = tl.zeros([TILE], tl.float32)
    ul = tl.zeros([TILE], tl.float32)
    ub = tl.zeros([TILE], tl.int32)
    for i in range(PER):
        offsets = first + i * TILE + tl.arange(0, TILE)
        p = _value(_word(at_p, offsets, count, KP, ALIGNED, FULL), KP)
        a = _value(_word(at_a, offsets, count, KA, ALIGNED, FULL), KA)
        b = _value(_word(at_b, offsets, count, KB, ALIGNED, FULL), KB)
        u = decay * p + k * (a / (tl.sqrt(b) + e))
        if not FULL:
            u = tl.where(offsets < count, u, 0.0)
        fine = tl.abs(p) < float("inf")
        c = tl.where(fine, p, 0.0)
        ps += c * c
        pt = tl.maximum(pt, tl.abs(c))
        pl = tl.minimum(pl, c)
        pb += tl.where(fine, 0, 1)
        fine = tl.abs(a) < float("inf")
        c = tl.where(fine, a, 0.0)
        a_s += c * c
        at = tl.maximum(at, tl.abs(c))
        al = tl.minimum(al, c)
        ab += tl.where(fine, 0, 1)
        fine = tl.abs(b) < float("inf")
        c = tl.where(fine, b, 0.0)
        bs += (c * SCALE) * (c * SCALE)
        bt = tl.maximum(bt, tl.abs(c))
        bl = tl.minimum(bl, c)
        bb += tl.where(fine, 0, 1)
        fine = tl.abs(u) < float("inf")
        c = tl.where(fine, u, 0.0)
        us += c * c
        ut = tl.maximum(ut, tl.abs(c))
        ul = tl.minimum(ul, c)
        ub += tl.where(fine, 0, 1)
    return ps, pt, pl, pb, a_s, at, al, ab, bs, bt, bl, bb, us, ut, ul, ub


@triton.jit
def _partial(
    addresses,  # int64[3, tensors]: p, m, v
    counts,  # int64[tensors]
    factors,  # float64[3, tensors]: k, e, decay of `update.Factors`
    program_tensor,  # int32[programs]
    program_first,  # int64[programs]
    partial,  # float64[4, programs, 9]: weight, moment1, moment2, update
    tensors,
    programs,
    KP: tl.constexpr,
    KA: tl.constexpr,
    KB: tl.constexpr,
    ALIGNED: tl.constexpr,
    SCALE: tl.constexpr,
    TILE: tl.constexpr,
    PER: tl.constexpr,
):
    program = tl.program_id(0)
    tensor = tl.load(program_tensor + program)
    first = tl.multiple_of(tl.load(program_first + program), 1024)
    count = tl.load(counts + tensor)
    at_p = tl.load(addresses + tensor)
    at_a = tl.load(addresses + tensors + tensor)
    at_b = tl.load(addresses + 2 * tensors + tensor)
    k = tl.load(factors + tensor).to(tl.float32)
    e = tl.load(factors + tensors + tensor).to(tl.float32)
    decay = tl.load(factors + 2 * tensors + tensor).to(tl.float32)
    if first + TILE * PER <= count:
        ps, pt, pl, pb, a_s, at, al, ab, bs, bt, bl, bb, us, ut, ul, ub = _loop(
            at_p, at_a, at_b, first, count, k, e, decay, KP, KA, KB, ALIGNED, SCALE, TILE, PER, True,
        )  # fmt: skip
    else:
        ps, pt, pl, pb, a_s, at, al, ab, bs, bt, bl, bb, us, ut, ul, ub = _loop(
            at_p, at_a, at_b, first, count, k, e, decay, KP, KA, KB, ALIGNED, SCALE, TILE, PER, False,
        )  # fmt: skip
    read = tl.minimum(count - first, TILE * PER).to(tl.float64)
    rare = _out_of_range(pt, pb, 1e-15, 1e18)
    exact, nan, pos, neg = _again(at_p, at_a, at_b, first, count, k, e, decay, 0, KP, KA, KB, TILE, PER, rare)
    _store(partial + program * 9, ps, pt, pl, pb, exact, nan, pos, neg, read, 1.0, rare)
    rare = _out_of_range(at, ab, 1e-15, 1e18)
    exact, nan, pos, neg = _again(at_p, at_a, at_b, first, count, k, e, decay, 1, KP, KA, KB, TILE, PER, rare)
    _store(partial + (programs + program) * 9, a_s, at, al, ab, exact, nan, pos, neg, read, 1.0, rare)
    rare = _out_of_range(bt, bb, 1e-27, 1e6)
    exact, nan, pos, neg = _again(at_p, at_a, at_b, first, count, k, e, decay, 2, KP, KA, KB, TILE, PER, rare)
    _store(partial + (2 * programs + program) * 9, bs, bt, bl, bb, exact, nan, pos, neg, read, SCALE, rare)
    rare = _out_of_range(ut, ub, 1e-15, 1e18)
    exact, nan, pos, neg = _again(at_p, at_a, at_b, first, count, k, e, decay, 3, KP, KA, KB, TILE, PER, rare)
    _store(partial + (3 * programs + program) * 9, us, ut, ul, ub, exact, nan, pos, neg, read, 1.0, rare)


def launch(table: Any, factors: Any, rows: Any, out: Any, kinds: tuple[int, int, int], aligned: bool) -> None:
    """Read p, m and v of a table's tensors once into four rows each.

    `table`: a `table.Table` whose addresses are those of all p, then all m, then all v. `factors`: float64[3,
    tensors]. `rows`: int64[4 * tensors], weight, moment1, moment2, update.
    """
    partial = torch.empty(4 * table.programs, 9, dtype=torch.float64, device=out.device)
    _partial[(table.programs,)](
        table.addresses,
        table.counts,
        factors,
        table.program_tensor,
        table.program_first,
        partial,
        table.tensors,
        table.programs,
        KP=kinds[0],
        KA=kinds[1],
        KB=kinds[2],
        ALIGNED=aligned,
        SCALE=_SCALE,
        TILE=TILE,
        PER=kernel.RUN // TILE,
        num_warps=kernel._WARPS,
    )
    outer = torch.ones(4, table.tensors, dtype=torch.float64, device=out.device)
    outer[3] = 1.0 / (1.0 - factors[2])
    kernel.add_up(table, partial, out, rows, outer)
