"""What all logs of lines have in common: prefixes, wrapped lines, a torn end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from . import prefix, text
from .prefix import Prefix
from .rows import Note, Row, Told

MOST_WRAPPED = 16
"""Lines that one wrapped line may stand on."""


@dataclass
class _Held:
    """A line that may go on."""

    line: text.Line
    p: Prefix
    parts: int = 1


class LineFormat:
    """A log of lines. A subclass reads one line; wrapped ones come joined. One object reads one file."""

    name: ClassVar[str]
    place: ClassVar[str] = "line"
    axis: ClassVar[str] = "step of the log"
    signals: ClassVar[dict[str, str]] = {}
    about: ClassVar[tuple[str, ...]] = ()
    averaged: ClassVar[frozenset[str]] = frozenset()
    hints: ClassVar[tuple[str, ...]] = ()
    """a line with none of these is passed over without a further look"""

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line; None where it says nothing of this format."""
        raise NotImplementedError

    def wraps(self, text: str) -> bool:
        """Whether a line may go on on the next one."""
        return False

    def continues(self, text: str, more: str) -> bool:
        """Whether `more` is the next part of a line that may go on."""
        return False

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all rows in their order."""
        held: _Held | None = None
        for line in text.lines(path, told):
            if held is not None:
                if self._joins(held, line):
                    continue
                yield from self._one(held.p, held.line, told)
                held = None
            if not any(h in line.text for h in self.hints):
                continue
            p = prefix.split(line.text)
            if self.wraps(p.rest):
                held = _Held(line, p)
            else:
                yield from self._one(p, line, told)
        if held is not None:
            yield from self._one(held.p, held.line, told)

    def _joins(self, held: _Held, line: text.Line) -> bool:
        """Whether a line is the next part of a wrapped one; it is added then."""
        more = prefix.split(line.text).rest
        if not more.strip() or held.parts >= MOST_WRAPPED or not self.continues(held.p.rest, more):
            return False
        held.p.rest += more
        held.line.ended = line.ended
        held.parts += 1
        return True

    def _one(self, p: Prefix, line: text.Line, told: Told) -> Iterator[Row | Note]:
        found = self.parse(p, line, told)
        if found is None:
            return
        if isinstance(found, Row):
            told.recognised += 1
            if found.rank is None:
                found.rank, found.local = p.rank, p.local
            found.node = found.node or p.node
            if found.at is None:
                found.at, found.zoned = prefix.time(line.text[:160])
        elif found.rank is None:
            found.rank = p.rank
        yield found
