"""One read: the same numbers whichever way, deterministic, and what cannot be read is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.capture import digest
from lineage.probes import columns, host, plain
from lineage.probes.read import Reader
from lineage.probes.readable import slices

from .tensors import DTYPES, awkward, truth


def check(found: dict[str, Any], rows: Any, *, digested: bool = False) -> None:
    """Each row says what is true of its tensor, to the last bit except the sum of squares."""
    for (name, tensor), row in zip(found.items(), rows.tolist(), strict=True):
        stats = columns.stats(row, digest=digested)
        assert stats is not None, name
        sumsq, *exact = truth(tensor)
        assert stats.sumsq == pytest.approx(sumsq, rel=2e-6, abs=0.0), name
        assert [
            stats.largest,
            stats.lowest,
            stats.n_nan,
            stats.n_posinf,
            stats.n_neginf,
            stats.elements,
        ] == exact, name
        if digested:
            assert list(stats.lanes or ()) == digest.lanes(tensor).tolist(), name


@pytest.mark.parametrize("digested", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_a_set_of_tensors_is_read_exactly_on_the_cpu(dtype: Any, digested: bool) -> None:
    found = awkward(dtype)
    out = torch.zeros(len(found), columns.WIDTH, dtype=torch.float64)
    assert Reader().read(list(found.values()), out, range(len(found)), digest=digested) == {}
    check(found, out, digested=digested)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_the_reference_that_runs_on_any_device_says_the_same(dtype: Any) -> None:
    found = awkward(dtype)
    out = torch.zeros(len(found), columns.WIDTH, dtype=torch.float64)
    for row, tensor in zip(out, found.values(), strict=True):
        plain.read([tensor.contiguous().view(-1)], row, digest=True)
    check(found, out, digested=True)


def test_a_sum_does_not_depend_on_the_number_of_threads() -> None:
    tensor = torch.randn(3_000_001, generator=torch.Generator().manual_seed(1))
    before = torch.get_num_threads()
    try:
        rows = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            rows.append(host.read([tensor]))
    finally:
        torch.set_num_threads(before)
    assert rows[0] == rows[1] == rows[2]


def test_digests_of_contiguous_shards_add_up_to_the_digest_of_the_whole() -> None:
    whole = torch.randn(40_001, generator=torch.Generator().manual_seed(1))
    cuts = [0, 5, 4096, 20_000, 20_001, 40_001]
    starts = cuts[:-1]
    shards = [whole[a:b] for a, b in zip(starts, cuts[1:], strict=True)]
    for way in ("host", "plain"):
        out = torch.zeros(len(shards), columns.WIDTH, dtype=torch.float64)
        if way == "host":
            Reader().read(shards, out, range(len(shards)), digest=True, starts=starts)
        else:
            for row, shard, start in zip(out, shards, starts, strict=True):
                plain.read([shard], row, digest=True, starts=[start])
        assert out.view(torch.int64)[:, 7:9].sum(0).tolist() == digest.lanes(whole).tolist(), way


def test_a_tensor_that_lies_in_pieces_is_one_row() -> None:
    whole = torch.randn(90_001, generator=torch.Generator().manual_seed(1))
    out = torch.zeros(2, columns.WIDTH, dtype=torch.float64)
    pieces = [whole[:7], whole[7:50_000], whole[50_000:]]
    assert Reader().read([pieces, torch.ones(3)], out, [0, 1], digest=True, starts=[[0, 7, 50_000], 0]) == {}
    check({"whole": whole, "ones": torch.ones(3)}, out, digested=True)


def test_a_flat_buffer_is_read_where_it_lies_and_padding_stays_out() -> None:
    """Padding holds NaN here, as uninitialised memory may: it is excluded by its place, not by its value."""
    flat = torch.full((1000,), math.nan)
    flat[3:103], flat[110:610] = 1.0, 2.0
    views = slices(flat, {"a": (3, 100), "b": (110, 500)})
    assert all(v.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr() for v in views.values())
    out = torch.zeros(2, columns.WIDTH, dtype=torch.float64)
    assert Reader().read(list(views.values()), out, [0, 1]) == {}
    assert out[:, columns.SUMSQ].tolist() == pytest.approx([100.0, 2000.0], rel=1e-6)
    assert out[:, columns.N_NAN].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="b: elements 900 to 1001 lie outside the buffer of 1000"):
        slices(flat, {"b": (900, 101)})


def freed() -> Any:
    t = torch.ones(10)
    t.untyped_storage().resize_(0)
    return t


REFUSED = {
    "meta": (lambda: torch.ones(3, device="meta"), "a meta tensor holds no values"),
    "sparse": (lambda: torch.ones(3, 3).to_sparse(), "its layout is sparse_coo"),
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantised"),
    "complex": (lambda: torch.ones(3, dtype=torch.complex64), "complex"),
    "empty": (lambda: torch.ones(0), "empty"),
    "integers": (lambda: torch.ones(3, dtype=torch.int64), "int64 has neither NaN nor infinity"),
    "freed": (freed, "its storage was freed"),
    "no tensor": (lambda: "text", "str is no tensor"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_said_and_the_others_are_read(name: str) -> None:
    make, reason = REFUSED[name]
    out = torch.zeros(3, columns.WIDTH, dtype=torch.float64)
    refused = Reader().read([torch.ones(4), make(), torch.ones(9)], out, [0, 1, 2])
    assert list(refused) == [1]
    assert reason in refused[1]
    assert out[:, columns.READ].tolist() == [4.0, 0.0, 9.0]
    assert columns.stats(out[1].tolist()) is None


def test_running_out_of_memory_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(flats: Any, **_: Any) -> list[float]:
        if flats[0].numel() == 2:
            raise torch.OutOfMemoryError("no room")
        return [1.0] * 9

    monkeypatch.setattr(host, "read", read)
    out = torch.zeros(2, columns.WIDTH, dtype=torch.float64)
    assert Reader().read([torch.ones(2), torch.ones(1)], out, [0, 1]) == {0: "OutOfMemoryError while reading"}
    assert out[1].tolist() == [1.0] * 9


def test_an_absent_tensor_leaves_its_row_alone() -> None:
    out = torch.full((2, columns.WIDTH), 7.0, dtype=torch.float64)
    assert Reader().read([None, torch.zeros(5)], out, [0, 1]) == {}
    assert out[0].tolist() == [7.0] * 9
    assert out[1].tolist() == [0.0] * 6 + [5.0, 0.0, 0.0]


def test_a_norm_is_what_arithmetic_gives_and_the_finite_part_is_kept_beside() -> None:
    row = [4.0, 2.0, 0.0, 0.0, 1.0, 0.0, 5.0, 0.0, 0.0]
    stats = columns.stats(row)
    assert stats is not None
    assert (stats.norm, stats.norm_of_finite, stats.finite) == (math.inf, 2.0, False)
    row[columns.N_NAN] = 1.0
    stats = columns.stats(row)
    assert stats is not None
    assert math.isnan(stats.norm)
