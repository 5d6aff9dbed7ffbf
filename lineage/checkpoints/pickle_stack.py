"""The stack of the pickle machine: the operations that build plain data, and the table of all operations.

Each is as in CPython's Lib/pickle.py; containers that the pickle builds of classes are `Made`, and hold what they get.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from .errors import CutOff, Damaged
from .pickle_values import Made, Named

MOST_DEPTH = 4
"""Tuples in tuples that may be the key of a dict: hashing a deep nest would exhaust the C stack."""


WORD, SIGNED = struct.Struct("<I").unpack_from, struct.Struct("<i").unpack_from


class Stack:
    """Stack, marks and memo, and reading the arguments of operations."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.pos = data, start
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: list[Any] | Sparse = []
        self.done = False

    # reading arguments

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.pos + count
        if count < 0:
            raise Damaged("the pickle is damaged: a length below zero")
        if end > len(self.data):
            self.pos = len(self.data)
            raise CutOff("the pickle is cut off: its end is missing")
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def number(self, size: int, *, signed: bool = False) -> int:
        """A little-endian number."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self, encoding: str = "utf-8") -> str:
        """Text to the end of its line, as protocol 0 writes it."""
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            self.pos = len(self.data)
            raise CutOff("the pickle is cut off: its end is missing")
        text = self.data[self.pos : end].decode(encoding, "surrogateescape")
        self.pos = end + 1
        return text

    def to_mark(self) -> list[Any]:
        """What was put since the last mark; the stack before it comes back."""
        taken = self.stack
        self.stack = self.marks.pop()
        return taken

    # plain values

    def op_proto(self) -> None:
        """PROTO."""
        if self.number(1) > 5:
            raise Damaged("the pickle is of a protocol above 5, which this version does not know")

    def op_frame(self) -> None:
        """FRAME."""
        self.take(8)

    def op_stop(self) -> None:
        """STOP."""
        self.done = True

    def op_none(self) -> None:
        """NONE."""
        self.stack.append(None)

    def op_true(self) -> None:
        """TRUE."""
        self.stack.append(True)

    def op_false(self) -> None:
        """FALSE."""
        self.stack.append(False)

    def op_int(self) -> None:
        """INT."""
        text = self.line()
        self.stack.append({"00": False, "01": True}[text] if text in ("00", "01") else int(text))

    def op_long(self) -> None:
        """LONG."""
        self.stack.append(int(self.line().rstrip("L")))

    def op_binint(self) -> None:
        """BININT."""
        self.stack.append(self.number(4, signed=True))

    def op_binint1(self) -> None:
        """BININT1."""
        self.stack.append(self.data[self.pos])
        self.pos += 1

    def op_binint2(self) -> None:
        """BININT2."""
        self.stack.append(self.number(2))

    def op_long1(self) -> None:
        """LONG1."""
        self.stack.append(self.number(self.number(1), signed=True))

    def op_long4(self) -> None:
        """LONG4."""
        self.stack.append(self.number(self.number(4, signed=True), signed=True))

    def op_float(self) -> None:
        """FLOAT."""
        self.stack.append(float(self.line()))

    def op_binfloat(self) -> None:
        """BINFLOAT."""
        self.stack.append(struct.unpack(">d", self.take(8))[0])

    def op_string(self) -> None:
        """STRING."""
        self.stack.append(self.line()[1:-1])

    def op_binstring(self) -> None:
        """BINSTRING."""
        self.stack.append(self.take(self.number(4)).decode("utf-8", "surrogateescape"))

    def op_short_binstring(self) -> None:
        """SHORT_BINSTRING."""
        self.stack.append(self.take(self.number(1)).decode("utf-8", "surrogateescape"))

    def op_unicode(self) -> None:
        """UNICODE."""
        self.stack.append(self.line("raw-unicode-escape"))

    def op_short_binunicode(self) -> None:
        """SHORT_BINUNICODE."""
        start = self.pos + 1
        end = start + self.data[self.pos]
        if end > len(self.data):
            self.take(end - self.pos)
        self.stack.append(self.data[start:end].decode("utf-8", "surrogatepass"))
        self.pos = end

    def op_binunicode(self) -> None:
        """BINUNICODE."""
        self.stack.append(self.take(self.number(4)).decode("utf-8", "surrogatepass"))

    def op_binunicode8(self) -> None:
        """BINUNICODE8."""
        self.stack.append(self.take(self.number(8)).decode("utf-8", "surrogatepass"))

    def op_binbytes(self) -> None:
        """BINBYTES."""
        self.stack.append(self.take(self.number(4)))

    def op_short_binbytes(self) -> None:
        """SHORT_BINBYTES."""
        self.stack.append(self.take(self.number(1)))

    def op_binbytes8(self) -> None:
        """BINBYTES8."""
        self.stack.append(self.take(self.number(8)))

    # containers

    def op_mark(self) -> None:
        """MARK."""
        self.marks.append(self.stack)
        self.stack = []

    def op_pop(self) -> None:
        """POP."""
        if self.stack:
            self.stack.pop()
        else:
            self.to_mark()

    def op_pop_mark(self) -> None:
        """POP_MARK."""
        self.to_mark()

    def op_dup(self) -> None:
        """DUP."""
        self.stack.append(self.stack[-1])

    def op_empty_tuple(self) -> None:
        """EMPTY_TUPLE."""
        self.stack.append(())

    def op_tuple1(self) -> None:
        """TUPLE1."""
        self.stack[-1] = (self.stack[-1],)

    def op_tuple2(self) -> None:
        """TUPLE2."""
        self.stack[-2:] = [(self.stack[-2], self.stack[-1])]

    def op_tuple3(self) -> None:
        """TUPLE3."""
        self.stack[-3:] = [(self.stack[-3], self.stack[-2], self.stack[-1])]

    def op_tuple(self) -> None:
        """TUPLE."""
        items = self.to_mark()
        self.stack.append(tuple(items))

    def op_empty_list(self) -> None:
        """EMPTY_LIST."""
        self.stack.append([])

    def op_list(self) -> None:
        """LIST."""
        items = self.to_mark()
        self.stack.append(items)

    def op_frozenset(self) -> None:
        """FROZENSET."""
        items = self.to_mark()
        self.stack.append(items)

    def op_empty_dict(self) -> None:
        """EMPTY_DICT."""
        self.stack.append({})

    def op_dict(self) -> None:
        """DICT."""
        items = self.to_mark()
        made: dict[Any, Any] = {}
        fill(made, items)
        self.stack.append(made)

    def op_append(self) -> None:
        """APPEND."""
        _extend(self.stack[-2], [self.stack[-1]])
        self.stack.pop()

    def op_appends(self) -> None:
        """APPENDS."""
        items = self.to_mark()
        _extend(self.stack[-1], items)

    def op_setitem(self) -> None:
        """SETITEM."""
        fill(self.stack[-3], self.stack[-2:])
        del self.stack[-2:]

    def op_setitems(self) -> None:
        """SETITEMS."""
        items = self.to_mark()
        fill(self.stack[-1], items)

    # the memo

    def op_get(self) -> None:
        """GET."""
        at = int(self.line())
        if at < 0:
            raise Damaged("the pickle is damaged: a place below zero in its memory")
        self.stack.append(self.memo[at])

    def op_binget(self) -> None:
        """BINGET."""
        self.stack.append(self.memo[self.data[self.pos]])
        self.pos += 1

    def op_long_binget(self) -> None:
        """LONG_BINGET."""
        at = self.pos
        self.stack.append(self.memo[WORD(self.data, at)[0]])
        self.pos = at + 4

    def op_put(self) -> None:
        """PUT."""
        self.remember(int(self.line()))

    def op_binput(self) -> None:
        """BINPUT."""
        self.remember(self.data[self.pos])
        self.pos += 1

    def op_long_binput(self) -> None:
        """LONG_BINPUT."""
        self.remember(self.number(4))

    def op_memoize(self) -> None:
        """MEMOIZE."""
        self.memo.append(self.stack[-1])

    def remember(self, at: int) -> None:
        """Keep the top of the stack under a number. Writers count up; what does not is no reason to fill a list."""
        if at == len(self.memo):
            self.memo.append(self.stack[-1])
            return
        if not isinstance(self.memo, Sparse):
            self.memo = Sparse(enumerate(self.memo))
        self.memo[at] = self.stack[-1]


class Sparse(dict[int, Any]):
    """A memory whose numbers do not count up, with what a list has."""

    def append(self, value: Any) -> None:
        """MEMOIZE takes the number of what is there."""
        self[len(self)] = value

    def extend(self, values: Iterable[Any]) -> None:
        """Several MEMOIZE."""
        for value in values:
            self.append(value)


def _extend(of: Any, items: list[Any]) -> None:
    if isinstance(of, list):
        of.extend(items)
    elif isinstance(of, Made):
        of.add(items)
    else:
        raise Damaged(f"the pickle is damaged: it appends to a {type(of).__name__}")


def fill(of: Any, pairs: list[Any]) -> None:
    """Set items: a key and a value, one after the other."""
    if len(pairs) % 2:
        raise Damaged("the pickle is damaged: a key without a value")
    into = of if isinstance(of, dict) else of.own_pairs() if isinstance(of, Made) else None
    if into is None:
        raise Damaged(f"the pickle is damaged: it sets an item of a {type(of).__name__}")
    each = iter(pairs)
    for key, value in zip(each, each, strict=True):
        if key.__class__ is str or key.__class__ is Made or _hashable(key, MOST_DEPTH):
            into[key] = value
        else:
            into[Made("unhashable", (key,))] = value


def _hashable(key: Any, depth: int) -> bool:
    if isinstance(key, tuple):
        return depth > 0 and len(key) <= 64 and all(_hashable(k, depth - 1) for k in key)
    return isinstance(key, str | bytes | int | float | Made | Named | None)


_NAMES = {
    0x80: "proto", 0x95: "frame", 0x2E: "stop", 0x4E: "none", 0x88: "true", 0x89: "false", 0x49: "int",
    0x4C: "long", 0x4A: "binint", 0x4B: "binint1", 0x4D: "binint2", 0x8A: "long1", 0x8B: "long4", 0x46: "float",
    0x47: "binfloat", 0x53: "string", 0x54: "binstring", 0x55: "short_binstring", 0x56: "unicode",
    0x8C: "short_binunicode", 0x58: "binunicode", 0x8D: "binunicode8", 0x42: "binbytes",
    0x43: "short_binbytes", 0x8E: "binbytes8", 0x96: "binbytes8", 0x28: "mark", 0x30: "pop", 0x31: "pop_mark",
    0x32: "dup", 0x29: "empty_tuple", 0x85: "tuple1", 0x86: "tuple2", 0x87: "tuple3", 0x74: "tuple",
    0x5D: "empty_list", 0x6C: "list", 0x8F: "empty_list", 0x90: "appends", 0x91: "frozenset",
    0x7D: "empty_dict", 0x64: "dict", 0x61: "append", 0x65: "appends", 0x73: "setitem", 0x75: "setitems",
    0x67: "get", 0x68: "binget", 0x6A: "long_binget", 0x70: "put", 0x71: "binput", 0x72: "long_binput",
    0x94: "memoize", 0x63: "global", 0x93: "stack_global", 0x52: "reduce", 0x81: "newobj", 0x92: "newobj_ex",
    0x69: "inst", 0x6F: "obj", 0x62: "build", 0x50: "persid", 0x51: "binpersid",
}  # fmt: skip
"""Byte -> operation (CPython's Lib/pickletools.py). EXT1, EXT2, EXT4 and out-of-band buffers are left out."""
TABLE: list[str] = [_NAMES.get(code, "") for code in range(256)]
