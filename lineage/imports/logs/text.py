"""The lines of a log as text, one at a time: compressed or not, coloured, torn, in any encoding. Never read whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .rows import ImportTrouble, Told

LONGEST = 1 << 20
"""Bytes of a line that are looked at; the rest of a longer one is left out, and said."""
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}


@dataclass(slots=True)
class Line:
    """One line without its colours. `ended`: it has a newline, so nothing of it can be missing."""

    number: int
    text: str
    ended: bool = True


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked where it is gzip. Raises `ImportTrouble` for a file that cannot be read."""
    try:
        with _open(path) as f:
            return _some(f, size)
    except OSError as e:
        raise ImportTrouble(f"{path} cannot be read: {e}") from None


def _some(f: IO[bytes], size: int) -> bytes:
    """At most `size` bytes, fewer where the file ends or is damaged before."""
    found = b""
    with contextlib.suppress(EOFError, zlib.error):
        while len(found) < size and (more := f.read(min(1024, size - len(found)))):
            found += more
    return found


def lines(path: Path, told: Told) -> Iterator[Line]:
    """All lines. A carriage return divides a line as it does on a terminal; the number stays that of the line."""
    undecoded = cut = 0
    for n, (raw, ended, whole) in enumerate(_raw(path, told), 1):
        told.lines = n
        cut += not whole
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            undecoded += 1
            text = raw.decode("utf-8", "replace")
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if "\0" in text:  # a hole that a crash left
            text = text.replace("\0", "")
        if "\r" in text:
            parts = [p for p in text.split("\r") if p]
            for i, part in enumerate(parts, 1):
                yield Line(n, part, ended or i < len(parts))
        else:
            yield Line(n, text, ended)
    if undecoded:
        told.say(f"{undecoded:,} lines are no UTF-8: their other characters were read")
    if cut:
        told.say(f"{cut:,} lines are longer than {LONGEST:,} bytes: what comes after was left out")


def _raw(path: Path, told: Told) -> Iterator[tuple[bytes, bool, bool]]:
    """Lines as bytes: (without newline, has a newline, is whole)."""
    with _open(path) as opened:
        f: Any = opened
        encoding = _UTF16.get(head(path, 2))
        if encoding is not None:
            f = _Recoded(opened, encoding)
        try:
            while raw := f.readline(LONGEST):
                whole = raw.endswith(b"\n") or len(raw) < LONGEST
                while not raw.endswith(b"\n") and (more := f.readline(LONGEST)):
                    if more.endswith(b"\n"):
                        raw += b"\n"
                ended = raw.endswith(b"\n")
                yield raw.rstrip(b"\r\n") if ended else raw, ended, whole
        except (EOFError, zlib.error) as e:
            told.torn = True
            told.say(f"the compressed file is cut off ({e}): what comes after was lost")


def _open(path: Path) -> IO[bytes]:
    try:
        f = path.open("rb")
    except OSError as e:
        raise ImportTrouble(f"{path} cannot be read: {e.strerror or e}") from None
    start = f.peek(6)[:6] if isinstance(f, io.BufferedReader) else b""
    for mark, name in _OTHERS.items():
        if start.startswith(mark) and name != "zip":
            f.close()
            raise ImportTrouble(f"{path} is packed with {name}: unpack it first (gzip is read as it is)")
    if not start.startswith(b"\x1f\x8b"):
        return f
    f.close()
    packed: Any = gzip.open(path, "rb")  # noqa: SIM115
    return packed  # type: ignore[no-any-return]


class _Recoded(io.RawIOBase):
    """Lines of a UTF-16 file as UTF-8."""

    def __init__(self, f: IO[bytes], encoding: str) -> None:
        f.read(2)
        self._text = io.TextIOWrapper(f, encoding=encoding, errors="replace", newline="\n")

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._text.readline(-1 if size is None else size).encode("utf-8", "replace")
