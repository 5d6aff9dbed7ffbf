"""A batch as the model sees it: tokens, labels, masks, positions and documents beside each other, and what is odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .._rooms import schemas
from ..capture import batch_view
from ..capture.batch_view import Ragged, View
from ..capture.vocabulary import known_of
from ..judge import shown_batch as rules
from ..judge.shown_batch import Meaning, Tokens
from .answers import rung

SEGMENTS = ("segment_ids", "document_ids", "doc_ids", "seq_idx", "sequence_ids", "sequence_id", "document_id")
LIMITS = (
    "one batch: another may be odd where this one is not",
    "whether the text itself is right, a person has to read",
)


class NoTokens(ValueError):
    """There are no token ids to be shown; the text says what the batch has and what to give."""


@dataclass(frozen=True)
class Shown:
    """A batch to be printed."""

    tokens: Tokens
    meaning: Meaning
    text: list[list[str]]
    """each id as it reads; the id itself where nothing decodes"""
    fields: list[str]
    """everything that the batch holds, as `path: type`"""


def show_batch(
    batch: Any,
    *,
    tokenizer: Any = None,
    model: Any = None,
    shifts: bool | None = None,
    known: Mapping[str, Any] | None = None,
    built_by: str | None = None,
) -> tuple[schemas.Rung, Shown]:
    """Read a batch by the names of its fields: shift, ignore index, padding, special ids, packing, range, lengths.

    Args:
        batch: a dict, tuple, dataclass or nested containers of tensors, jagged tensors or lists, from the loader or a
            bundle.
        tokenizer: one of transformers or tokenizers, of tiktoken, or a function from a list of ids to text.
        model: tells vocabulary, special ids, positions, and whether it shifts labels by itself.
        shifts: whether the model shifts labels by itself, where `model` does not tell.
        known: what `attach(batches=...)` takes: `vocab_size`, `pad_id`, `bos_id`, `eos_id`, `ignore_index`, `fields`.

    Gives the rung, and the batch to be printed. Raises `NoTokens` where the batch shows no token ids.
    """
    given = {**_of_tokenizer(tokenizer), **(known or {})}
    words = known_of(model, given)
    view = batch_view.view(batch, words)
    if view.ids is None:
        parts = [f"{f.path.lstrip('.') or 'the batch'} ({_kind(f.value)})" for f in view.fields[:8]]
        held = ", ".join(parts) or "nothing"
        raise NoTokens(
            f"no field of the batch is known to hold token ids; it holds {held}. Name it: known={{'fields': "
            "{'ids': 'path', 'labels': 'path'}}"
        )
    tokens = _tokens(view)
    meaning = Meaning(
        ignore_index=words.ignore_index,
        vocab_size=words.vocab_size,
        pad_id=words.pad_id,
        bos_ids=words.bos_ids,
        eos_ids=words.eos_ids,
        placeholders=words.placeholders,
        longest=_longest(model),
        shifts=shifts if shifts is not None else _shifts(model),
        one_mask=(m := view.tensor("mask")) is not None and m.dim() > 2,
    )
    found = rules.answers(tokens, meaning)
    wrong = [a.text for a in found if a.outcome == "fail"]
    rows, width = len(tokens.ids), max(map(len, tokens.ids), default=0)
    made = rung(
        "batch",
        found,
        "; ".join(wrong) or f"{rows:,} rows of up to {width:,} tokens: nothing odd",
        main=rules.MAIN if tokens.labels is not None else ("ids_in_range",),
        parameters={"rows": rows, "width": width, "built_by": built_by},
        limits=LIMITS,
    )
    decode = _decoder(tokenizer)
    text = [[decode(i) for i in row] for row in tokens.ids]
    fields = [f"{f.path.lstrip('.') or 'batch'}: {_kind(f.value)}" for f in view.fields]
    return made, Shown(tokens, meaning, text, fields)


def _tokens(view: View) -> Tokens:
    ids = _grid(view.roles["ids"].value, view)
    assert ids is not None
    segments = next((f.value for f in view.fields if f.name in SEGMENTS), None)

    def like(value: Any) -> Any:
        found = None if value is None else _grid(value, view)
        same = found is not None and [len(r) for r in found] == [len(r) for r in ids]
        return found if same else None

    label = view.roles.get("labels")
    return Tokens(
        ids=ids,
        labels=like(None if label is None else label.value),
        mask=like(view.tensor("mask")),
        loss_mask=like(view.tensor("loss_mask")),
        positions=like(view.tensor("positions")),
        segments=like(segments),
    )


def _grid(value: Any, view: View) -> list[list[int]] | None:
    """Rows of integers: of a matrix, of sequences of unequal length, of one packed row with its offsets."""
    if isinstance(value, Ragged):
        at = [int(i) for i in value.offsets.tolist()]
        flat = value.values.tolist()
        return [flat[a:b] for a, b in pairwise(at)]
    if not hasattr(value, "tolist"):
        return None
    found = value.tolist()
    if value.dim() == 2:
        return [[int(v) for v in row] for row in found]
    if value.dim() != 1:
        return None
    offsets = view.tensor("offsets")
    if offsets is None:
        return [[int(v) for v in found]]
    at = [int(i) for i in offsets.flatten().tolist()]
    return [[int(v) for v in found[a:b]] for a, b in pairwise(at) if b > a]


def _kind(value: Any) -> str:
    if isinstance(value, Ragged):
        return f"{value.count} sequences of {str(value.values.dtype).removeprefix('torch.')}"
    if hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _of_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Special ids and the size of the vocabulary, as far as a tokenizer has them."""
    found: dict[str, Any] = {}
    asked = {"pad_id": ["pad_token_id"], "bos_id": ["bos_token_id"], "eos_id": ["eos_token_id", "eot_token"]}
    for word, names in asked.items():
        value = next((v for n in names if isinstance(v := getattr(tokenizer, n, None), int)), None)
        if value is not None:
            found[word] = value
    try:
        size = len(tokenizer) if hasattr(tokenizer, "__len__") else getattr(tokenizer, "n_vocab", None)
    except TypeError:
        size = None
    if isinstance(size, int):
        found["vocab_size"] = size
    return found


def _decoder(tokenizer: Any) -> Callable[[int], str]:
    """What reads one id; the number itself where nothing does."""
    if tokenizer is None:
        return str
    reads = getattr(tokenizer, "decode", tokenizer)

    def decode(i: int) -> str:
        try:
            return str(reads([i]))
        except Exception:  # an id that the tokenizer does not have is one of the things that are looked for
            return f"<{i}?>"

    return decode


def _longest(model: Any) -> int | None:
    config = getattr(model, "config", None)
    found = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return found if isinstance(found, int) else None


def _shifts(model: Any) -> bool | None:
    """Causal language models of transformers shift labels by themselves; of others it is not known."""
    if model is None:
        return None
    own = any(c.__module__.startswith("transformers.") for c in type(model).__mro__)
    return True if own and type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")) else None
