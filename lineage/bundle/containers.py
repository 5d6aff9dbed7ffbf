"""Batches of unusual make: objects with slots or private fields, sparse and complex tensors, arrays of texts.

Each is taken apart into parts that `tree` can keep, and put together again from them. No class of them is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ..capture.batch_containers import PLAIN, held, is_tensor

Node = dict[str, Any]
Pack = Callable[[str, Any], Node]

_COMPRESSED = {
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_UNKNOWN_TO_THE_FORMAT = ("torch.complex128", "torch.complex32")
"""Types that safetensors does not have."""
_DEEP = 3
"""Levels of an object's fields that are looked into for a tensor."""


def inside(value: Any) -> dict[str, Any]:
    """The fields of an object that holds tensors: public ones, else those of `__slots__` and private ones.

    The latter are those of graph batches, whose tensors lie in `_store`. Empty where no tensor is among them, where
    the object is a mapping's view or an iterator, or where its class refuses to be read.
    """
    try:
        if isinstance(value, (*PLAIN, type)) or hasattr(value, "__next__") or hasattr(value, "__array__"):
            return {}
        data = mapping_of(value)
        if data is not None:
            return dict(data)
        return held(value) or _fields(value)
    except Exception:
        return _fields(value)


def mapping_of(value: Any) -> Mapping[Any, Any] | None:
    """The mapping that an object is one by: BatchEncoding and its like hold theirs in `data`."""
    try:
        data = getattr(value, "data", None)
    except Exception:  # a property that cannot be read
        return None
    return data if isinstance(data, Mapping) else None


def _fields(value: Any) -> dict[str, Any]:
    """What stands in slots and in `__dict__`, past properties, where a tensor is among it."""
    found: dict[str, Any] = {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                found.setdefault(str(name), object.__getattribute__(value, name))
            except AttributeError:
                continue
    with contextlib.suppress(AttributeError):
        found |= object.__getattribute__(value, "__dict__")
    found = {n: v for n, v in found.items() if not n.startswith("__")}
    return found if any(_has_tensor(v, _DEEP) for v in found.values()) else {}


def _has_tensor(value: Any, deep: int) -> bool:
    if is_tensor(value) or hasattr(value, "__array__"):
        return True
    if deep == 0:
        return False
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_has_tensor(v, deep - 1) for v in parts)


def tensor(path: str, value: Any, pack: Pack) -> Node | None:
    """The node of a sparse tensor, or of a complex one that the format does not have; None for any other."""
    layout = str(value.layout)
    if layout == "torch.sparse_coo":
        # `_indices`: those of a tensor that is not coalesced may not be asked for otherwise
        parts = {"indices": value._indices(), "values": value._values()}
        more = {"coalesced": value.is_coalesced()}
    elif layout in _COMPRESSED:
        parts, more = {n: getattr(value, n)() for n in _COMPRESSED[layout]}, {}
    elif str(value.dtype) in _UNKNOWN_TO_THE_FORMAT:
        import torch

        return {
            "t": "complex",
            "v": [pack(f"{path}.parts", torch.view_as_real(value.detach().resolve_conj()))],
        }
    else:
        return None
    nodes = [pack(f"{path}.{n}", v.detach()) for n, v in parts.items()]
    return {"t": "sparse", "layout": layout, "size": list(value.shape), **more, "v": nodes}


def array(path: str, value: Any, pack: Pack) -> Node | None:
    """The node of an array of texts, bytes, objects or times; None for one of numbers."""
    kind = value.dtype.kind
    if kind in "USO":
        parts = pack(f"{path}.items", value.ravel().tolist())
    elif kind in "Mm":
        import torch

        parts = pack(
            f"{path}.items", torch.tensor(value.ravel().astype(value.dtype.newbyteorder("=")).view("i8"))
        )
    else:
        return None
    return {
        "t": "ndarray",
        "dtype": value.dtype.newbyteorder("=").str,
        "shape": list(value.shape),
        "v": [parts],
    }


def make(node: Mapping[str, Any], parts: list[Any]) -> Any:
    """Put a value together again from its parts."""
    import torch

    if node["t"] == "complex":
        return torch.view_as_complex(parts[0].contiguous())
    if node["t"] == "sparse":
        if node["layout"] == "torch.sparse_coo":
            made = torch.sparse_coo_tensor(parts[0], parts[1], node["size"], check_invariants=False)
            return made._coalesced_(node["coalesced"])
        layout = getattr(torch, node["layout"].removeprefix("torch."))
        return torch.sparse_compressed_tensor(*parts, size=node["size"], layout=layout)
    import numpy

    if isinstance(parts[0], list):
        made = numpy.empty(len(parts[0]), dtype=numpy.dtype(node["dtype"]))
        made[:] = parts[0]
        return made.reshape(node["shape"])
    return parts[0].numpy().view(numpy.dtype(node["dtype"])).reshape(node["shape"])


KINDS = ("sparse", "complex", "ndarray")
"""Types of nodes that are made here."""
