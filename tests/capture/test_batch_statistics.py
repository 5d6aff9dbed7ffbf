"""Statistics of batches: what is shown is counted exactly, and what is not shown is null."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.capture import batch
from lineage.capture.batch_facts import BatchFacts
from lineage.capture.batch_view import Known
from lineage.capture.vocabulary import known_of

KNOWN = Known(vocab_size=50, pad_id=0, bos_ids=(1,), eos_ids=(2, 3))


def facts(b: Any, known: Known = KNOWN, **said: Any) -> BatchFacts:
    return batch.fingerprint(b, known, **said).facts()


def test_targets_lengths_masks_padding_and_special_tokens() -> None:
    """Of two padded sequences of 4 and 2 tokens."""
    f = facts(
        {
            "input_ids": torch.tensor([[1, 7, 8, 2, 0], [1, 3, 0, 0, 0]]),
            "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]),
            "labels": torch.tensor([[-100, 8, 2, -100, -100], [3, -100, -100, -100, -100]]),
        }
    )
    assert (f.samples, f.tokens, f.target_tokens, f.documents) == (2, 10, 3, None)
    assert (f.length_min, f.length_mean, f.length_max) == (2, 3.0, 4)
    assert (f.mask_density, f.padding) == (pytest.approx(0.6), pytest.approx(0.4))
    assert (f.bos, f.eos, f.pad, f.lowest, f.highest, f.out_of_range) == (2, 2, 4, 0, 8, 0)


def test_what_a_bare_matrix_does_not_show_is_null() -> None:
    """No mask, no labels, nothing known: tokens and the span of ids only."""
    f = facts(torch.arange(12).view(3, 4), Known())
    assert (f.samples, f.tokens, f.lowest, f.highest, f.out_of_range) == (3, 12, 0, 11, 0)
    nothing = (
        f.target_tokens,
        f.length_min,
        f.length_mean,
        f.length_max,
        f.mask_density,
        f.padding,
        f.documents,
    )
    assert nothing == (None,) * 7
    assert (f.bos, f.eos, f.pad, f.whole_domain, f.rows.ids, f.rows.domains) == (None,) * 6


def test_padding_by_a_pad_id_that_is_another_token_too_is_not_known() -> None:
    """GPT-2 pads with its end of text: without a mask nothing tells them apart."""
    ids = torch.tensor([[5, 2, 2, 2]])
    assert facts(ids, Known(pad_id=2)).padding == 0.75
    assert facts(ids, Known(pad_id=2, eos_ids=(2,))).padding is None
    assert facts(ids, Known(pad_id=2, eos_ids=(2,))).pad == 3


@pytest.mark.parametrize(
    "layout",
    [
        {"cu_seqlens": torch.tensor([0, 5, 7, 10, 10])},
        {"position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 0, 1, 2]])},
        {"lengths": torch.tensor([5, 2, 3])},
    ],
    ids=lambda v: next(iter(v)),
)
def test_lengths_of_packed_sequences(layout: dict[str, Any]) -> None:
    """By offsets, by positions that begin again, by lengths."""
    f = facts({"input_ids": torch.arange(10)[None], **layout})
    assert (f.length_min, f.length_mean, f.length_max) == (2, pytest.approx(10 / 3), 5)
    assert f.documents == (None if "lengths" in layout else 3)


def test_positions_that_do_not_begin_at_0_show_no_lengths() -> None:
    """A row that goes on in the middle of a document."""
    f = facts({"input_ids": torch.arange(6)[None], "position_ids": torch.tensor([[4, 5, 6, 0, 1, 2]])})
    assert (f.length_min, f.documents) == (None, None)


def test_ids_out_of_range_are_counted_by_row() -> None:
    """Below 0, beyond the vocabulary, in ids and in labels; the ignored index and declared placeholders are none."""
    b = {
        "input_ids": torch.tensor([[1, 2, 49], [50, -200, 3], [4, 5, 6]]),
        "labels": torch.tensor([[-100, 2, 49], [1, -100, 3], [4, 99, 6]]),
    }
    f = facts(b)
    assert (f.out_of_range, f.bad_rows, f.lowest, f.highest) == (3, [1, 2], -200, 50)
    allowed = facts(b, Known(vocab_size=51, placeholders=(-200,)))
    assert (allowed.out_of_range, allowed.bad_rows) == (1, [2])
    unknown = facts(b, Known())
    assert unknown.out_of_range == 1, "without a vocabulary only what is below 0 is certain"
    assert facts(b, Known(vocab_size=100, ignore_index=-1, placeholders=(-200,))).out_of_range == 2


def test_targets_under_a_loss_mask_and_labels_of_samples() -> None:
    """Megatron's loss mask counts with and without labels; one label per sample is no token's."""
    ids, chosen = torch.ones(2, 4, dtype=torch.int64), torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1]])
    assert facts({"tokens": ids, "loss_mask": chosen}).target_tokens == 4
    labels = torch.tensor([[9, 9, -100, 9], [9, 9, 9, 9]])
    assert facts({"tokens": ids, "labels": labels, "loss_mask": chosen}).target_tokens == 3
    assert facts({"tokens": ids, "labels": torch.tensor([0, 1])}).target_tokens is None
    assert facts({"tokens": ids, "labels": torch.ones(2, 3, dtype=torch.int64)}).target_tokens == 6


def test_a_mask_of_blocks_has_a_density_and_no_lengths() -> None:
    """[batch, 1, T, T], as packing without crossing documents has it."""
    blocks = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).bool()[None, None]
    f = facts({"input_ids": torch.ones(1, 4, dtype=torch.int64), "attention_mask": blocks}, Known())
    assert (f.mask_density, f.length_min, f.padding) == (0.5, None, None)


def test_ids_and_domains_of_samples_from_the_batch_and_from_the_loop() -> None:
    """Texts, integers and tensors; what the loop says stands above; of another number they are left out."""
    ids = torch.arange(12).view(3, 4)
    f = facts({"input_ids": ids, "idx": torch.tensor([7, 9, 8]), "domain": ["web", "code", "web"]})
    assert (f.rows.ids, f.rows.domains) == (["7", "9", "8"], ["web", "code", "web"])
    assert f.domain_counts() == {"web": 2, "code": 1}
    same = facts({"input_ids": ids, "idx": torch.tensor([1, 2, 3])})
    assert same.rows.keys == f.rows.keys, "the id is no content"
    said = facts({"input_ids": ids, "idx": [1, 2, 3]}, ids=["a", "b", "c"], domains="web")
    assert (said.rows.ids, said.whole_domain) == (["a", "b", "c"], "web")
    assert said.domain_counts() == {"web": 1}, "one draw"
    assert facts({"input_ids": ids}, ids=["a", "b"]).rows.ids is None
    packed = {"input_ids": torch.arange(9)[None], "cu_seqlens": torch.tensor([0, 4, 9, 9, 9])}
    assert facts(packed, ids=[5, 6], domains=["x", "y"]).rows.ids == ["5", "6"]


def test_fields_of_a_tuple_are_told_by_path() -> None:
    """`fields={"labels": "1"}` for loops that make pairs."""
    x = torch.arange(12).view(3, 4)
    pair = (x, torch.where(x < 6, x, -100))
    assert facts(pair).target_tokens is None
    assert facts(pair, Known(fields={"labels": "1"})).target_tokens == 6


def test_secrets_in_names_are_masked() -> None:
    """An id that looks like a key does not reach the ledger."""
    secret = "hf_" + "a1B2c3D4e5" * 4
    f = facts({"input_ids": torch.arange(12).view(1, 12)}, ids=[secret])
    assert secret not in f.rows.name(0)


class Wrapped(torch.nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def test_the_vocabulary_is_the_models_own() -> None:
    """A config's, through wrappers; else a token embedding's rows; an embedding of positions is none."""
    model = torch.nn.Module()
    model.wpe = torch.nn.Embedding(1024, 4)
    assert known_of(model, {}).vocab_size is None
    model.wte = torch.nn.Embedding(300, 4)
    assert known_of(Wrapped(model), {}).vocab_size == 300
    model.config = SimpleNamespace(vocab_size=256, pad_token_id=0, bos_token_id=None, eos_token_id=[2, 3])
    known = known_of(Wrapped(model), {})
    assert known.vocab_size == 300, "the embedding is padded: an id of 299 has a row"
    assert (known.pad_id, known.bos_ids, known.eos_ids, known.ignore_index) == (0, (), (2, 3), -100)
    said = known_of(model, {"vocab_size": 20, "eos_id": 9, "ignore_index": -1, "placeholders": [-200]})
    assert (said.vocab_size, said.eos_ids, said.ignore_index, said.placeholders) == (20, (9,), -1, (-200,))
    assert known_of(None, {}).vocab_size is None
    with pytest.raises(ValueError, match="takes ignore_index, vocab_size"):
        known_of(None, {"vocabsize": 3})
