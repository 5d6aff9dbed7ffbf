"""Digests of batches and samples: what is the same, and what is not, in whatever container."""

from __future__ import annotations

import pickle
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.capture import batch, batch_facts, digest_cpu, row_lanes
from lineage.capture import digest as d
from lineage.capture.batch_facts import BatchFacts

SEQUENCES = [torch.arange(3, 3 + n) for n in (4, 7, 2)]
OFFSETS = torch.tensor([0, 4, 11, 13], dtype=torch.int32)


def facts(b: Any, **said: Any) -> BatchFacts:
    return batch.fingerprint(b, **said).facts()


def padded(width: int, dtype: Any = torch.int64, filler: int = 0) -> dict[str, Any]:
    ids = torch.full((3, width), filler, dtype=dtype)
    mask = torch.zeros(3, width, dtype=torch.bool)
    for i, s in enumerate(SEQUENCES):
        ids[i, : len(s)], mask[i, : len(s)] = s.to(dtype), True
    return {"input_ids": ids, "attention_mask": mask}


def test_lanes_of_rows_are_the_sums_that_they_are_said_to_be() -> None:
    """Of floats each row has the lanes that `digest` gives it alone; large rows and many are cut without a trace."""
    g = torch.Generator().manual_seed(1)
    for shape in ((3, 5), (2, 4096), (2, 4097), (2, 3, 5000), (70, 9000)):
        t = torch.randn(shape, generator=g)
        want = torch.stack([d.lanes(row) for row in t])
        assert torch.equal(row_lanes.of_rows(t), want), shape
        assert torch.equal(row_lanes.of_rows(t.bfloat16())[1], d.lanes(t[1].bfloat16()))


def test_lanes_of_integers_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are int64 values mixed by x -> xC ^ (xC >> 32); the scratch limit does not show."""
    t = torch.randint(-(2**62), 2**62, (3, 9000), generator=torch.Generator().manual_seed(2))
    found = row_lanes.of_rows(t)
    row = [(v * d._GOLDEN) % 2**64 for v in t[1].tolist()]
    words = [v ^ (v >> 32) for v in row]
    for lane, table in enumerate(d.tables("cpu")):
        blocks = d.multipliers(lane, 3, "cpu").tolist()
        a = table.tolist()
        want = sum(w * a[i % 4096] * blocks[i // 4096] for i, w in enumerate(words)) % 2**64
        assert int(found[1, lane]) % 2**64 == want
    monkeypatch.setattr(row_lanes, "_AT_ONCE", 4096)
    assert torch.equal(row_lanes.of_rows(t), found)


def test_a_sample_is_the_same_padded_packed_jagged_or_in_a_list() -> None:
    """And with any width and filler of the padding, in any integer type, with offsets that end early."""
    late = torch.tensor([0, 4, 11, 13, 13, -1, 99])
    shapes: list[Any] = [
        padded(9),
        padded(16, torch.int32, filler=7),
        {"input_ids": torch.cat(SEQUENCES)[None], "cu_seqlens": OFFSETS},
        {"input_ids": torch.cat(SEQUENCES), "cu_seqlens": late},
        {"input_ids": list(SEQUENCES)},
        {"input_ids": [s.tolist() for s in SEQUENCES]},
        {"input_ids": torch.nested.nested_tensor(SEQUENCES, layout=torch.jagged)},
    ]
    found = [facts(s) for s in shapes]
    assert {tuple(f.rows.keys) for f in found} == {tuple(found[0].rows.keys)}
    assert {f.order_free for f in found} == {found[0].order_free}
    assert all(f.rows.tokens == [4, 7, 2] for f in found)
    assert len({f.digest for f in found}) > 3, "the whole is not the same: shapes and fields differ"
    assert all(not f.notes for f in found)


def test_tokens_of_id_0_at_the_end_count() -> None:
    """A sequence is not the same as one that is longer by zeros."""
    a = facts({"input_ids": [torch.tensor([5, 0, 0]), torch.tensor([5])]}).rows.keys
    assert a[0] != a[1]


def test_order_counts_in_one_digest_and_not_in_the_other() -> None:
    """Permuted rows: another digest, the same samples and sum; exchanged tokens: all is other."""
    ids = torch.randint(0, 99, (4, 32), generator=torch.Generator().manual_seed(3))
    b = {"input_ids": ids, "labels": ids + 1}
    turned = {k: v[[2, 0, 3, 1]] for k, v in b.items()}
    one, two = facts(b), facts(turned)
    assert one.digest != two.digest
    assert one.order_free == two.order_free
    assert sorted(one.rows.keys) == sorted(two.rows.keys)
    across = ids.clone()
    across[0, 5], across[1, 5] = ids[1, 5], ids[0, 5]  # sums over rows stay; what stands in them does not
    assert int(across[0, 5]) != int(ids[0, 5])
    other = facts({"input_ids": across, "labels": ids + 1})
    assert other.order_free != one.order_free
    assert len(set(other.rows.keys) & set(one.rows.keys)) == 2
    swapped = facts({"input_ids": ids + 1, "labels": ids})
    assert swapped.order_free != one.order_free, "what stands in which field counts"


def test_shards_of_a_batch_add_up_to_it() -> None:
    """The order-free digest of the whole is the sum of those of two ranks, however it was divided."""
    ids = torch.randint(0, 99, (6, 16), generator=torch.Generator().manual_seed(4))
    whole = facts({"input_ids": ids})
    for parts in (ids[:2], ids[2:]), (ids[::2], ids[1::2]):
        keys = [k for part in parts for k in facts({"input_ids": part}).rows.keys]
        assert batch_facts.hex_of(batch_facts.total(keys)) == whole.order_free


def test_a_change_of_one_element_is_always_found() -> None:
    """Each of 300 single changes, of any size, in ids, labels, masks and floats, changes the digest."""
    g = torch.Generator().manual_seed(5)
    b = padded(9) | {"x": torch.randn(3, 4, generator=g), "n": torch.arange(5)}
    before = facts(b).digest
    for i in range(300):
        name = list(b)[i % len(b)]
        t = b[name].clone()
        at = int(torch.randint(0, t.numel(), (1,), generator=g))
        flat = t.view(-1)
        if t.dtype == torch.bool:
            flat[at] = ~flat[at]
        elif t.is_floating_point():
            flat.view(torch.int32)[at] ^= 1 << (i % 32)
        else:
            flat[at] ^= 1 << (i % 63)
        assert facts(b | {name: t}).digest != before, (name, at, i)


def test_two_differences_in_the_top_bit_do_not_cancel() -> None:
    """Where a plain multilinear sum is blind: 2^63 times any odd number is 2^63."""
    ids = torch.zeros(1, 8, dtype=torch.int64)
    other = ids.clone()
    other[0, 1] = other[0, 6] = -(2**63)
    assert facts({"input_ids": ids}).digest != facts({"input_ids": other}).digest
    assert facts({"input_ids": ids}).rows.keys != facts({"input_ids": other}).rows.keys


@dataclass
class Packed:
    input_ids: Any
    labels: Any


Named = namedtuple("Named", "input_ids labels")


def test_containers_with_the_same_fields_are_one_batch() -> None:
    """dict, UserDict (as BatchEncoding is), dataclass, named tuple, numpy arrays."""
    ids = torch.arange(24).view(4, 6)
    kinds = [
        {"labels": ids + 1, "input_ids": ids},
        UserDict(input_ids=ids.int(), labels=ids + 1),
        Packed(ids, ids + 1),
        Named(ids, (ids + 1).short()),
        {"input_ids": ids.numpy(), "labels": ids + 1},
    ]
    found = [facts(k) for k in kinds]
    assert {f.digest for f in found} == {found[0].digest}
    assert {f.order_free for f in found} == {found[0].order_free}
    assert (found[0].samples, found[0].tokens, found[0].target_tokens) == (4, 24, 24)


def test_a_batch_encoding_of_transformers() -> None:
    """The real class, where it is installed."""
    transformers = pytest.importorskip("transformers")
    ids = torch.arange(24).view(4, 6)
    assert facts(transformers.BatchEncoding({"input_ids": ids})).digest == facts({"input_ids": ids}).digest


def test_images_and_floats_have_digests_by_sample_and_no_tokens() -> None:
    """uint8 and float images; what only tokens have is null."""
    for image in (
        torch.randn(4, 3, 8, 8),
        torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8),
        torch.randint(0, 255, (4, 8), dtype=torch.uint8),
    ):
        f = facts({"image": image, "label": torch.arange(4)})
        assert (f.samples, f.tokens, len(f.rows)) == (4, 0, 4)
        assert (f.target_tokens, f.length_max, f.padding, f.out_of_range, f.rows.tokens) == (None,) * 5
        assert facts(image[[1, 0, 2, 3]]).order_free == facts(image).order_free


def test_torchs_own_collate_of_two_columns_is_no_list_of_sequences() -> None:
    """[first column, second column]: four samples, not two."""
    b = torch.utils.data.default_collate([(i, i + 1) for i in range(4)])
    assert isinstance(b, list)
    assert facts(b).samples == 4


@pytest.mark.parametrize(
    "odd",
    [
        torch.zeros(2, 3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
        torch.ones(2, 3, dtype=torch.complex64),
        torch.zeros(0, 4, dtype=torch.int64),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.tensor(3),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        object(),
        [[[]]],
        None,
        {"a": {"b": {"c": b"x"}}},
        {"input_ids": torch.ones(2, 3, dtype=torch.int64), "cu_seqlens": torch.tensor([], dtype=torch.int32)},
        {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.ones(2, 5)},
        {"input_ids": torch.ones(2, 3, dtype=torch.int64), "position_ids": torch.tensor(0)},
        {"input_ids": torch.ones(2, 3, dtype=torch.uint16)},
        {"input_ids": torch.ones(2, 3, dtype=torch.int64), "lengths": torch.tensor([3, 3, 3])},
        {"domain": [], "sample_id": [1], "x": torch.ones(2, 3)},
    ],
    ids=lambda v: type(v).__name__,
)
def test_odd_batches_have_a_fingerprint(odd: Any) -> None:
    """Nothing raises, the digest is there, and another batch beside it is read all the same."""
    ids = torch.arange(24).view(4, 6)
    f = facts({"input_ids": ids, "odd": odd})
    assert len(f.digest) == 32
    assert len(facts(odd).digest) == 32
    assert (f.lowest, f.highest) == (0, 23)
    assert f.rows.keys or f.notes, "what is not read is said"


def test_a_fingerprint_can_be_pickled_and_says_the_same() -> None:
    """As it travels from a loader's worker."""
    f = batch.fingerprint(padded(9))
    again = pickle.loads(pickle.dumps(f))
    assert again.ready()
    assert again.facts() == f.facts()
    assert (again.samples, again.tokens) == (3, 27)


def test_the_random_state_and_the_batch_are_left_alone() -> None:
    """No random number is drawn; no element, version counter or gradient changes."""
    b = padded(9) | {"x": torch.randn(3, 4, requires_grad=True)}
    before, versions = torch.get_rng_state(), {k: v._version for k, v in b.items()}
    copies = {k: v.detach().clone() for k, v in b.items()}
    f = facts(b)
    assert f.digest
    assert torch.equal(torch.get_rng_state(), before)
    assert {k: v._version for k, v in b.items()} == versions
    assert all(torch.equal(copies[k], b[k]) for k in b)


def test_nothing_waits_for_the_device() -> None:
    """Up to the one copy per device, no operator reads a value back: it all runs on tensors without any content."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from lineage.capture import batch_stats
    from lineage.capture.batch_samples import Content
    from lineage.capture.batch_sheet import Sheet
    from lineage.capture.batch_view import Known, view

    known = Known(vocab_size=50, pad_id=0, bos_ids=(1,), eos_ids=(2, 3), placeholders=(-200,))
    row_lanes.of_rows(torch.ones(3, 9, dtype=torch.int64))
    batches = [
        padded(9) | {"labels": torch.ones(3, 9, dtype=torch.int64)},
        {"input_ids": torch.cat(SEQUENCES)[None], "cu_seqlens": OFFSETS},
        {"input_ids": torch.cat(SEQUENCES)[None], "position_ids": torch.arange(13)[None]},
        {"x": torch.randn(3, 5000)},
    ]
    for cache in (d.tables, d._kept, digest_cpu.digits, row_lanes._tables, row_lanes._first):
        cache.cache_clear()  # what real tensors left there, fake ones cannot be combined with, and the other way round
    try:
        with FakeTensorMode() as mode:
            for b in batches:
                fake = {k: mode.from_tensor(v) for k, v in b.items()}
                found, sheet = view(fake, known), Sheet()
                content = Content(found)
                for f in found.fields:
                    content.take(f, sheet)
                _, cut = content.put(sheet)
                batch_stats.measure(found, known, sheet, cut)
                assert sheet._parts
    finally:
        for cache in (d.tables, d._kept, digest_cpu.digits, row_lanes._tables, row_lanes._first):
            cache.cache_clear()
