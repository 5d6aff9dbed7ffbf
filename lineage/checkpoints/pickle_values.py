"""What stands for the objects of a pickle that was read and not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from . import dtypes

_NO_PAIRS: Mapping[Any, Any] = MappingProxyType({})


class Named:
    """Something that the pickle would have imported."""

    __slots__ = ("full", "module", "name", "plain")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name, self.full = module, name, f"{module}.{name}"
        self.plain = False
        """whether a call of it is noted and nothing else"""


class Made:
    """Something that the pickle would have built: of which class or function, and with what."""

    __slots__ = ("args", "items", "of", "pairs", "state")

    def __init__(self, of: str, args: tuple[Any, ...] = ()) -> None:
        self.of, self.args = of, args
        self.state: Any = None
        self.items: Sequence[Any] = ()
        self.pairs: Mapping[Any, Any] = _NO_PAIRS

    def add(self, items: Sequence[Any]) -> None:
        """Append to it, as to a list."""
        if not isinstance(self.items, list):  # made when there is something: there may be a million objects
            self.items = []
        self.items += items

    def own_pairs(self) -> dict[Any, Any]:
        """What is set in it, as in a dict."""
        if not isinstance(self.pairs, dict):
            self.pairs = {}
        return self.pairs

    def build(self, state: Any) -> None:
        """Keep its state, as BUILD would have set it; (dict, slots) become one dict."""
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = {**(state[0] if isinstance(state[0], dict) else {}), **state[1]}
        self.state = {**self.state, **state} if _dicts(self.state, state) else state

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute of it, as far as the pickle says."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default


def _dicts(a: Any, b: Any) -> bool:
    return isinstance(a, dict) and isinstance(b, dict)


class Storage:
    """The bytes behind tensors: `elements` of a dtype, kept under `key` (bytes where the dtype is `untyped`)."""

    __slots__ = ("dtype", "elements", "key", "location")

    def __init__(self, kind: str, key: str, location: str, elements: int) -> None:
        self.dtype = dtypes.OF_STORAGE.get(kind, kind)
        self.key, self.location, self.elements = key, location, elements

    @property
    def bytes(self) -> int | None:
        """Its size; None for a dtype that this version does not know."""
        size = dtypes.SIZE.get(self.dtype)
        return None if size is None else size * self.elements


class TensorRef:
    """A tensor that was not loaded: dtype, shape, and which elements of which storage."""

    __slots__ = ("dtype", "offset", "shape", "storage", "stride")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        storage: Storage | None = None,
        offset: int = 0,
        stride: tuple[int, ...] = (),
    ) -> None:
        self.dtype, self.shape, self.storage, self.offset, self.stride = dtype, shape, storage, offset, stride

    @property
    def last(self) -> int:
        """The number of elements of the storage that it reaches into."""
        if 0 in self.shape:
            return 0
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=False))

    @property
    def by_rows(self) -> bool:
        """Whether its elements lie one behind the other, row by row."""
        due = 1
        for n, s in zip(reversed(self.shape), reversed(self.stride), strict=False):
            if n != 1 and s != due:
                return 0 in self.shape
            due *= n
        return True

    @property
    def each(self) -> int | None:
        """Bytes of an element; None for a dtype that this version does not know."""
        return dtypes.SIZE.get(self.dtype)


class ArrayRef:
    """A NumPy array in a pickle: dtype and shape; its bytes stay where they are."""

    __slots__ = ("dtype", "raw", "shape")

    def __init__(self) -> None:
        self.dtype, self.shape = "", ()  # type: str, tuple[int, ...]
        self.raw: Any = None
