"""Reading pickles of plain data, and of nothing else.

A pickle is a program. Here its operations are read one by one (`pickletools.genops` only takes them apart) and those
that build plain data are carried out by this module; there is no code here that could import or call anything. Any
other operation (GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, EXT, PERSID, ...) ends the reading.
"""

from __future__ import annotations

import pickletools
from typing import Any

MOST_OPERATIONS = 20_000_000


class Refused(ValueError):
    """The pickle is damaged, or asks for something that plain data does not need; `operation` names what."""

    def __init__(self, text: str, operation: str | None = None) -> None:
        super().__init__(text)
        self.operation = operation


_MARK: Any = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_HELD = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_PUT = ("PUT", "BINPUT", "LONG_BINPUT")
_GET = ("GET", "BINGET", "LONG_BINGET")
_FIXED = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def loads(data: bytes) -> Any:
    """The plain data that a pickle holds: None, bool, int, float, str, bytes, list, tuple, dict.

    Keys of dicts are plain too, so that no nest of tuples has to be hashed. Raises `Refused`.
    """
    machine = _Machine()
    try:
        for n, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if n > MOST_OPERATIONS:
                raise Refused(f"it has more than {MOST_OPERATIONS:,} operations")
            if operation.name == "STOP":
                return machine.result()
            machine.do(operation.name, argument)
    except Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as e:
        raise Refused(f"it is damaged or cut off ({type(e).__name__}: {str(e)[:120]})") from None
    raise Refused("it is cut off: its end is missing")


class _Machine:
    """The stack and the memo of the pickle machine, with the operations that build plain data."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def result(self) -> Any:
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise Refused("it is damaged: it ends with nothing, or with more than one value")
        return self.stack[0]

    def do(self, name: str, argument: Any) -> None:
        if name in ("PROTO", "FRAME"):
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _HELD:
            self.stack.append(argument)
        elif name in _GET:
            self.stack.append(self.memo[int(argument)])
        elif name in _PUT:
            self.memo[int(argument)] = self._top()
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self._top()
        elif name in _FIXED:
            self._tuple(_FIXED[name])
        else:
            self._build(name)

    def _build(self, name: str) -> None:
        if name == "EMPTY_LIST":
            self.stack.append([])
        elif name == "EMPTY_DICT":
            self.stack.append({})
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name == "POP":
            self.stack.pop()
        elif name == "DUP":
            self.stack.append(self._top())
        elif name == "TUPLE":
            self.stack.append(tuple(self._to_mark()))
        elif name == "LIST":
            self.stack.append(self._to_mark())
        elif name == "DICT":
            pairs, made = self._to_mark(), dict[Any, Any]()
            self._fill(made, pairs)
            self.stack.append(made)
        elif name in ("APPEND", "APPENDS"):
            items = [self.stack.pop()] if name == "APPEND" else self._to_mark()
            self._of(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = [self.stack.pop(-2), self.stack.pop()] if name == "SETITEM" else self._to_mark()
            self._fill(self._of(dict), pairs)
        else:
            raise Refused(f"it asks for {name}, which plain data does not need; nothing was run", name)

    def _top(self) -> Any:
        if self.stack[-1] is _MARK:
            raise Refused("it is damaged: a mark stands where a value is due")
        return self.stack[-1]

    def _of(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise Refused(
                f"it is damaged: {type(self.stack[-1]).__name__} stands where {kind.__name__} is due"
            )
        return self.stack[-1]

    def _tuple(self, size: int) -> None:
        taken = [self.stack.pop() for _ in range(size)]
        if any(t is _MARK for t in taken):
            raise Refused("it is damaged: a mark stands where a value is due")
        self.stack.append(tuple(reversed(taken)))

    def _to_mark(self) -> list[Any]:
        taken: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            taken.append(item)
        taken.reverse()
        return taken

    @staticmethod
    def _fill(into: dict[Any, Any], pairs: list[Any]) -> None:
        if len(pairs) % 2:
            raise Refused("it is damaged: a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int | float | bytes | None):
                raise Refused(f"it has a {type(key).__name__} as a key")
            into[key] = value
