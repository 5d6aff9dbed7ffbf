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
from lineage.recorder.captured import size_of


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
        if a.layout != b.layout:
            return False
        if a.layout == torch.sparse_coo:
            return a.is_coalesced() == b.is_coalesced() and same(a.to_dense(), b.to_dense())
        if str(a.layout).startswith("torch.sparse"):
            return same(a.to_dense(), b.to_dense())
        if a.is_nested:
            return all(map(same, a.unbind(), b.unbind())) and a.layout == b.layout
        bits = [
            t.resolve_conj().reshape(-1).contiguous().view(torch.uint8) if t.numel() else t for t in (a, b)
        ]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if isinstance(a, numpy.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and (a == b).all())
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
    "sparse": {
        "coo": torch.tensor([[0.0, 2.0], [float("nan"), 0.0]]).to_sparse(),
        "twice": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3)),
        "csr": torch.eye(3).to_sparse_csr(),
        "csc": torch.eye(3).to_sparse_csc(),
        "bsr": torch.eye(4).to_sparse_bsr((2, 2)),
    },
    "complex": {
        "c128": torch.tensor([1 + 2j], dtype=torch.complex128),
        "conj": torch.tensor([1 + 2j]).conj(),
    },
    "arrays of no numbers": {
        "texts": numpy.array([["ab", "c"], ["", "déf"]]),
        "bytes": numpy.array([b"ab", b"c"]),
        "objects": numpy.array(["a", None, 3], dtype=object),
        "times": numpy.array(["2026-01-01", "2026-11-30"], dtype="datetime64[D]"),
        "complex": numpy.ones(2, dtype=numpy.complex128),
    },
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


def test_parts_that_are_made_on_the_way_never_stand_for_one_another() -> None:
    """Tensors made of arrays, and parts of nested tensors, live no longer than the packing unless it holds them."""
    value = {
        "arrays": [numpy.full(3, i, dtype=numpy.float32) for i in range(50)],
        "nested": [torch.nested.nested_tensor([torch.full((2,), float(i))]) for i in range(50)],
        "sparse": [(torch.eye(2) * i).to_sparse() for i in range(1, 50)],
    }
    assert same(value, there_and_back(value))


class Slotted:
    __slots__ = ("ids", "x")

    def __init__(self) -> None:
        self.x, self.ids = torch.arange(3), [1, 2, 3]


class Graph:
    """As a batch of torch_geometric: its tensors lie in a private mapping."""

    def __init__(self) -> None:
        self._store = {"x": torch.arange(3), "edges": torch.zeros(2, 3)}


class Refusing:
    """One of its properties cannot be read."""

    def __init__(self) -> None:
        self.x = torch.arange(3)

    @property
    def data(self) -> Any:
        raise RuntimeError("no")


class Unreadable:
    """Asked for any attribute, it raises what no attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_part_that_cannot_be_read_costs_no_other_part() -> None:
    """It is left out and said so."""
    packing = Packing()
    node = packing.pack("b", {"x": torch.arange(3), "odd": Unreadable()})
    assert torch.equal(unpack(node, packing.tensors)["x"], torch.arange(3))
    assert list(packing.left_out) == ["b.odd"]


@pytest.mark.parametrize("batch", [Slotted(), Graph(), Refusing()])
def test_objects_of_any_make_are_kept_with_their_tensors(batch: Any) -> None:
    """Slots, private fields, and properties that raise: the tensors are there, and their bytes are counted."""
    packing = Packing()
    node = packing.pack("b", batch)
    again = unpack(node, packing.tensors)
    x = again._store["x"] if hasattr(again, "_store") else again.x
    assert torch.equal(x, torch.arange(3))
    assert packing.left_out == {}
    assert size_of(batch) >= 24


def test_the_layout_of_memory_comes_back() -> None:
    """Kernels choose by strides: channels-last stays so."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    again = there_and_back({"x": x})["x"]
    assert again.stride() == x.stride()
    assert torch.equal(again, x)


def test_what_cannot_be_kept_is_said_and_its_place_refuses_to_be_a_value() -> None:
    """Tensors without content, objects without fields, generators."""
    packing = Packing()
    value = {"s": torch.ones(3, device="meta"), "g": (i for i in range(3)), "f": len, "x": torch.ones(1)}
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
