"""What a model and the loop tell of token ids: how many there are, and which are special."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .batch_view import IGNORE, Known
from .names import clean

EMBEDDINGS = (
    "wte",
    "embed_tokens",
    "tok_embeddings",
    "tok_embedding",
    "token_embedding",
    "token_embeddings",
    "token_embedding_table",
    "tok_emb",
    "word_embeddings",
    "word_embedding",
    "embed_in",
)
"""What the embedding of token ids is called in well-known code. Any other embedding may be of something else."""
WORDS = ("ignore_index", "vocab_size", "pad_id", "bos_id", "eos_id", "placeholders", "fields")
"""What `attach(batches={...})` takes."""


def known_of(model: Any, given: Mapping[str, Any]) -> Known:
    """Put together what the loop said and what the model's config or its token embedding shows.

    Raises `ValueError` for a word that nobody knows, `TypeError` for a value of the wrong form.
    """
    unknown = set(given) - set(WORDS)
    if unknown:
        raise ValueError(f"batches= takes {', '.join(WORDS)}; not {', '.join(sorted(unknown))}")
    config = next((c for m in _inner(model) if (c := getattr(m, "config", None)) is not None), None)
    vocabulary = given.get("vocab_size")
    if vocabulary is None:
        vocabulary = _count(_read(config, "vocab_size"))
        rows = _rows(model)
        if vocabulary is None or (rows is not None and rows > vocabulary):
            vocabulary = (
                rows  # an embedding may be padded beyond the vocabulary, and an id of the padding has a row
            )
    pad = given.get("pad_id")
    return Known(
        ignore_index=int(given.get("ignore_index", IGNORE)),
        vocab_size=None if vocabulary is None else int(vocabulary),
        pad_id=int(pad) if pad is not None else _count(_read(config, "pad_token_id")),
        bos_ids=_several(given.get("bos_id", _read(config, "bos_token_id"))),
        eos_ids=_several(given.get("eos_id", _read(config, "eos_token_id"))),
        placeholders=_several(given.get("placeholders")),
        fields=dict(given.get("fields") or {}),
    )


def _inner(model: Any) -> Iterator[Any]:
    """The model and what its wrappers hold: DDP, FSDP, torch.compile."""
    for _ in range(8):
        if model is None:
            return
        yield model
        own = getattr(model, "_modules", None) or {}
        model = own.get("module") or own.get("_orig_mod") or own.get("_fsdp_wrapped_module")


def _rows(model: Any) -> int | None:
    """Rows of the token embedding."""
    for m in _inner(model):
        try:
            found = m.get_input_embeddings()
        except (AttributeError, NotImplementedError):
            continue
        rows = _count(getattr(found, "num_embeddings", None))
        if rows is not None:
            return rows
    if not hasattr(model, "named_modules"):
        return None
    named = [
        rows
        for name, m in model.named_modules()
        if clean(f"{name}.").rstrip(".").rpartition(".")[2] in EMBEDDINGS
        and (rows := _count(getattr(m, "num_embeddings", None))) is not None
    ]
    return max(named, default=None)


def _read(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _several(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple | set) else [] if value is None else [value]
    return tuple(int(v) for v in values if type(v) is int)
