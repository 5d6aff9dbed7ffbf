"""Reading pieces of a file of a checkpoint: here, in a store, or in a stretch of another file.

Of a file here it is noticed when it changes meanwhile. Of one in a store only what is asked for comes over the network,
with some bytes around it, since a request costs more than they do.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .errors import Unreadable

AHEAD = 64 << 10
"""Bytes that are fetched at least with one request to a store."""
_STRETCHES = 4
"""Stretches of a file in a store that are kept: its end, its beginning, and what was read last."""
_AT_ONCE = 1 << 26

Range = tuple[int, int]
"""first byte, number of bytes"""
Fetch = Callable[[Sequence[Range]], list[bytes]]


class Bytes(Protocol):
    """A file, or a stretch of one."""

    size: int

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""

    def read(self, size: int = -1) -> bytes:
        """Read from there."""

    def ranges(self, places: Sequence[Range]) -> list[bytes]:
        """Several short pieces at once, in their order; what lies beyond the end is left out."""


class _Places(io.RawIOBase):
    """What all kinds share: a size, and a place in it."""

    def __init__(self, size: int) -> None:
        self.size, self._at = size, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The place in it, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        to = (0, self._at, self.size)[whence] + offset
        if to < 0:
            raise OSError("a place before the file")
        self._at = to
        return to

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes from here. Raises `Unreadable`."""
        left = max(self.size - self._at, 0)
        data = self.piece(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return how many bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def piece(self, start: int, length: int) -> bytes:
        """Bytes from a place on, which lies within."""
        raise NotImplementedError

    def ranges(self, places: Sequence[Range]) -> list[bytes]:
        """Several short pieces, in their order."""
        return [self.piece(start, max(min(length, self.size - start), 0)) for start, length in places]


class Source(_Places):
    """A file here, opened for reading pieces. `counted` is told how many bytes were read."""

    def __init__(self, name: str, number: int, size: int, mtime: int, counted: Callable[[int], None]) -> None:
        super().__init__(size)
        self._name, self._number, self._mtime, self._counted = name, number, mtime, counted

    def piece(self, start: int, length: int) -> bytes:
        """Bytes from a place on. Raises `Unreadable`."""
        pieces = []
        while length > 0:
            try:
                data = os.pread(self._number, min(length, _AT_ONCE), start)
            except OSError as e:
                raise Unreadable(f"{self._name} cannot be read ({e.strerror})") from None
            if not data:
                break
            pieces.append(data)
            start += len(data)
            length -= len(data)
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._counted(len(found))
        return found

    def close(self) -> None:
        """Close it; raises `Unreadable` when the file is another than it was at the start."""
        if self.closed:
            return
        now = os.fstat(self._number)
        os.close(self._number)
        super().close()
        if (now.st_size, now.st_mtime_ns) != (self.size, self._mtime):
            raise Unreadable(f"{self._name} changed while it was read: it is still being written")


class Window(_Places):
    """A stretch of a file, as a file of its own."""

    def __init__(self, source: Bytes, start: int, length: int) -> None:
        super().__init__(length)
        self._source, self._start = source, start

    def piece(self, start: int, length: int) -> bytes:
        """Bytes from a place on."""
        self._source.seek(self._start + start)
        return self._source.read(length)

    def ranges(self, places: Sequence[Range]) -> list[bytes]:
        """Several short pieces, in their order."""
        inside = [(self._start + a, max(min(n, self.size - a), 0)) for a, n in places]
        return self._source.ranges(inside)


class Remote(_Places):
    """A file in a store. `fetch` gives ranges of it; `known` is what was fetched of it, and is added to."""

    def __init__(self, name: str, size: int, fetch: Fetch, known: list[tuple[int, bytes]]) -> None:
        super().__init__(size)
        self._name, self._fetch = name, fetch
        self._kept = known

    def piece(self, start: int, length: int) -> bytes:
        """Bytes from a place on. Raises `Unreadable`."""
        if length <= 0:
            return b""
        for first, data in list(self._kept):
            if first <= start and start + length <= first + len(data):
                return data[start - first : start - first + length]
        if length >= AHEAD:
            return self._asked([(start, length)])[0]
        first = min(start, max(self.size - AHEAD, 0))
        (data,) = self._asked([(first, min(max(AHEAD, start - first + length), self.size - first))])
        self._kept[:] = [(first, data), *self._kept[: _STRETCHES - 1]]
        return data[start - first : start - first + length]

    def ranges(self, places: Sequence[Range]) -> list[bytes]:
        """Several short pieces, with as few requests as there are stretches of them."""
        out: list[bytes] = [b""] * len(places)
        groups: list[tuple[Range, list[int]]] = []
        for i in sorted(range(len(places)), key=lambda i: places[i]):
            start, end = places[i][0], min(sum(places[i]), self.size)
            if end <= start:
                continue
            if groups and end - groups[-1][0][0] <= AHEAD:
                (first, held), members = groups.pop()
                groups.append(((first, max(held, end - first)), [*members, i]))
            else:
                groups.append(((start, end - start), [i]))
        found = self._asked([stretch for stretch, _ in groups])
        for ((first, _), members), data in zip(groups, found, strict=True):
            for i in members:
                at = places[i][0] - first
                out[i] = data[at : at + places[i][1]]
        return out

    def _asked(self, places: Sequence[Range]) -> list[bytes]:
        found = self._fetch(places)
        for (_, length), data in zip(places, found, strict=True):
            if len(data) != length:
                raise Unreadable(
                    f"of {self._name} {len(data):,} bytes came where {length:,} were asked for: it changed while it "
                    "was read, or the store cannot read ranges"
                )
        return found
