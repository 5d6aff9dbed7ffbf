"""Reading a pickle without running it: every operation is carried out here, and none imports or calls anything.

A pickle is a program that names functions and calls them. Here a name becomes a `Named`, a call becomes a `Made` that
holds the name and the arguments, and the few calls that checkpoints are full of (tensors, ordered dicts, sizes) become
plain data by functions of this package (`rebuild.py`), which work without torch. Nothing that a file names is ever
looked up. A name that no checkpoint needs and that attacks use ends the reading with `Hostile`.

Not `pickle.Unpickler` with a `find_class` of our own: its memo grows to whatever index a file names, `EXT` codes reach
real objects through copyreg, and BUILD sets attributes. The operations are those of CPython's `Lib/pickle.py`.
"""

from __future__ import annotations

import pickletools
import re
import struct
from functools import lru_cache, partial
from typing import Any

from . import rebuild
from .errors import CutOff, Damaged, Hostile, NotPlain
from .pickle_stack import SIGNED, TABLE, WORD, Stack, fill
from .pickle_values import Made, Named, Storage

MOST_OPERATIONS = 100_000_000

_DANGEROUS = frozenset(
    """
    os posix nt sys subprocess commands pty socket shutil ctypes _ctypes signal importlib imp runpy code codeop marshal
    pickle _pickle shelve pdb bdb timeit cProfile profile trace webbrowser urllib http ftplib smtplib telnetlib requests
    asyncio multiprocessing threading _thread pip setuptools types operator _operator platform tempfile io _io gc
    inspect site zipimport doctest pydoc linecache
    """.split()  # noqa: SIM905 - a list with one name on each line would be a page
)
_BUILTINS = frozenset({"__builtin__", "builtins"})
_PLAIN_BUILTINS = frozenset(
    """
    set frozenset bytearray bytes complex slice range object list dict tuple int float str bool long unicode type
    getattr print xrange NotImplemented Exception ValueError RuntimeError KeyError TypeError Ellipsis
    """.split()  # noqa: SIM905
)
_TORCH_CODE = tuple(
    f"torch.{name}" for name in ("hub", "load", "jit", "utils.cpp_extension", "package", "ops")
)

_NOT_PLAIN = frozenset(b"\x63\x93\x52\x81\x92\x69\x6f\x62\x50\x51\x8f\x90\x91\x96")
"""Names, calls, states and persistent ids; sets and bytearrays, which no plain data of ours has."""
_MEMOIZE, _BINPUT, _LONG_BINPUT, _BINGET, _LONG_BINGET = 0x94, 0x71, 0x72, 0x68, 0x6A
_BININT1, _BININT2, _BININT, _TEXT, _SETITEMS, _BUILD = 0x4B, 0x4D, 0x4A, 0x8C, 0x75, 0x62
_OBJECT = b")\x81\x94}\x94("
"""EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT MEMOIZE MARK: how an object of a plain class begins, behind its class."""
_INT = rb"(?:K.|M..|J...[\x00-\x7f])"
_SIZE = re.compile(
    b"(?:(%b)\x85|(%b{2})\x86|(%b{3})\x87|\\((%b{4,9})t)\x94\x85\x94R\x94" % ((_INT,) * 4), re.DOTALL
).match
"""Ints, TUPLE, MEMOIZE, TUPLE1, MEMOIZE, REDUCE, MEMOIZE: the call of a class with one tuple of ints, as torch.Size."""


class Read:
    """What a pickle held: its value, the place behind its end, and every name it would have imported."""

    __slots__ = ("end", "names", "value")

    def __init__(self, value: Any, end: int, names: list[str]) -> None:
        self.value, self.end, self.names = value, end, names


def read(data: bytes, start: int = 0) -> Read:
    """Read one pickle from `data`, beginning at byte `start`.

    Raises `CutOff` where its end is missing, `Damaged` where it makes no sense, `Hostile` where it names code.
    """
    return _run(_Machine(data, start))


def read_plain(data: bytes) -> Any:
    """The plain data that a pickle holds: None, bool, int, float, str, bytes, list, tuple, dict with plain keys.

    Raises `NotPlain` for every operation that such data do not need, and what `read` raises.
    """
    value = _run(_Plain(data, 0)).value
    left, seen = [value], set()
    while left:
        at = left.pop()
        if isinstance(at, dict | list | tuple) and id(at) not in seen:
            seen.add(id(at))
            left += at.values() if isinstance(at, dict) else at
            odd = [k for k in at if isinstance(k, tuple | Made)] if isinstance(at, dict) else ()
            if odd:
                raise Damaged(f"it has a {'tuple' if isinstance(odd[0], tuple) else odd[0].of} as a key")
    return value


def _run(machine: _Machine) -> Read:
    data = machine.data
    try:
        return machine.run()
    except (CutOff, Damaged, Hostile):
        raise
    except (IndexError, struct.error) as e:
        if machine.pos + 4 > len(data):
            raise CutOff("the pickle is cut off: its end is missing") from None
        raise Damaged(f"the pickle is damaged ({type(e).__name__} at byte {machine.pos:,})") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError) as e:
        raise Damaged(f"the pickle is damaged ({type(e).__name__} at byte {machine.pos:,})") from None


def hostile(module: str, name: str) -> bool:
    """Whether a name is code that no checkpoint needs, and that runs things."""
    full = f"{module}.{name}"
    if module in _BUILTINS:
        return name.split(".", maxsplit=1)[0] not in _PLAIN_BUILTINS
    root = module.partition(".")[0]
    if root in _DANGEROUS:
        return True
    if any(full == t or full.startswith(t + ".") for t in _TORCH_CODE):
        return True
    return name.startswith("__") or "__globals__" in name or ".__" in name


class _Machine(Stack):
    """The stack, and the operations that name and call."""

    def __init__(self, data: bytes, start: int) -> None:
        super().__init__(data, start)
        self.names: dict[tuple[str, str], Named] = {}
        self.left = 4 * len(data) + (64 << 20)
        """bytes and entries that calls may still copy: calls on one remembered text would fill the memory"""

    def operations(self) -> list[Any]:
        """Code -> what carries it out; None where there is nothing."""
        return [getattr(self, "op_" + n, None) if n else None for n in TABLE]

    def run(self) -> Read:  # noqa: PLR0912, PLR0915 - calls would cost more than the operations
        """Carry operations out until STOP.

        Those that make up most of a big pickle stand in the loop itself, and two phrases of them are taken at once: how
        an object begins, and a torch.Size. Each phrase is a whole number of operations, and does what they do.
        """
        data, size, memo, marks = self.data, len(self.data), self.memo, self.marks
        table = self.operations()
        pos, stack = self.pos, self.stack
        held: Any
        if pos >= size:
            raise CutOff("there is no pickle: the file ends before it")
        try:
            for _ in range(MOST_OPERATIONS):
                code = data[pos]
                pos += 1
                if code == _LONG_BINGET:
                    value = memo[WORD(data, pos)[0]]
                    pos += 4
                elif code == _BINGET:
                    value = memo[data[pos]]
                    pos += 1
                elif code == _BININT1:
                    stack.append(data[pos])
                    pos += 1
                    continue
                elif code == _MEMOIZE:
                    memo.append(stack[-1])
                    continue
                elif code == _SETITEMS:
                    items = stack
                    stack = self.stack = marks.pop()
                    fill(stack[-1], items)
                    continue
                elif (
                    code == _BUILD
                    and stack[-1].__class__ is dict
                    and stack[-2].__class__ is Made
                    and stack[-2].state is None
                ):
                    state, held = stack.pop(), stack[-1]
                    self.left -= len(state)
                    held.state = state
                    continue
                elif code == _TEXT and (end := pos + 1 + data[pos]) <= size:
                    stack.append(str(data[pos + 1 : end], "utf-8", "surrogatepass"))
                    pos = end
                    continue
                elif code == _BININT2:
                    stack.append(data[pos] | data[pos + 1] << 8)
                    pos += 2
                    continue
                elif code == _BININT:
                    stack.append(SIGNED(data, pos)[0])
                    pos += 4
                    continue
                elif code == _BINPUT and data[pos] == len(memo):
                    memo.append(stack[-1])
                    pos += 1
                    continue
                elif code == _LONG_BINPUT and WORD(data, pos)[0] == len(memo):
                    memo.append(stack[-1])
                    pos += 4
                    continue
                else:
                    act = table[code]
                    if act is None:
                        raise Damaged(f"byte {pos - 1:,} is {code:#04x}, which is no operation of a pickle")
                    self.pos = pos
                    act()
                    pos, stack, memo = self.pos, self.stack, self.memo
                    if self.done:
                        return self.result()
                    continue
                # what was remembered, and with a class perhaps more than that
                if value.__class__ is not Named:
                    stack.append(value)
                elif value.plain and data.startswith(_OBJECT, pos):
                    begun: tuple[Made, dict[Any, Any]] = Made(value.full), {}
                    memo.extend(begun)
                    stack += begun
                    marks.append(stack)
                    stack = self.stack = []
                    pos += len(_OBJECT)
                elif value.full == "torch.Size" and (found := _SIZE(data, pos)):
                    ints = _ints(found[found.lastindex or 0])
                    stack.append(ints)
                    memo.extend((ints, (ints,), ints))
                    pos = found.end()
                else:
                    stack.append(value)
        except (IndexError, struct.error):
            self.pos = max(pos, self.pos)
            raise
        raise Damaged(f"the pickle has more than {MOST_OPERATIONS:,} operations")

    def result(self) -> Read:
        """The one value that is left. Raises `Damaged` where it is not one."""
        if self.marks or len(self.stack) != 1:
            raise Damaged("the pickle is damaged: it ends with nothing, or with more than one value")
        return Read(self.stack[0], self.pos, sorted(n.full for n in self.names.values()))

    # names and calls: noted, never followed

    def name(self, module: Any, name: Any) -> Named:
        """Note a name; it is not looked up."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise Damaged("the pickle is damaged: a name that is no text")
        known = self.names.get((module, name))
        if known is None:
            if hostile(module, name):
                raise Hostile(f"{module}.{name}"[:200])
            known = self.names[module, name] = Named(module, name)
            known.plain = not rebuild.knows(known)
        return known

    def op_global(self) -> None:
        """GLOBAL."""
        module = self.line()
        self.stack.append(self.name(module, self.line()))

    def op_stack_global(self) -> None:
        """STACK_GLOBAL."""
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.name(module, name))

    def op_reduce(self) -> None:
        """REDUCE."""
        args = self.stack.pop()
        self.stack[-1] = self.call(self.stack[-1], args)

    def op_newobj(self) -> None:
        """NEWOBJ."""
        args = self.stack.pop()
        self.stack[-1] = self.call(self.stack[-1], args)

    def op_newobj_ex(self) -> None:
        """NEWOBJ_EX."""
        named, args = self.stack.pop(), self.stack.pop()
        made = self.stack[-1] = self.call(self.stack[-1], args)
        if isinstance(made, Made) and isinstance(named, dict):
            made.state = named

    def op_inst(self) -> None:
        """INST."""
        module = self.line()
        of = self.name(module, self.line())
        args = self.to_mark()
        self.stack.append(self.call(of, tuple(args)))

    def op_obj(self) -> None:
        """OBJ."""
        args = self.to_mark()
        self.stack.append(self.call(args[0], tuple(args[1:])))

    def op_build(self) -> None:
        """BUILD."""
        state = self.stack.pop()
        of = self.stack[-1]
        self.spend(*(state if isinstance(state, tuple) else (state,)), getattr(of, "state", None))
        if isinstance(of, Made):
            of.build(state)

    def op_persid(self) -> None:
        """PERSID."""
        self.stack.append(Made("persistent", (self.line(),)))

    def op_binpersid(self) -> None:
        """BINPERSID."""
        self.stack.append(_persistent(self.stack.pop()))

    def spend(self, *what: Any) -> None:
        """Count what a call may copy. Raises `Damaged` where that is far more than the file holds."""
        for each in what:
            if isinstance(each, str | bytes | list | dict):
                self.left -= len(each)
        if self.left < 0:
            raise Damaged("the pickle would unpack to far more than it is; it was not read further")

    def call(self, of: Any, args: Any) -> Any:
        """Note a call."""
        if not isinstance(args, tuple):
            raise Damaged("the pickle is damaged: a call without a tuple of arguments")
        self.spend(*args)
        if isinstance(of, Named):
            if of.name == "getattr" and of.module in _BUILTINS:
                _attribute(args)
            return rebuild.call(of, args)
        if isinstance(of, Made):
            return Made(f"{of.of[:200]}(...)", args)
        raise Damaged(f"the pickle is damaged: it calls a {type(of).__name__}")


class _Plain(_Machine):
    """The operations that plain data need."""

    def operations(self) -> list[Any]:
        """The others end the reading."""
        return [
            act if act is not None and code not in _NOT_PLAIN else partial(self.refuse, code)
            for code, act in enumerate(super().operations())
        ]

    def refuse(self, code: int) -> None:
        """Say which operation it is. Raises `NotPlain`, and `Damaged` for what is none."""
        known = next((o.name for o in pickletools.opcodes if o.code == chr(code)), None)
        if known is None:
            raise Damaged(f"byte {self.pos - 1:,} is {code:#04x}, which is no operation of a pickle")
        raise NotPlain(known)


@lru_cache(maxsize=1 << 16)
def _ints(written: bytes) -> tuple[int, ...]:
    """The ints of BININT1, BININT2 and BININT operations."""
    out, at = [], 0
    while at < len(written):
        width = {75: 1, 77: 2, 74: 4}[written[at]]
        out.append(int.from_bytes(written[at + 1 : at + 1 + width], "little"))
        at += 1 + width
    return tuple(out)


def _attribute(args: tuple[Any, ...]) -> None:
    """Python 3.11.0 to 3.11.3 pickled enum members by getattr(class, name); any other use of it is an attack."""
    plain = len(args) == 2 and isinstance(args[0], Named) and isinstance(args[1], str)
    if not plain or args[1].startswith("_") or args[0].module in _BUILTINS:
        raise Hostile("builtins.getattr")


def _persistent(what: Any) -> Any:
    """torch: ("storage", type, key, location, elements[, view])  [torch/serialization.py, persistent_id]."""
    if isinstance(what, tuple) and len(what) >= 5 and what[0] == "storage" and isinstance(what[1], Named):
        return Storage(what[1].name, str(what[2]), str(what[3]), int(what[4]))
    return Made("persistent", what if isinstance(what, tuple) else (what,))
