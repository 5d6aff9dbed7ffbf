"""A batch as the model sees it: each oddity of labels, padding, special ids, packing and lengths is told."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage import ladder
from lineage.ladder.batch import NoTokens
from lineage.report import batch_page

PAD, BOS, EOS = 0, 1, 2
KNOWN = {"vocab_size": 50, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS}


def text(n: int, first: int = 3) -> list[int]:
    return [3 + (first + 7 * i) % 41 for i in range(n)]


def row(n: int, width: int = 16, first: int = 3) -> list[int]:
    return [BOS, *text(n - 2, first), EOS] + [PAD] * (width - n)


def batch(shift: int = 0, **changed: Any) -> dict[str, Any]:
    ids = torch.tensor([row(16), row(11, first=9)])
    labels = torch.full_like(ids, -100)
    labels[:, : 16 - shift] = ids[:, shift:]
    labels[labels == PAD] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long(), **changed}


def ask(given: Any, **more: Any) -> dict[str, schemas.Answer]:
    more.setdefault("known", KNOWN)
    return {a.question: a for a in ladder.show_batch(given, **more)[0].answers}


@pytest.mark.parametrize(
    ("shift", "shifts", "outcome", "said"),
    [
        (0, True, "pass", "the model shifts once more"),
        (1, False, "pass", "the model does not shift"),
        (1, True, "fail", "shifted twice"),
        (0, False, "fail", "not shifted at all"),
        (2, False, "fail", "shifted twice"),
        (2, True, "fail", "shifted three times"),
        (2, None, "fail", "shifted twice in the data already"),
        (0, None, "cannot_tell", "right for a model that shifts by itself"),
    ],
)
def test_labels_are_shifted_once_in_all(shift: int, shifts: bool | None, outcome: str, said: str) -> None:
    found = ask(batch(shift), shifts=shifts)["labels_shifted_once"]
    assert (found.outcome, said in found.text) == (outcome, True), found.text


def test_a_healthy_batch_passes_every_question() -> None:
    found = ask(batch(), shifts=True)
    assert {q: a.outcome for q, a in found.items() if a.outcome != "pass"} == {}


def test_other_targets_are_no_shift() -> None:
    given = batch()
    given["labels"] = (given["input_ids"] * 5 + 3) % 50
    assert ask(given)["labels_shifted_once"].outcome == "cannot_tell"


def test_another_ignore_index_is_named() -> None:
    given = batch()
    given["labels"][given["labels"] == -100] = -1
    found = ask(given)["ignore_index_is_known"]
    assert (found.outcome, found.text) == ("fail", "labels hold -1 (5 times); -100 is what the loss ignores")
    assert ask(given, known={**KNOWN, "ignore_index": -1})["ignore_index_is_known"].outcome == "pass"


@pytest.mark.parametrize("with_mask", [True, False])
def test_padding_that_counts_as_label_is_named_with_its_place(with_mask: bool) -> None:
    given = batch()
    given["labels"] = given["input_ids"].clone()
    if not with_mask:
        del given["attention_mask"]
    found = ask(given, shifts=True)["padding_is_no_label"]
    assert (found.outcome, found.names) == ("fail", ["row 1, place 11"])
    assert found.text.startswith("5 places of padding in 1 rows")


def test_padding_is_not_known_without_mask_and_id() -> None:
    given = {k: v for k, v in batch().items() if k != "attention_mask"}
    assert ask(given, known={"vocab_size": 50})["padding_is_no_label"].outcome == "cannot_tell"


def test_a_text_that_ends_with_the_token_that_pads_ends_with_one_of_them() -> None:
    """Many tokenizers pad with EOS: the first one is the end of the text, and is learnt."""
    ids = torch.tensor([[BOS, *text(9), EOS, EOS, EOS, EOS]])
    labels = ids.clone()
    labels[0, 11:] = -100
    known = {"vocab_size": 50, "pad_id": EOS, "eos_id": EOS, "bos_id": BOS}
    assert (
        ask({"input_ids": ids, "labels": labels}, known=known, shifts=True)["padding_is_no_label"].outcome
        == "pass"
    )


@pytest.mark.parametrize("how", ["labels", "loss_mask"])
def test_a_row_in_which_no_label_counts_is_named(how: str) -> None:
    given = batch()
    if how == "labels":
        given["labels"][0] = -100
    else:
        given["loss_mask"] = torch.ones_like(given["labels"])
        given["loss_mask"][0] = 0
    found = ask(given)["rows_have_labels"]
    assert (found.outcome, found.names) == ("fail", ["row 0"])


def test_bos_twice_is_named_and_a_tokenizer_without_special_ids_tells_nothing() -> None:
    given = batch()
    given["input_ids"][0, 1] = BOS
    assert ask(given)["special_tokens"].names == ["row 0"]
    found = ask(batch(), known={"vocab_size": 50})["special_tokens"]
    assert found.outcome == "cannot_tell"
    assert ask(batch())["special_tokens"].values["eos"].plain() == [1, 1]


def packed() -> dict[str, Any]:
    ids = torch.tensor([[BOS, *text(4), EOS, BOS, *text(6, 5), EOS]])
    return {"input_ids": ids, "labels": ids.clone()}


def test_packed_documents_need_positions_that_begin_again_or_something_that_keeps_them_apart() -> None:
    question = "packing_keeps_documents_apart"
    assert ask(packed())[question].outcome == "cannot_tell"
    through = {**packed(), "position_ids": torch.arange(14)[None]}
    found = ask(through)[question]
    assert (found.outcome, found.names) == ("fail", ["row 0, place 6"])
    again = {**packed(), "position_ids": torch.tensor([[*range(6), *range(8)]])}
    assert ask(again)[question].outcome == "pass"
    segments = {**packed(), "segment_ids": torch.tensor([[0] * 6 + [1] * 8])}
    assert ask(segments)[question].outcome == "pass"
    assert ask({**segments, "position_ids": torch.arange(14)[None]}, known={})[question].outcome == "fail"
    assert ask(batch())[question].text == "no row shows two documents"


def test_ids_out_of_range_are_named_with_place_and_value() -> None:
    given = batch()
    given["input_ids"][1, 3] = 50
    given["labels"][0, 2] = 1000
    found = ask(given)["ids_in_range"]
    assert found.names == ["ids row 1, place 3: 50", "labels row 0, place 2: 1000"]
    assert ask(given, known={**KNOWN, "placeholders": [50, 1000]})["ids_in_range"].outcome == "pass"


def test_near_empty_and_over_long_rows_are_named() -> None:
    ids = torch.tensor([row(64, 64), row(2, 64)])
    found = ask({"input_ids": ids, "attention_mask": (ids != PAD).long()})["rows_are_filled"]
    assert (found.outcome, found.names) == ("fail", ["row 1: 2 of 64"])

    class Short(torch.nn.Module):
        config = type("Config", (), {"max_position_embeddings": 32, "vocab_size": 50})()

    assert (
        "longer than the model's 32 positions"
        in ask({"input_ids": ids[:1]}, model=Short())["rows_are_filled"].text
    )


@dataclass
class Pair:
    x: Any
    y: Any


def test_every_container_is_read() -> None:
    """Tuples, dataclasses, nested dicts, lists of samples, jagged tensors, one packed row with its offsets."""
    whole = batch()
    ids, labels = whole["input_ids"], whole["labels"]
    kinds: list[Any] = [
        Pair(ids, labels),
        namedtuple("Named", "x y")(ids, labels),
        {"inner": {"input_ids": ids, "labels": labels}},
        [{"input_ids": a, "labels": b} for a, b in zip(ids, labels, strict=True)],
        {"input_ids": ids.flatten(), "labels": labels.flatten(), "cu_seqlens": torch.tensor([0, 16, 32])},
    ]
    for given in kinds:
        assert ask(given, shifts=True)["labels_shifted_once"].outcome == "pass", type(given)
    by_path = {**KNOWN, "fields": {"ids": "0", "labels": "1"}}
    assert ask((ids, labels), known=by_path, shifts=True)["labels_shifted_once"].outcome == "pass"
    jagged = torch.nested.nested_tensor([ids[0], ids[1][:11]], layout=torch.jagged)
    _, shown = ladder.show_batch({"input_ids": jagged}, known=KNOWN)
    assert [len(r) for r in shown.tokens.ids] == [16, 11]


def test_what_holds_no_tokens_is_said_with_what_it_holds() -> None:
    with pytest.raises(NoTokens, match=r"pixels \(float32\[2, 3\]\).*Name it"):
        ladder.show_batch({"pixels": torch.zeros(2, 3)})


def test_labels_that_are_absent_are_no_fault() -> None:
    found, _ = ladder.show_batch({"input_ids": batch()["input_ids"]}, known=KNOWN)
    assert found.outcome == "pass"
    assert {a.outcome for a in found.answers} == {"pass", "cannot_tell"}


def tokenizer() -> Any:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 50)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w3"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def test_a_tokenizer_of_transformers_tells_special_ids_and_reads_tokens(tmp_path: Path) -> None:
    found, shown = ladder.show_batch(batch(), tokenizer=tokenizer(), shifts=True)
    assert (shown.meaning.vocab_size, shown.meaning.pad_id, shown.meaning.eos_ids) == (50, 0, (2,))
    assert shown.text[0][:2] == ["<s>", f"w{text(1)[0]}"]
    page = batch_page.page(found, shown)
    assert "<td>&lt;s&gt;</td>" in page
    assert "http" not in page
    assert ladder.show_batch(batch(), tokenizer=lambda ids: f"<{ids[0]}>")[1].text[0][0] == "<1>"


def test_a_causal_model_of_transformers_is_known_to_shift_by_itself() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    assert ask(batch(1), model=model)["labels_shifted_once"].outcome == "fail"
    assert ask(batch(0), model=model)["labels_shifted_once"].outcome == "pass"
