"""Batches that hold their samples one by one, objects of a loop's own class, and content that no sample owns."""

from __future__ import annotations

import types
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from lineage.capture import batch
from lineage.capture.batch_facts import BatchFacts

SEQUENCES = [torch.arange(3, 3 + n) for n in (9, 7, 12)]
LISTS = [s.tolist() for s in SEQUENCES]
IDS = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(1))


def facts(b: Any, **said: Any) -> BatchFacts:
    return batch.fingerprint(b, **said).facts()


@dataclass
class Sample:
    input_ids: Any
    label: int = 1


@pytest.mark.parametrize(
    "one_by_one",
    [
        [{"input_ids": s, "label": 1} for s in SEQUENCES],
        [{"input_ids": s, "label": 1} for s in LISTS],
        [{"input_ids": s.numpy(), "label": torch.tensor(1)} for s in SEQUENCES],
        deque({"input_ids": s, "label": 1} for s in SEQUENCES),
        [Sample(s) for s in SEQUENCES],
        [(s, 1) for s in SEQUENCES],
        tuple(zip(*[(s, 1) for s in SEQUENCES], strict=True)),
        {"input_ids": [s.numpy() for s in SEQUENCES], "label": [1, 1, 1]},
    ],
    ids=["dicts", "lists", "arrays", "deque", "dataclasses", "tuples", "columns", "columns of arrays"],
)
def test_samples_that_stand_one_by_one_are_counted_and_read_as_such(one_by_one: Any) -> None:
    """Not the first sample alone, whose tokens would pass for samples."""
    f = facts(one_by_one)
    assert (f.samples, f.tokens, f.length_min, f.length_max) == (3, 28, 7, 12)
    assert (len(set(f.rows.keys)), f.rows.tokens) == (3, [9, 7, 12])
    assert not f.notes


def test_samples_of_one_length_are_no_columns() -> None:
    """Three samples of eight tokens, and images with a label each: stacked, they are one column."""
    f = facts([{"input_ids": torch.arange(8) + i, "labels": torch.arange(8)} for i in range(3)])
    assert (f.samples, f.tokens, f.target_tokens, len(set(f.rows.keys))) == (3, 24, 24, 3)
    images = facts([(torch.full((3, 4, 4), float(i)), 1) for i in range(5)])
    assert (images.samples, len(set(images.rows.keys))) == (5, 5)


def test_a_pair_of_batches_is_no_list_of_samples() -> None:
    """Queries and passages, each a batch: the ids of the first are read as before."""
    pair = [{"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, {"input_ids": IDS[:2]}]
    assert facts(pair).samples == 4
    images = [{"pixel_values": torch.ones(6, 3, 4, 4), "labels": torch.arange(6)} for _ in range(2)]
    assert facts(images).samples == 6


class Own:
    """A loop's own class of batches."""

    def __init__(self, ids: Any) -> None:
        self.input_ids = ids
        self._cache = object()


def test_an_object_that_holds_tensors_is_read_and_another_is_said_not_to_be() -> None:
    """Its digest is that of its content; of what is not read it is said, for its digest tells nothing."""
    assert facts(Own(IDS)).digest == facts({"input_ids": IDS}).digest != facts(Own(IDS + 1)).digest
    assert facts(types.SimpleNamespace(input_ids=IDS)).tokens == 64
    for odd in (object(), iter([IDS]), {1, 2}, torch.eye(3).to_sparse()):
        assert "content of" in facts(odd).notes[0]


@pytest.mark.parametrize(
    ("b", "divided"),
    [
        ({"label": torch.tensor([0, 1, 0, 1]), "text": ["a", "b", "c", "d"]}, True),
        ({"label": torch.tensor([0, 1, 0, 1]), "image": [torch.ones(3, i, i) for i in range(2, 6)]}, False),
        ([(torch.ones(4, i, i), 1) for i in range(2, 6)], False),
        ({"label": torch.tensor([0, 1, 0, 1]), "graph": torch.eye(4).to_sparse()}, False),
        ({"input_ids": IDS[:1].expand(4, 16), "pixel_values": torch.rand(20, 6)}, False),
        (tuple(zip(*[(torch.ones(12).long(), torch.tensor(1)) for _ in range(4)], strict=True)), False),
    ],
    ids=[
        "texts",
        "images of unequal size",
        "their pairs",
        "sparse",
        "patches of all images",
        "rows of equal length",
    ],
)
def test_no_sample_is_told_by_a_part_of_its_content(b: Any, divided: bool) -> None:
    """Equal labels or prompts beside other content are no duplicates: without the content there is no digest."""
    f = facts(b)
    assert f.samples == 4
    assert len(set(f.rows.keys)) == len(f.rows.keys) == (4 if divided else 0)
    assert divided or any("not divided by sample" in n for n in f.notes)


def test_what_tells_how_sequences_lie_is_no_content_by_its_other_names() -> None:
    """Kernel arguments and document numbers of packed batches leave a sample's digest alone, as does a float mask."""
    offsets = torch.tensor([0, 9, 16, 28])
    packed = {"input_ids": torch.cat(SEQUENCES)[None], "cu_seq_lens_q": offsets}
    more = {
        "cu_seq_lens_k": offsets,
        "seq_idx": torch.arange(3).repeat_interleave(torch.tensor([9, 7, 12]))[None],
    }
    assert facts(packed | more).rows.keys == facts(packed).rows.keys
    masked = facts({"input_ids": IDS, "attention_mask": torch.ones(4, 16)})
    assert masked.rows.keys == facts({"input_ids": IDS}).rows.keys


def test_shapes_of_what_is_read_are_told() -> None:
    """Of images and floats they are all there is beside the digest. Integers of any size are one type."""
    f = facts({"image": torch.ones(4, 3, 8, 8), "label": torch.ones(4).int(), "name": "x"})
    assert f.shapes == "image float32[4,3,8,8]; label int64[4]"
    assert facts(torch.ones(2, 5).bfloat16()).shapes == "bfloat16[2,5]"
    assert facts({"name": ["a", "b"]}).shapes is None


def test_a_loss_mask_of_floats_counts_targets() -> None:
    """As Megatron's batches have it."""
    chosen = torch.zeros(4, 16)
    chosen[:, :5] = 1.0
    assert facts({"tokens": IDS, "labels": IDS, "loss_mask": chosen}).target_tokens == 20


def test_ids_and_domains_that_are_too_few_are_said() -> None:
    """They cannot be told apart by sample, so none is kept; that is no silence."""
    f = facts({"input_ids": IDS}, ids=[1, 2], domains=["web", "code"])
    assert f.rows.ids is None
    assert f.notes == ("sample_ids: 2 of them for 4 samples", "domains: 2 of them for 4 samples")
