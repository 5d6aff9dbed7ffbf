"""Reading a pickle without running it: every operation is carried out here, and none imports or calls anything.

A pickle is a program that names functions and calls them. Here a name becomes a `Named`, a call becomes a `Made` that
holds the name and the arguments, and the few calls that checkpoints are full of (tensors, ordered dicts, sizes) become
plain data by functions of this package (`rebuild.py`), which work without torch. Nothing that a file names is ever
looked up. A name that no checkpoint needs and that attacks use ends the reading with `Hostile`.

Not `pickle.Unpickler` with a `find_class` of our own: its memo grows to whatever index a file names, `EXT` codes reach
real objects through copyreg, and BUILD sets attributes. The operations are those of CPython's `Lib/pickle.py`.
"""

from __future__ import annotations

import struct
from typing import Any

from . import rebuild
from .errors import CutOff, Damaged, Hostile
from .pickle_stack import TABLE, WORD, Stack
from .pickle_values import Made, Named, Storage

MOST_OPERATIONS = 100_000_000
_MEMOIZE, _LONG_BINGET, _BINGET, _BININT1 = 0x94, 0x6A, 0x68, 0x4B

_DANGEROUS = {
    *(
        "os",
        "posix",
        "nt",
        "sys",
        "subprocess",
        "commands",
        "pty",
        "socket",
        "shutil",
        "ctypes",
        "_ctypes",
        "signal",
    ),
    *(
        "importlib",
        "imp",
        "runpy",
        "code",
        "codeop",
        "marshal",
        "pickle",
        "_pickle",
        "shelve",
        "pdb",
        "bdb",
        "timeit",
    ),
    *(
        "cProfile",
        "profile",
        "trace",
        "webbrowser",
        "urllib",
        "http",
        "ftplib",
        "smtplib",
        "telnetlib",
        "requests",
    ),
    *(
        "asyncio",
        "multiprocessing",
        "threading",
        "_thread",
        "pip",
        "setuptools",
        "types",
        "operator",
        "_operator",
    ),
    *(
        "platform",
        "tempfile",
        "io",
        "_io",
        "gc",
        "inspect",
        "site",
        "zipimport",
        "doctest",
        "pydoc",
        "linecache",
    ),
}
_BUILTINS = {"__builtin__", "builtins"}
_PLAIN_BUILTINS = {
    *(
        "set",
        "frozenset",
        "bytearray",
        "bytes",
        "complex",
        "slice",
        "range",
        "object",
        "list",
        "dict",
        "tuple",
    ),
    *(
        "int",
        "float",
        "str",
        "bool",
        "long",
        "unicode",
        "type",
        "getattr",
        "print",
        "xrange",
        "NotImplemented",
    ),
    *("Exception", "ValueError", "RuntimeError", "KeyError", "TypeError", "Ellipsis"),
}
_TORCH_CODE = (
    "torch.hub",
    "torch.load",
    "torch.jit",
    "torch.utils.cpp_extension",
    "torch.package",
    "torch.ops",
)


class Read:
    """What a pickle held: its value, the place behind its end, and every name it would have imported."""

    __slots__ = ("end", "names", "value")

    def __init__(self, value: Any, end: int, names: list[str]) -> None:
        self.value, self.end, self.names = value, end, names


def read(data: bytes, start: int = 0) -> Read:
    """Read one pickle from `data`, beginning at byte `start`.

    Raises `CutOff` where its end is missing, `Damaged` where it makes no sense, `Hostile` where it names code.
    """
    machine = _Machine(data, start)
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

    def run(self) -> Read:
        """Carry operations out until STOP. The four that make up half of a big pickle stand in the loop itself."""
        data, memo, table = (
            self.data,
            self.memo,
            [getattr(self, "op_" + n, None) if n else None for n in TABLE],
        )
        pos, stack = self.pos, self.stack
        if pos >= len(data):
            raise CutOff("there is no pickle: the file ends before it")
        try:
            for _ in range(MOST_OPERATIONS):
                code = data[pos]
                pos += 1
                if code == _MEMOIZE:
                    memo[len(memo)] = stack[-1]
                elif code == _LONG_BINGET:
                    stack.append(memo[WORD(data, pos)[0]])
                    pos += 4
                elif code == _BINGET:
                    stack.append(memo[data[pos]])
                    pos += 1
                elif code == _BININT1:
                    stack.append(data[pos])
                    pos += 1
                else:
                    act = table[code]
                    if act is None:
                        raise Damaged(f"byte {pos - 1:,} is {code:#04x}, which is no operation of a pickle")
                    self.pos = pos
                    act()
                    pos, stack = self.pos, self.stack
                    if self.done:
                        return self.result()
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
