"""What a batch shows by the names of its fields: token ids, labels, masks, lengths, sample ids, domains.

Names decide, and shapes must fit. What neither shows is left out: nothing is guessed.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import batch_containers as samples
from .batch_containers import is_integer, is_tensor

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


class Unread(str):
    """What stands for a part whose content is not read: its type."""


@dataclass(frozen=True)
class Field:
    """One part of a batch: a tensor, `Ragged`, a list of plain values, a plain value, or `Unread`."""

    path: str
    value: Any
    of: int | None = None
    """samples that stood one by one and of which this is a column, None where that is not sure"""
    part: bool = False
    """whether it is of one of them"""

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
        lists = [f.value for f in self.fields if isinstance(f.value, list) and not self.is_layout(f)]
        return [v for v in lists if len(v) == self.samples]

    def is_layout(self, f: Field) -> bool:
        """Whether a field is no content: by its role, or by a name that only its type keeps from one."""
        role = next((r for r, other in self.roles.items() if f is other), None) or _ROLE.get(f.name)
        return role in LAYOUT or f.name in samples.LIES

    def in_rows(self, f: Field) -> bool:
        """Whether a field is a tensor with one row for each sample."""
        t = f.value
        return is_tensor(t) and t.dim() > 0 and t.shape[0] == self.samples and not f.part

    def undivided(self) -> list[str]:
        """Paths of content that cannot be told apart by sample, so that the rest does not tell a sample.

        Beside token ids it is floats alone, such as the patches of all images; integers there are counts and sizes.
        """
        return [
            f.path
            for f in self.fields
            if not self.is_layout(f) and not self.in_rows(f) and not self.alike(f) and self._weighs(f)
        ]

    def _weighs(self, f: Field) -> bool:
        t = flat(f.value)
        if not is_tensor(t):
            return isinstance(t, Unread) and self.ids is None
        return t.dim() > 0 and (self.ids is None or not is_integer(t))

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
    if not is_tensor(value) or not (is_integer(value) or (role == "loss_mask" and not value.is_complex())):
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
    sure = next((f.of for f in fields if f.of is not None), None)
    if sure is not None:
        return sure
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
    elif isinstance(value, list | tuple | deque):
        yield from _sequence(path, value, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from walk(f"{path}.{f.name}", getattr(value, f.name, None), depth + 1)
    elif isinstance(getattr(value, "data", None), Mapping):
        yield from walk(path, value.data, depth + 1)
    else:
        held = samples.held(value)
        if held:
            yield from walk(path, held, depth + 1)
        else:
            yield Field(path, _single(value))


def _sequence(path: str, value: Sequence[Any], depth: int) -> Iterator[Field]:
    """A list or tuple: one column, samples one by one, or parts by their place."""
    column = _column(path, value)
    if column is not None:
        yield Field(path, column, samples.count(value) if path else None)
        return
    for name, items in samples.turned(value).items():
        column = _column(f"{path}.{name}", items, one_by_one=True)
        if column is not None:
            yield Field(f"{path}.{name}", column, len(items))
        else:
            for i, item in enumerate(items):
                for f in walk(f"{path}.{name}.{i}", item, depth + 2):
                    yield dataclasses.replace(f, of=len(items), part=True)
        value = ()
    names = getattr(value, "_fields", range(len(value)))
    of = len(value) if path and samples.unequal(value) else None
    for name, item in zip(names, value, strict=False):
        for f in walk(f"{path}.{name}", item, depth + 1):
            yield f if of is None else dataclasses.replace(f, of=of, part=True)


def _single(value: Any) -> Any:
    """What is no container: a plain value, an array as a tensor, and of anything else its type."""
    if isinstance(value, samples.PLAIN):
        return value
    return samples.of_array(value) if hasattr(value, "__array__") else Unread(type(value).__qualname__)


def _column(path: str, value: Sequence[Any], *, one_by_one: bool = False) -> Any:
    """A list as one part: of plain values, of lists of integers, or of sequences of unequal length.

    Where it is known to hold one item for each sample, tensors of one shape are a column too.
    """
    if not value or hasattr(value, "_fields") or (isinstance(value, tuple) and not path):
        return None
    if all(isinstance(v, samples.PLAIN) for v in value):
        return list(value)
    if all(isinstance(v, list) and v and all(type(i) is int for i in v) for v in value):
        try:
            import torch
        except ImportError:  # then each is a column of its own
            return None
        return _joined([torch.tensor(v, dtype=torch.int64, device="cpu") for v in value])
    if all(hasattr(v, "__array__") and not is_tensor(v) for v in value):
        value = [samples.of_array(v) for v in value]
    if not all(is_tensor(v) and _is_whole(v) for v in value):
        return None
    if len({(str(v.device), v.dtype) for v in value}) > 1:
        return None
    lengths = {tuple(v.shape) for v in value}
    if all(v.dim() == 1 and is_integer(v) for v in value):
        # of equal length they may be the columns of a batch that torch's own collate function made
        named = _ROLE.get(path.rpartition(".")[2].lower()) in ("ids", "labels")
        if one_by_one or named or len(lengths) > 1:
            return _joined(value)
    if len(lengths) == 1 and (one_by_one or lengths == {()}):
        import torch

        return torch.stack(list(value))
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


def _is_whole(value: Any) -> bool:
    return not _is_nested(value) and not isinstance(_jagged(value), str)


def _is_nested(value: Any) -> bool:
    return bool(getattr(value, "is_nested", False))


def _jagged(value: Any) -> Any:
    if not _is_nested(value):
        if value.device.type == "meta" or str(value.layout) != "torch.strided" or value.is_quantized:
            return Unread(f"{value.dtype} {value.layout} {value.device.type} {tuple(value.shape)}")
        return value.to_local() if hasattr(value, "to_local") else value
    if not hasattr(value, "offsets"):
        return Unread(
            f"nested tensor of {value.dtype}"
        )  # of the strided layout: it shows no offsets without a copy
    return Ragged(value.values(), value.offsets(), int(value.shape[0]))
