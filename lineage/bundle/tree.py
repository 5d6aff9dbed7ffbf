"""Any container of tensors and plain values as JSON and named tensors, and back. No pickle, and no code is run by it.

A node is an object with `t`, its type: `tensor` and `array` name a tensor; `dict`, `list`, `tuple`, `set`,
`named`, `dataclass`, `mapping` and `object` hold nodes; `jagged`, `nested`, `sparse`, `complex` and `ndarray` hold
the parts of one; numbers, texts and bytes hold themselves; `left_out` says why something is not here.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from .._rooms import schemas
from ..capture.batch_containers import is_tensor
from . import containers

MOST_NODES = 100_000
DEEPEST = 64
LONGEST = 1 << 20
"""Characters or bytes of one text that are kept."""
_SINGLE = {bool: "bools", int: "ints", float: "floats", str: "strs"}


class Packing:
    """Takes containers apart. `tensors` has name -> tensor, on whatever device each one is."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        """path -> why"""
        self._names: dict[int, tuple[str, Any]] = {}
        """id of a tensor -> (its name, itself): held, or a part made on the way would give its id to the next one"""
        self._nodes = self._depth = 0

    def pack(self, path: str, value: Any) -> dict[str, Any]:
        """The node of a value; `path` names its tensors."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            return self._without(path, f"more than {MOST_NODES:,} parts")
        if self._depth >= DEEPEST:
            return self._without(path, f"more than {DEEPEST} levels deep")
        self._depth += 1
        try:
            return self._pack(path, value)
        except Exception as e:  # one part of an odd class must not cost the others
            return self._without(path, f"a {_class(value)} that cannot be read ({type(e).__name__})")
        finally:
            self._depth -= 1

    def _pack(self, path: str, value: Any) -> dict[str, Any]:
        if is_tensor(value):
            return self._tensor(path, value)
        if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
            return self._plain(path, value)
        if isinstance(value, Mapping):
            kind = {"t": "dict"} if type(value) is dict else {"t": "mapping", "class": _class(value)}
            return kind | {"v": [[_key(k), self.pack(f"{path}.{k}", v)] for k, v in value.items()]}
        if isinstance(value, list | tuple | set | frozenset | collections.deque):
            return self._sequence(path, value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(
                path, "dataclass", value, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            )
        return self._other(path, value)

    def _plain(self, path: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {"t": "null"}
        if isinstance(value, float):
            return {"t": "float", "v": schemas.float_to_json(float(value))}
        if isinstance(value, bytes | bytearray):
            if len(value) > LONGEST:
                return self._without(path, f"{len(value):,} bytes")
            return {"t": "bytes", "v": base64.b64encode(bytes(value)).decode()}
        if isinstance(value, str):
            if len(value) > LONGEST:
                return self._without(path, f"a text of {len(value):,} characters")
            return {"t": "str", "v": str(value)}
        return {"t": "bool", "v": value} if isinstance(value, bool) else {"t": "int", "v": int(value)}

    def _sequence(self, path: str, value: Any) -> dict[str, Any]:
        if hasattr(value, "_fields"):
            return self._fields(path, "named", value, dict(zip(value._fields, value, strict=True)))
        kind = (
            "tuple" if isinstance(value, tuple) else "set" if isinstance(value, set | frozenset) else "list"
        )
        items = list(value)
        types = {type(v) for v in items}
        if len(items) > 8 and len(types) == 1 and (name := _SINGLE.get(next(iter(types)))) is not None:
            if name == "floats":
                items = [schemas.float_to_json(v) for v in items]
            if name != "strs" or sum(map(len, items)) <= LONGEST:
                return {"t": kind, "of": name, "v": items}
        return {"t": kind, "v": [self.pack(f"{path}.{i}", v) for i, v in enumerate(items)]}

    def _fields(self, path: str, kind: str, value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
        found = [[name, self.pack(f"{path}.{name}", v)] for name, v in fields.items()]
        return {"t": kind, "class": _class(value), "v": found}

    def _other(self, path: str, value: Any) -> dict[str, Any]:
        if hasattr(value, "__array__") and hasattr(value, "dtype"):
            try:
                made = containers.array(path, value, self.pack)
                if made is not None:
                    return made
                import torch

                # a copy: the array may be read-only, and is the loop's
                node = self._tensor(path, torch.tensor(value))
                return node | {"t": "array"} if node["t"] == "tensor" else {"t": "as_array", "v": [node]}
            except Exception as e:
                return self._without(path, f"an array of {value.dtype} ({type(e).__name__})")
        fields = containers.inside(value)
        if not fields:
            return self._without(path, f"a {_class(value)}")
        if containers.mapping_of(value) is None:
            return self._fields(path, "object", value, fields)
        parts = [[_key(k), self.pack(f"{path}.{k}", v)] for k, v in fields.items()]
        return {"t": "mapping", "class": _class(value), "v": parts}

    def _tensor(self, path: str, value: Any) -> dict[str, Any]:
        known = self._names.get(id(value))
        if known is not None:
            return {"t": "tensor", "ref": known[0]}
        if getattr(value, "is_nested", False):
            return self._nested(path, value)
        if hasattr(value, "placements"):
            return self._without(path, "a distributed tensor: this rank has a part of it")
        special = containers.tensor(path, value, self.pack)
        if special is not None:
            return special
        if str(value.layout) != "torch.strided" or value.is_quantized or value.is_meta:
            return self._without(path, f"a tensor of layout {value.layout} on {value.device}")
        name = path
        while name in self.tensors:
            name += "'"
        self.tensors[name] = value.detach()
        self._names[id(value)] = name, value
        node: dict[str, Any] = {"t": "tensor", "ref": name, "device": str(value.device)}
        if value.dim() > 1 and not value.is_contiguous() and 0 not in value.stride():
            node["stride"] = list(value.stride())
        return node

    def _nested(self, path: str, value: Any) -> dict[str, Any]:
        if str(value.layout) != "torch.jagged":
            parts = [self.pack(f"{path}.{i}", v) for i, v in enumerate(value.unbind())]
            return {"t": "nested", "v": parts}
        parts = [self.pack(f"{path}.{n}", getattr(value, n)()) for n in ("values", "offsets")]
        return {"t": "jagged", "v": parts}

    def _without(self, path: str, why: str) -> dict[str, Any]:
        self.left_out[path] = why
        return {"t": "left_out", "why": why}


def _class(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int) and not isinstance(key, bool) else str(key)


def without(node: dict[str, Any], gone: Mapping[str, str]) -> dict[str, Any]:
    """The node with the tensors that could not be kept marked as left out: name -> why."""
    if node.get("t") in ("tensor", "array") and node.get("ref") in gone:
        return {"t": "left_out", "why": gone[node["ref"]]}
    held_ = node.get("v")
    if not isinstance(held_, list) or "of" in node:
        return node
    pairs = node.get("t") in ("dict", "mapping", "named", "dataclass", "object")
    return node | {
        "v": [[k, without(v, gone)] for k, v in held_] if pairs else [without(v, gone) for v in held_]
    }


class LeftOut:
    """Stands in a rebuilt container for what the bundle does not hold. Using it as a value fails, and says why."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"<left out of the bundle: {self.why}>"


def unpack(
    node: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    device: Callable[[str], Any] = lambda recorded: "cpu",
    notes: list[str] | None = None,
) -> Any:
    """Build the value of a node again. `device`: recorded device -> where its tensors go; `notes` takes what differs.

    Classes are looked up among the modules that are imported already, and only dataclasses, named tuples and mappings
    are made: anything else becomes a namespace with the same fields.
    """
    return _Unpacking(tensors, device, notes if notes is not None else []).make(node)


class _Unpacking:
    def __init__(self, tensors: Mapping[str, Any], device: Callable[[str], Any], notes: list[str]) -> None:
        self._tensors, self._device, self._notes = tensors, device, notes
        self._made: dict[str, Any] = {}

    def make(self, node: Mapping[str, Any]) -> Any:
        kind: str = node["t"]
        value: Any = node.get("v")
        if kind in ("tensor", "array"):
            return self._tensor(node)
        if kind in ("list", "tuple", "set"):
            return {"list": list, "tuple": tuple, "set": set}[kind](self._items(node))
        if kind == "dict":
            return {k: self.make(v) for k, v in value}
        if kind in ("mapping", "named", "dataclass", "object"):
            return self._instance(kind, node["class"], {k: self.make(v) for k, v in value})
        if kind in ("jagged", "nested"):
            return self._nested(kind, [self.make(v) for v in value])
        if kind in containers.KINDS or kind == "as_array":
            parts = [self.make(v) for v in value]
            if any(isinstance(p, LeftOut) for p in parts):
                return LeftOut("a part of it is not in the bundle")
            return parts[0].numpy() if kind == "as_array" else containers.make(node, parts)
        if kind == "left_out":
            self._notes.append(f"left out: {node['why']}")
            return LeftOut(node["why"])
        return _plain(kind, value)

    def _items(self, node: Mapping[str, Any]) -> list[Any]:
        if node.get("of") == "floats":
            return [_plain("float", v) for v in node["v"]]
        return list(node["v"]) if "of" in node else [self.make(v) for v in node["v"]]

    def _tensor(self, node: Mapping[str, Any]) -> Any:
        name = node["ref"]
        if name not in self._made:
            if name not in self._tensors:
                self._notes.append(f"left out: {name}")
                return LeftOut(f"{name} is not in the bundle")
            held_ = self._tensors[name]
            if node["t"] == "array":
                return held_.numpy()
            to = self._device(node.get("device", "cpu"))
            moved = held_.to(to)
            if "stride" in node:
                import torch

                laid = torch.empty_strided(
                    moved.shape, node["stride"], dtype=moved.dtype, device=moved.device
                )
                moved = laid.copy_(moved)
            self._made[name] = moved
        return self._made[name]

    def _nested(self, kind: str, parts: list[Any]) -> Any:
        import torch

        if any(isinstance(p, LeftOut) for p in parts):
            return LeftOut("a part of a nested tensor is not in the bundle")
        if kind == "jagged":
            return torch.nested.nested_tensor_from_jagged(*parts)
        return torch.nested.nested_tensor(parts)

    def _instance(self, kind: str, name: str, fields: dict[str, Any]) -> Any:
        cls: Any = _known(name)
        try:
            if kind == "mapping" and cls is not None and issubclass(cls, Mapping | collections.UserDict):
                return cls(fields)
            if kind == "named" and cls is not None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
                return cls(**fields)
            if kind == "dataclass" and cls is not None and hasattr(cls, "__dataclass_fields__"):
                return cls(**fields)
        except Exception as e:
            self._notes.append(f"{name} could not be made again ({type(e).__name__})")
        if kind == "mapping":
            return fields
        self._notes.append(f"{name} stands as plain fields")
        if kind == "named":
            made = collections.namedtuple(name.rpartition(":")[2].rpartition(".")[2], list(fields))  # type: ignore[misc]
            return made(**fields)
        return SimpleNamespace(**fields)


def _known(name: str) -> Any:
    """The class of that name, where its module is imported already: a bundle must not choose what is imported."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _plain(kind: str, value: Any) -> Any:
    if kind == "null":
        return None
    if kind == "float":
        return schemas.NON_FINITE[value] if isinstance(value, str) else float(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind in ("int", "bool", "str"):
        return value
    raise ValueError(f"a node of type {kind!r} is not known to this version")


def jsonable(value: Any) -> Any:
    """Plain data with NaN and infinities by their names, so that strict JSON takes it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else schemas.float_to_json(value)
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return value
