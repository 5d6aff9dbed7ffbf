"""The calls that checkpoints are full of, as plain data: tensors, ordered dicts, sizes, paths, NumPy arrays.

Each function takes the arguments that a pickle gives and returns a description; none of them touches torch or NumPy.
Signatures: torch/_utils.py, torch/_tensor.py (`__reduce_ex__`), numpy/_core/multiarray (`_reconstruct`, `scalar`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from . import dtypes
from .pickle_values import ArrayRef, Made, Named, Storage, TensorRef

Args = tuple[Any, ...]


def call(of: Named, args: Args) -> Any:
    """What stands for the result of a call; `Made` for everything that is not known."""
    known = _KNOWN.get(of.full)
    if known is not None:
        try:
            return known(args)
        except (IndexError, TypeError, ValueError, KeyError, AttributeError, struct.error):
            pass  # other arguments than this version knows: kept as they are
    return Made(of.full, args)


def knows(of: Named) -> bool:
    """Whether a call of a name gives something else than a note of it."""
    return of.full in _KNOWN


def _pairs(args: Args) -> dict[Any, Any]:
    """OrderedDict(), OrderedDict([[k, v], ...]), Counter({...}), defaultdict(factory, ...)."""
    for a in args:
        if isinstance(a, dict):
            return dict(a)
        if isinstance(a, list):
            return {k: v for k, v in a if isinstance(k, str | int)}
    return {}


def _listed(args: Args) -> list[Any]:
    return list(args[0]) if args else []


def _shape(value: Any) -> tuple[int, ...]:
    if any(type(n) is not int or n < 0 for n in value):
        raise ValueError(value)
    return tuple(value)


def _dtype(value: Any) -> str:
    if isinstance(value, Named) and value.module == "torch":
        return value.name
    raise ValueError(value)


def _tensor(args: Args) -> TensorRef:
    """_rebuild_tensor(storage, offset, size, stride), and v2, which has more behind these."""
    storage = args[0]
    if not isinstance(storage, Storage):
        raise ValueError(storage)
    shape, stride = _shape(args[2]), _shape(args[3])
    if len(shape) != len(stride) or type(args[1]) is not int or args[1] < 0:
        raise ValueError(args[1])
    return TensorRef(storage.dtype, shape, storage, args[1], stride)


def _tensor_v3(args: Args) -> TensorRef:
    """_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype): for dtypes without a storage."""
    made = _tensor(args)
    made.dtype = _dtype(args[6])
    return made


def _meta(args: Args) -> TensorRef:
    """_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)."""
    return TensorRef(_dtype(args[0]), _shape(args[1]), None, 0, _shape(args[2]))


def _wrapper(args: Args) -> TensorRef:
    """_rebuild_wrapper_subclass(cls, dtype, size, stride, offset, layout, device, requires_grad): DTensor and such."""
    return TensorRef(_dtype(args[1]), _shape(args[2]), None, 0, _shape(args[3]))


def _inner(args: Args) -> TensorRef:
    """_rebuild_parameter(data, requires_grad, hooks[, state])."""
    if not isinstance(args[0], TensorRef):
        raise ValueError(args[0])
    return args[0]


def _from_type(args: Args) -> Any:
    """_rebuild_from_type_v2(function, type, arguments, state): a tensor with attributes, or of a subclass."""
    made = call(args[0], args[2])
    return made if isinstance(made, TensorRef) else Made(args[0].full, args[2])


def _bytes(args: Args) -> bytes:
    """_codecs.encode(text, "latin1"): how protocol 2 writes bytes; bytearray(bytes) too."""
    if not args:
        return b""
    return args[0] if isinstance(args[0], bytes) else str.encode(args[0], "latin1")


def _path(args: Args) -> str:
    return "/".join(a.rstrip("/") if a != "/" else "" for a in args)


def _array(args: Args) -> Made:
    """_reconstruct(type, (0,), b"b"): the state that follows tells shape, dtype and bytes."""
    return _Array()


class _Array(Made):
    """A NumPy array under construction: what it is like comes with its state (version, shape, dtype, fortran, raw)."""

    __slots__ = ("ref",)

    def __init__(self) -> None:
        super().__init__("numpy.ndarray")
        self.ref = ArrayRef()

    def build(self, state: Any) -> None:
        self.state = None
        if isinstance(state, tuple) and len(state) == 5 and isinstance(state[1], tuple):
            self.ref.shape, self.ref.dtype, self.ref.raw = state[1], array_dtype(state[2]), state[4]


def array_dtype(value: Any) -> str:
    """numpy.dtype("f8", False, True) in words."""
    return str(value.args[0]) if isinstance(value, Made) and value.of == "numpy.dtype" and value.args else ""


_SCALARS = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I"}


def _scalar(args: Args) -> Any:
    """numpy scalar(dtype, bytes)."""
    return struct.unpack("<" + _SCALARS[array_dtype(args[0])], _bytes(args[1:]))[0]


def _class(args: Args) -> Made:
    """copyreg._reconstructor(class, base, state): objects in protocols 0 and 1."""
    return Made(args[0].full, ())


_KNOWN: dict[str, Callable[[Args], Any]] = {
    "collections.OrderedDict": _pairs,
    "collections.Counter": _pairs,
    "collections.defaultdict": _pairs,
    "collections.deque": _listed,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch._utils._rebuild_parameter": _inner,
    "torch._utils._rebuild_parameter_with_state": _inner,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": lambda args: _shape(args[0]),
    "torch.device": lambda args: ":".join(str(a) for a in args),
    "torch.serialization._get_layout": lambda args: str(args[0]),
    "_codecs.encode": _bytes,
    "copyreg._reconstructor": _class,
    "copy_reg._reconstructor": _class,
}
for _builtins in ("builtins", "__builtin__"):
    _KNOWN |= {
        f"{_builtins}.set": _listed,
        f"{_builtins}.frozenset": _listed,
        f"{_builtins}.list": _listed,
        f"{_builtins}.dict": _pairs,
        f"{_builtins}.bytearray": _bytes,
        f"{_builtins}.bytes": _bytes,
    }
for _core in ("numpy.core", "numpy._core"):
    _KNOWN |= {f"{_core}.multiarray._reconstruct": _array, f"{_core}.multiarray.scalar": _scalar}
for _paths in ("pathlib", "pathlib._local"):
    _KNOWN |= {f"{_paths}.{kind}": _path for kind in ("PosixPath", "WindowsPath", "PurePosixPath", "Path")}

__all__ = ["array_dtype", "call", "dtypes"]
