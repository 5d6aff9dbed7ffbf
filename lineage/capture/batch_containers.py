"""Containers of batches that hold their samples one by one, and objects that hold tensors."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

PLAIN = (int, float, str, bool, bytes, type(None))
"""Types of values that are no container and no tensor."""
LIES = frozenset(
    [
        "cu_seq_lens_k",
        "cu_seqlens_k",
        "cu_seqlens_kv",
        "cu_seqlens_argmin",
        "max_seqlen",
        "seq_idx",
        "sequence_ids",
        "document_ids",
        "doc_ids",
        "segment_ids",
    ]
)
"""Names beside those of roles that tell how sequences lie in a packed batch."""


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    return hasattr(value, "element_size") and hasattr(value, "untyped_storage")


def is_integer(value: Any) -> bool:
    """Whether a tensor holds integers or truth values."""
    return not value.is_floating_point() and not value.is_complex()


def count(value: Sequence[Any]) -> int | None:
    """How many samples a column stands for, where its items can be nothing else: sequences, or single tensors."""
    return len(value) if all(is_tensor(v) for v in value) else None


def unequal(value: Sequence[Any]) -> bool:
    """Whether parts are tensors of as many dimensions but of different sizes, as images of one batch are."""
    shapes = {tuple(v.shape) if is_tensor(v) else None for v in value}
    return len(shapes) > 1 and len({s and len(s) for s in shapes}) == 1 and not hasattr(value, "_fields")


def turned(value: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of samples that stand one by one: alike dicts, dataclasses, or, in a list, alike tuples.

    None where the parts may be batches themselves, such as the two of a pair: these hold matrices of ids, or tensors
    only. A sample holds something that is single.
    """
    samples = [_parts(v, in_list=isinstance(value, list)) for v in value]
    first = samples[0] if samples else None
    if not first or any(s is None or s.keys() != first.keys() for s in samples):
        return {}
    found = {k: [s[k] for s in samples if s is not None] for k in sorted(first, key=str)}
    parts = [v for column in found.values() for v in column]
    if any(is_tensor(v) and v.dim() > 1 and is_integer(v) and v.element_size() > 1 for v in parts):
        return {}
    flat = all(is_tensor(v) and v.dim() < 2 for v in parts) and isinstance(value[0], tuple)
    return found if flat or any(_is_single(k, v) for k, column in found.items() for v in column) else {}


def _parts(value: Any, *, in_list: bool) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and in_list:  # torch's own collate function makes lists of columns
        return {str(k): v for k, v in zip(getattr(value, "_fields", range(len(value))), value, strict=False)}
    return None


def _is_single(name: str, value: Any) -> bool:
    """Whether a part is of one sample: a number, a text, a list of token ids, or a tensor of no or one dimension."""
    if is_tensor(value):
        return value.dim() == 0 or (value.dim() == 1 and is_integer(value) and name.endswith("ids"))
    if isinstance(value, list):
        return bool(value) and all(type(i) is int for i in value)
    return isinstance(value, int | float | str | bytes)


def held(value: Any) -> dict[str, Any]:
    """What an object of any class holds under public names, where a tensor or an array is among it."""
    if isinstance(value, (*PLAIN, type)) or hasattr(value, "__array__") or hasattr(value, "__next__"):
        return {}
    names = [str(a.name) for a in getattr(type(value), "__attrs_attrs__", ())] or getattr(
        value, "__dict__", {}
    )
    found = {str(k): getattr(value, str(k), None) for k in names if not str(k).startswith("_")}
    return found if any(is_tensor(v) or hasattr(v, "__array__") for v in found.values()) else {}


def of_array(value: Any) -> Any:
    """An array as a tensor, or as what stands for it."""
    try:
        import torch

        return torch.as_tensor(value)
    except ImportError:  # another framework's loop: the content counts, row by row it is not read
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    except TypeError:  # of texts or objects
        found = value.tolist() if hasattr(value, "tolist") else repr(value)
        return found if isinstance(found, list | str) else repr(found)
