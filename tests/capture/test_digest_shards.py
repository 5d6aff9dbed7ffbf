"""The digest of a tensor is the same whole or cut: what shards add comes to the lanes of the whole, exactly."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from lineage.capture import digest, digest_cpu, digest_many, digest_shards

DTYPES = [
    getattr(torch, name)
    for name in (
        "float32",
        "float64",
        "bfloat16",
        "float16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    )
    if hasattr(torch, name)
]
MODULO = 1 << 64


def some_bits(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Random bits of a type, NaNs and all; of bool, its two values."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    size = torch.empty(0, dtype=dtype).element_size()
    return (
        torch.randint(0, 256, (prod(shape) * size,), dtype=torch.uint8, generator=g).view(dtype).view(shape)
    )


def as_torch_cuts(whole: Any, placements: Any, mesh: tuple[int, ...], at: tuple[int, ...]) -> Any:
    """The local part as torch's own placements split it, one dimension of the mesh after the other."""
    local = whole
    for p, size, nth in zip(placements, mesh, at, strict=True):
        if not p.is_replicate():
            local = p._split_tensor(local, size, with_padding=False)[0][nth]
    return local


def added(whole: Any, placements: Any, mesh: tuple[int, ...], *, turned: bool = False) -> list[int]:
    """The lanes that all ranks of a mesh come to, replicas counted once."""
    total = torch.zeros(2, dtype=torch.int64)
    for at in product(*map(range, mesh)):
        if any(c and p.is_replicate() for c, p in zip(at, placements, strict=True)):
            continue
        local = as_torch_cuts(whole, placements, mesh, at)
        if turned and local.ndim > 1:  # the same elements in memory of another order
            local = local.transpose(0, -1).contiguous().transpose(0, -1)
        held = digest_shards.cut(whole.shape, placements, mesh, at)
        total += digest_shards.share(local, whole.shape, held)
    return total.tolist()  # type: ignore[no-any-return]


@st.composite
def cut_tensors(draw: Any) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    """(shape, placements, mesh) of one or two dimensions of the mesh, uneven and empty shards among them."""
    shape = tuple(draw(st.lists(st.integers(1, 21), min_size=1, max_size=4)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    dims = st.integers(0, len(shape) - 1)
    kinds = st.one_of(
        st.just(Replicate()),
        dims.map(Shard),
        st.builds(lambda dim, factor: _StridedShard(dim, split_factor=factor), dims, st.integers(1, 4)),
    )
    return shape, tuple(draw(kinds) for _ in mesh), mesh


@settings(max_examples=300, deadline=None)
@given(cut_tensors(), st.sampled_from(DTYPES), st.booleans(), st.integers(0, 1000))
def test_shards_add_up_to_the_digest_of_the_whole(
    cut: tuple[tuple[int, ...], Any, tuple[int, ...]], dtype: Any, turned: bool, seed: int
) -> None:
    """For all shapes, types, strides, placements and meshes, as torch itself cuts."""
    shape, placements, mesh = cut
    whole = some_bits(shape, dtype, seed)
    assert added(whole, placements, mesh, turned=turned) == digest.lanes(whole).tolist()


WIDE = [
    ((70_000,), (Shard(0),), (3,)),
    ((), (Replicate(),), (2,)),
    ((40, 5000), (Shard(1),), (4,)),  # rows cross blocks
    ((64, 8192), (Shard(1),), (2,)),  # all rows begin at one place of a block
    ((9, 60_000), (Shard(1),), (2,)),  # long runs, few rows
    ((30, 50_257), (Shard(1),), (8,)),  # rows of an odd width: no two begin at the same place
    ((300, 7), (Shard(1),), (2,)),  # very short runs
    ((3, 41, 67, 5), (Shard(1), Shard(2)), (2, 3)),
    ((5, 33, 3001), (Shard(0), Shard(2)), (2, 2)),
    ((64, 1000), (_StridedShard(0, split_factor=2), Shard(0)), (2, 2)),
    ((96, 4099), (_StridedShard(1, split_factor=3), Shard(1)), (2, 3)),
    ((40_000, 96), (Shard(1),), (4,)),  # more runs than are kept at once
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize(("shape", "placements", "mesh"), WIDE, ids=str)
def test_shards_of_large_tensors_add_up_too(
    shape: tuple[int, ...], placements: Any, mesh: tuple[int, ...], dtype: Any
) -> None:
    """Each way of taking runs (one by one, as rows of a product, spaced out, by windows) gives the same value."""
    whole = some_bits(shape, dtype, 3)
    assert added(whole, placements, mesh) == digest.lanes(whole).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize(("length", "step"), [(9, 9), (700, 5000), (1024, 4096), (8000, 20_011)])
def test_all_ways_of_taking_runs_agree(dtype: Any, length: int, step: int) -> None:
    """What the CPU takes as products, a device takes by windows: the value does not depend on it."""
    words = digest.words(some_bits((50, length), dtype, 7)).view(50, length)
    starts = torch.arange(50) * step + 4000
    want = sum(digest.part(words[r], int(starts[r])) for r in range(50)).tolist()
    assert digest_cpu.runs(words, starts).tolist() == want
    assert digest_cpu.spaced(words, starts).tolist() == want
    by_windows = sum(
        digest_shards._windows(words[:, at : at + 1024], starts + at) for at in range(0, length, 1024)
    )
    assert by_windows.tolist() == want


def test_the_largest_words_are_summed_exactly() -> None:
    """All bits set in every word of a block is where float64 would round first, if it rounded."""
    for dtype in (torch.int32, torch.int16, torch.uint8):
        full = torch.full((5 * digest.BLOCK + 17,), -1 if dtype.is_signed else 255, dtype=dtype)
        word = (1 << (8 * full.element_size())) - 1
        want = []
        for lane, table in enumerate(digest.tables("cpu")):
            of_block = digest.multipliers(lane, 6, "cpu").tolist()
            multipliers = table.tolist()
            blocks = sum(of_block[:5]) * sum(multipliers) + of_block[5] * sum(multipliers[:17])
            want.append(word * blocks % MODULO)
        assert [v % MODULO for v in digest.lanes(full).tolist()] == want


def test_a_part_at_the_far_end_of_a_huge_tensor_needs_no_multipliers_of_what_lies_before() -> None:
    """Blocks beyond those whose multipliers are kept count as the format says."""
    first = digest.KEPT_BLOCKS * digest.BLOCK + 12_345
    t = torch.arange(9000, dtype=torch.int32)
    at = torch.arange(first, first + 9000)
    for lane, found in enumerate(digest.part(t, first).tolist()):
        blocks = digest.multipliers(lane, int(at[-1]) // digest.BLOCK + 1, "cpu")
        table = digest.tables("cpu")[lane]
        want = (t.long() * table[at % digest.BLOCK] * blocks[at // digest.BLOCK]).sum()
        assert found == int(want)


def test_a_partial_sum_has_no_share() -> None:
    """What ranks still have to add up is no part of a tensor, and is refused."""
    with pytest.raises(digest_shards.NoShare, match="partial sum"):
        digest_shards.cut((4, 4), (Partial(),), (2,), (0,))


TRIALS = 1 << 17


def multipliers(lane: int, places: Any) -> Any:
    blocks = digest.multipliers(lane, 4096, "cpu")
    return digest.tables("cpu")[lane][places % digest.BLOCK] * blocks[places // digest.BLOCK]


def share_of_zeros(differences: list[Any], bits: int) -> float:
    """How often the lowest bits that can differ, those above bit 31, are zero in all given lanes."""
    hit = torch.ones(TRIALS, dtype=torch.bool)
    for found in differences:
        hit &= (found & (((1 << bits) - 1) << 31)) == 0
    return float(hit.double().mean())


def test_two_flipped_top_bits_cancel_as_seldom_as_the_docstring_says() -> None:
    """On n bits instead of 33, odds of 2^-(n-1) in a lane, and those of both lanes multiply."""
    g = torch.Generator().manual_seed(5)
    one, two = (torch.randint(0, 1 << 24, (TRIALS,), generator=g) for _ in range(2))
    assert int((one == two).sum()) < 5
    differences = [(multipliers(lane, one) - multipliers(lane, two)) << 31 for lane in (0, 1)]
    for found, bits, odds in (
        (differences[:1], 9, 2**-8),
        (differences[1:], 9, 2**-8),
        (differences, 5, 2**-8),
    ):
        assert abs(share_of_zeros(found, bits) - odds) < 5 * (odds / TRIALS) ** 0.5


def test_a_rectangle_of_flipped_top_bits_cancels_as_seldom_as_the_docstring_says() -> None:
    """Same two places of two blocks, signs +, -, -, +: n * 2^-(n-1) on n bits, so 33 * 2^-32 on all of a lane."""
    g = torch.Generator().manual_seed(6)
    place = [torch.randint(0, digest.BLOCK, (TRIALS,), generator=g) for _ in range(2)]
    block = [torch.randint(0, 4096, (TRIALS,), generator=g) * digest.BLOCK for _ in range(2)]
    a, b, c, e = (multipliers(0, p + q) for p in place for q in block)
    apart = (place[0] != place[1]) & (block[0] != block[1])
    found = torch.where(apart, (a - b - c + e) << 31, torch.tensor(1 << 31))
    bits, odds = 10, 10 * 2**-9
    assert abs(share_of_zeros([found], bits) - odds) < 5 * (odds / TRIALS) ** 0.5 + 2 / 4096


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(cut_tensors(), st.sampled_from(DTYPES)), min_size=1, max_size=6), st.integers(0, 99)
)
def test_many_parts_at_once_add_up_to_the_wholes(cuts: list[Any], seed: int) -> None:
    """Small parts share passes, each with the multipliers of its own places."""
    wholes = [some_bits(shape, dtype, seed) for (shape, _, _), dtype in cuts]
    wholes += [some_bits((70_001,), torch.int16, seed), some_bits((3, 9000), torch.float32, seed)]
    ways = [(p, mesh) for (_, p, mesh), _ in cuts] + [((Shard(0),), (3,)), ((Shard(0),), (3,))]
    locals_, places, whose = [], [], []
    for i, (whole, (placements, mesh)) in enumerate(zip(wholes, ways, strict=True)):
        for at in product(*map(range, mesh)):
            if not any(c and p.is_replicate() for c, p in zip(at, placements, strict=True)):
                locals_.append(as_torch_cuts(whole, placements, mesh, at))
                places.append((whole.shape, digest_shards.cut(whole.shape, placements, mesh, at)))
                whose.append(i)
    total = torch.zeros(len(wholes), 2, dtype=torch.int64)
    total.index_add_(0, torch.tensor(whose), digest_many.lanes(locals_, places))
    assert total.tolist() == [digest.lanes(w).tolist() for w in wholes]


def test_a_device_that_multiplies_integers_comes_to_the_same_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on CUDA, run here: whole tensors, shards in one piece and in many, and many at once."""
    cases = []
    for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.complex64):
        for shape, placements, mesh in (*WIDE[:3], *WIDE[4:8]):
            cases.append((some_bits(shape, dtype, 11), placements, mesh))
    want = [digest.lanes(whole).tolist() for whole, _, _ in cases]
    small = [some_bits((n,), torch.int16, n) for n in (1, 4095, 9000)]
    places: list[Any] = [None, ((9000,), [[(4000, 8095)]]), ((30_000,), [[(11, 9011)]])]
    together = digest_many.lanes(small, places).tolist()
    monkeypatch.setattr(digest, "BY_FLOATS", ())
    assert [digest.lanes(whole).tolist() for whole, _, _ in cases] == want
    assert [added(*case) for case in cases] == want
    assert digest_many.lanes(small, places).tolist() == together
