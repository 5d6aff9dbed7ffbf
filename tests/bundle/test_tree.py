"""Containers of batches are taken apart and put together again without a pickle, bit for bit."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from lineage.bundle.tree import LeftOut, Packing, unpack


class Pair(NamedTuple):
    ids: Any
    labels: Any


@dataclasses.dataclass
class Sample:
    ids: Any
    domain: str


class Encoding(collections.UserDict):  # type: ignore[type-arg]
    """As Hugging Face's BatchEncoding: a mapping with its content in `data`."""


class Holder:
    def __init__(self) -> None:
        self.ids, self.note = torch.arange(3), "x"


def there_and_back(value: Any, notes: list[str] | None = None) -> Any:
    packing = Packing()
    node = json.loads(json.dumps(packing.pack("b", value), allow_nan=False))
    return unpack(node, packing.tensors, notes=notes)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        if a.is_nested:
            return all(map(same, a.unbind(), b.unbind())) and a.layout == b.layout
        bits = [t.reshape(-1).contiguous().view(torch.uint8) if t.numel() else t for t in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if isinstance(a, numpy.ndarray):
        return bool(a.dtype == b.dtype and (a == b).all())
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, collections.abc.Mapping):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)
        )
    return type(a) is type(b) and a == b


VALUES: dict[str, Any] = {
    "tensors of all types": {
        str(t): torch.tensor([[0, 1], [1, 0]]).to(t)
        for t in (
            torch.int64,
            torch.int32,
            torch.uint8,
            torch.bool,
            torch.float32,
            torch.bfloat16,
            torch.float16,
        )
    },
    "NaN with its payload, infinities, minus zero": torch.tensor([float("nan"), math.inf, -math.inf, -0.0]),
    "no dimension, no element": [torch.tensor(3.0), torch.empty(0, 4)],
    "a named tuple": Pair(torch.arange(4), [1, 2, 3]),
    "a dataclass in a tuple": (Sample(torch.arange(2), "web"), Sample(torch.arange(3), "code")),
    "a mapping class": Encoding({"input_ids": torch.arange(4), "n": 3}),
    "plain values": [None, True, False, 2**70, -0.0, math.nan, -math.inf, 0.1, "ä\n", b"\x00\xff", "NaN"],
    "long lists": [list(range(50)), [0.5] * 20, ["a"] * 20, [math.nan] * 10, [True] * 12],
    "integer keys and nesting": {1: {"a": [{"b": (torch.arange(2),)}]}},
    "an array": {"x": numpy.arange(6, dtype=numpy.int32).reshape(2, 3)},
    "jagged": torch.nested.nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged),
    "nested": torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_container_comes_back_as_it_was(name: str) -> None:
    """Same types, same order, same bits."""
    notes: list[str] = []
    assert same(VALUES[name], there_and_back(VALUES[name], notes))
    assert notes == []


def test_a_tensor_that_stands_twice_is_kept_once_and_is_one_tensor_again() -> None:
    """Labels that are the ids stay the ids."""
    ids = torch.arange(4)
    packing = Packing()
    node = packing.pack("b", {"ids": ids, "labels": ids})
    assert len(packing.tensors) == 1
    again = unpack(node, packing.tensors)
    assert again["ids"] is again["labels"]


def test_the_layout_of_memory_comes_back() -> None:
    """Kernels choose by strides: channels-last stays so."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    again = there_and_back({"x": x})["x"]
    assert again.stride() == x.stride()
    assert torch.equal(again, x)


def test_what_cannot_be_kept_is_said_and_its_place_refuses_to_be_a_value() -> None:
    """Sparse tensors, objects without fields, generators."""
    packing = Packing()
    value = {"s": torch.eye(3).to_sparse(), "g": (i for i in range(3)), "f": len, "x": torch.ones(1)}
    node = packing.pack("b", value)
    assert set(packing.left_out) == {"b.s", "b.g", "b.f"}
    notes: list[str] = []
    again = unpack(node, packing.tensors, notes=notes)
    assert isinstance(again["s"], LeftOut)
    assert len(notes) == 3
    with pytest.raises(TypeError):
        again["s"] + 1


def test_an_object_of_an_unknown_class_comes_back_with_its_fields() -> None:
    """Nothing is imported, and no constructor of it is called."""
    notes: list[str] = []
    again = there_and_back(Holder(), notes)
    assert isinstance(again, SimpleNamespace)
    assert again.note == "x"
    assert notes
    assert there_and_back(Pair(1, 2)) == Pair(1, 2)
    node = {"t": "dataclass", "class": "os:system", "v": [["command", {"t": "str", "v": "exit 7"}]]}
    assert isinstance(unpack(node, {}), SimpleNamespace)
    node = {"t": "dataclass", "class": "antigravity:X", "v": []}
    assert isinstance(unpack(node, {}), SimpleNamespace)
    import sys

    assert "antigravity" not in sys.modules


def test_a_container_without_end_is_cut() -> None:
    """A list that holds itself, or a million parts, is no danger."""
    packing = Packing()
    packing.pack("b", [{"i": i} for i in range(120_000)])
    assert any("more than 100,000 parts" in why for why in packing.left_out.values())
    endless: list[Any] = [torch.ones(1)]
    endless.append(endless)
    packing = Packing()
    packing.pack("b", endless)
    assert set(packing.left_out.values()) == {"more than 64 levels deep"}
