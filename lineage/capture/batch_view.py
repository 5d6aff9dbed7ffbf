"""What a batch shows by the names of its fields: token ids, labels, masks, lengths, sample ids, domains.

Names decide, and shapes must fit. What neither shows is left out: nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

DEPTH = 8
"""Containers within containers that are walked."""
IGNORE = -100
"""torch's default `ignore_index` of the cross entropy."""

ROLES: Mapping[str, tuple[str, ...]] = {
    "ids": ("input_ids", "token_ids", "tokens", "ids", "inputs", "input", "text", "x"),
    "labels": ("labels", "label_ids", "lm_labels", "targets", "target", "target_ids", "y"),
    "mask": ("attention_mask", "attn_mask", "input_mask"),
    "loss_mask": ("loss_mask", "labels_mask", "target_mask", "completion_mask", "assistant_masks"),
    "offsets": ("cu_seqlens", "cu_seq_lens", "cu_seqlens_q", "cu_seq_lens_q"),
    "lengths": ("lengths", "length", "seq_lens", "seqlens", "input_lengths", "sequence_lengths"),
    "positions": ("position_ids", "positions", "pos_ids", "input_pos"),
    "sample_ids": (
        "sample_ids",
        "sample_id",
        "sample_idx",
        "example_id",
        "example_ids",
        "idx",
        "index",
        "indices",
        "__index_level_0__",
        "__key__",
        "id",
        "uid",
        "guid",
    ),
    "domains": (
        "domains",
        "domain",
        "domain_ids",
        "domain_id",
        "data_source",
        "source",
        "source_id",
        "dataset",
        "dataset_name",
        "dataset_id",
        "subset",
    ),
}
"""What a field can be -> the names that it goes by."""
_ROLE = {name: role for role, names in ROLES.items() for name in names}
LAYOUT = ("mask", "offsets", "lengths", "positions", "sample_ids", "domains")
"""Fields that tell how samples lie in a batch or where they are from, and are no content of a sample."""


@dataclass(frozen=True)
class Known:
    """What is known of all batches beforehand; what is None is not known."""

    ignore_index: int = IGNORE
    vocab_size: int | None = None
    pad_id: int | None = None
    bos_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    placeholders: tuple[int, ...] = ()
    """ids that stand for what is no token, such as an image, and are out of range on purpose"""
    fields: Mapping[str, str] = field(default_factory=dict)
    """role -> path of the field, for batches whose names do not tell: {"labels": "1"}"""


NOTHING = Known()
"""Nothing is known."""


@dataclass(frozen=True)
class Ragged:
    """Sequences of unequal length, one after the other: a list of 1-D tensors, or a jagged tensor."""

    values: Any
    offsets: Any
    """int64[n + 1], where each sequence begins and the last one ends"""
    count: int


@dataclass(frozen=True)
class Field:
    """One part of a batch: a tensor, `Ragged`, a list of plain values, or a plain value."""

    path: str
    value: Any

    @property
    def name(self) -> str:
        """The last part of the path, as it is compared with names of roles."""
        return self.path.rpartition(".")[2].lower()


@dataclass
class View:
    """A batch by roles."""

    fields: list[Field]
    roles: dict[str, Field]
    samples: int
    """rows of the batch: sequences where it holds tokens"""

    def tensor(self, role: str) -> Any:
        """The tensor of a role, None where there is none."""
        found = self.roles.get(role)
        return found.value if found is not None and is_tensor(found.value) else None

    @cached_property
    def ids(self) -> Any:
        """The token ids, of sequences of unequal length one after the other; None where the batch shows none."""
        found = self.roles.get("ids")
        return None if found is None else flat(found.value)

    @cached_property
    def mask(self) -> Any:
        """The mask over the token ids, bool of their shape; None where the batch shows none."""
        found = self.tensor("mask")
        if (
            found is None
            or self.ids is None
            or found.shape != self.ids.shape
            or found.device != self.ids.device
        ):
            return None
        return found != 0

    @cached_property
    def row_lengths(self) -> Any:
        """Tokens of each row under the mask, int64[rows]; None where the batch shows no mask."""
        return self.mask.sum(1) if self.mask is not None and self.mask.dim() == 2 else None

    @property
    def width(self) -> int | None:
        """Tokens of each row, padding included, where the batch is a matrix of them."""
        ids = self.tensor("ids")
        return int(ids.shape[1]) if ids is not None and ids.dim() == 2 else None

    @property
    def tokens(self) -> int:
        """Elements of the token ids, padding included; 0 where the batch shows none."""
        return int(self.ids.numel()) if self.ids is not None else 0

    def columns(self) -> list[list[Any]]:
        """Lists of plain values that are content, one for each sample; for batches that hold no tensor."""
        layout = [self.roles[r] for r in LAYOUT if r in self.roles]
        lists = [f.value for f in self.fields if isinstance(f.value, list) and f not in layout]
        return [v for v in lists if len(v) == self.samples]

    def alike(self, f: Field) -> bool:
        """Whether a field has one integer for each token id, where these are."""
        t = flat(f.value)
        ids = self.ids
        return (
            ids is not None
            and is_tensor(t)
            and t.shape == ids.shape
            and t.device == ids.device
            and is_integer(t)
        )


def flat(value: Any) -> Any:
    """The tensor of a part: of sequences of unequal length, the one that holds them all."""
    return value.values if isinstance(value, Ragged) else value


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    return hasattr(value, "element_size") and hasattr(value, "untyped_storage")


def is_integer(value: Any) -> bool:
    """Whether a tensor holds integers or truth values."""
    return not value.is_floating_point() and not value.is_complex()


def view(batch: Any, known: Known = NOTHING) -> View:
    """Look at a batch."""
    fields = list(walk("", batch))
    named = {f".{path.lstrip('.')}": role for role, path in known.fields.items()}
    roles: dict[str, Field] = {}
    for f in fields:
        role = named.get(f.path) or _ROLE.get(f.name)
        if role is not None and (role not in roles or f.path in named) and _fits(role, f.value):
            roles[role] = f
    if "ids" not in roles:
        found = next((f for f in fields if f not in roles.values() and _looks_like_ids(f.value)), None)
        if found is not None:
            roles["ids"] = found
    return View(fields, roles, _samples(fields, roles))


def _fits(role: str, value: Any) -> bool:
    """Whether a value can be what its name says."""
    if role in ("sample_ids", "domains"):
        if is_tensor(value):
            return value.dim() <= 1 and is_integer(value)
        return isinstance(value, str | int) or (isinstance(value, list) and bool(value))
    if isinstance(value, Ragged):
        return role in ("ids", "labels")
    if not is_tensor(value) or not is_integer(value):
        return False
    dims = {"ids": (1, 2), "offsets": (1, 2), "lengths": (1,), "positions": (1, 2), "loss_mask": (1, 2)}
    return value.dim() in dims.get(role, (1, 2, 3, 4))


def _looks_like_ids(value: Any) -> bool:
    """An integer matrix wider than a byte; one of bytes may be an image."""
    if isinstance(value, Ragged):
        return is_integer(value.values)
    return is_tensor(value) and is_integer(value) and value.dim() == 2 and value.element_size() > 1


def _samples(fields: Sequence[Field], roles: Mapping[str, Field]) -> int:
    ids = roles.get("ids")
    if ids is not None:
        if isinstance(ids.value, Ragged):
            return ids.value.count
        if ids.value.dim() == 2:
            return int(ids.value.shape[0])
        if "offsets" in roles:
            return 1
    layout = [roles[r] for r in ("offsets", "lengths") if r in roles]
    for f in fields:
        if is_tensor(f.value) and f not in layout:
            return int(f.value.shape[0]) if f.value.dim() else 1
    return next((len(f.value) for f in fields if isinstance(f.value, list)), 0)


def walk(path: str, value: Any, depth: int = 0) -> Iterator[Field]:
    """The parts of a batch of any container, in a fixed order. Columns of plain values stay whole."""
    if depth > DEPTH:
        yield Field(path, type(value).__qualname__)
    elif is_tensor(value):
        yield Field(path, _jagged(value))
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from walk(f"{path}.{key}", value[key], depth + 1)
    elif isinstance(value, list | tuple):
        column = _column(path, value)
        if column is not None:
            yield Field(path, column)
            return
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=False):
            yield from walk(f"{path}.{name}", item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from walk(f"{path}.{f.name}", getattr(value, f.name, None), depth + 1)
    elif isinstance(getattr(value, "data", None), Mapping):
        yield from walk(path, value.data, depth + 1)
    else:
        yield Field(path, _single(value))


def _single(value: Any) -> Any:
    """What is no container: a plain value, an array as a tensor, and of anything else its type."""
    if isinstance(value, int | float | str | bool | bytes | None):
        return value
    return _of_array(value) if hasattr(value, "__array__") else type(value).__qualname__


def _column(path: str, value: Any) -> Any:
    """A list as one part: of plain values, of lists of integers, or of sequences of unequal length."""
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(v, str | int | float | None) for v in value):
        return value
    if all(isinstance(v, list) and v and all(type(i) is int for i in v) for v in value):
        try:
            import torch
        except ImportError:  # then each is a column of its own
            return None
        return _joined([torch.tensor(v, dtype=torch.int64, device="cpu") for v in value])
    if all(is_tensor(v) and v.dim() == 1 and is_integer(v) and not _is_nested(v) for v in value):
        # of equal length they may be the columns of a batch that torch's own collate function made
        named = _ROLE.get(path.rpartition(".")[2].lower()) in ("ids", "labels")
        alike = len({(str(v.device), v.dtype) for v in value}) == 1
        if alike and (named or len({v.shape[0] for v in value}) > 1):
            return _joined(value)
    return None


def _joined(parts: Sequence[Any]) -> Ragged:
    import torch

    ends = [0]
    for p in parts:
        ends.append(ends[-1] + int(p.shape[0]))
    offsets = torch.tensor(ends, dtype=torch.int64, device="cpu")
    if parts[0].device.type != "cpu":
        pinned = offsets.pin_memory() if parts[0].device.type == "cuda" else offsets
        offsets = pinned.to(parts[0].device, non_blocking=True)
    return Ragged(torch.cat(list(parts)), offsets, len(parts))


def _is_nested(value: Any) -> bool:
    return bool(getattr(value, "is_nested", False))


def _jagged(value: Any) -> Any:
    if not _is_nested(value):
        if value.device.type == "meta" or str(value.layout) != "torch.strided" or value.is_quantized:
            return f"{value.dtype} {value.layout} {value.device.type} {tuple(value.shape)}, content not read"
        return value.to_local() if hasattr(value, "to_local") else value
    if not hasattr(value, "offsets"):
        return f"nested tensor of {value.dtype}"  # of the strided layout: it shows no offsets without a copy
    return Ragged(value.values(), value.offsets(), int(value.shape[0]))


def _of_array(value: Any) -> Any:
    try:
        import torch

        return torch.as_tensor(value)
    except ImportError:  # another framework's loop: the content counts, row by row it is not read
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    except TypeError:  # of texts or objects
        found = value.tolist() if hasattr(value, "tolist") else repr(value)
        return found if isinstance(found, list | str) else repr(found)
