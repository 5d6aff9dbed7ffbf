"""The common stream of all log formats: rows of values at a step, and notes about what else a log says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from ..entries import ImportTrouble

Kind = Literal["train", "eval", "also"]


@dataclass(slots=True)
class Row:
    """What a log says of one step in one place: a line, an entry, an event."""

    step: int
    """as the log counts"""
    values: dict[str, float]
    """the log's own key -> the value as it is written, in the unit of `Told.units`"""
    line: int
    kind: Kind = "train"
    """eval: of the state after `step` updates; also: stands beside a training row, and tells no order"""
    rank: int | None = None
    """None where the log does not say who wrote it"""
    local: bool = False
    """the rank is one within a node, and which node is not shown"""
    node: str | None = None
    at: datetime | None = None
    zoned: bool = True
    """the time carries its zone"""


@dataclass(slots=True)
class Note:
    """Something that is no value of a step: a skipped update, a checkpoint that was loaded, the world size."""

    kind: Literal["skip", "loaded", "world"]
    line: int
    number: int | None = None
    """loaded: completed updates of the checkpoint; world: processes"""
    rank: int | None = None
    text: str = ""


@dataclass
class Told:
    """What reading a file said about the file itself."""

    units: dict[str, str] = field(default_factory=dict)
    """key -> unit of its values"""
    gaps: list[str] = field(default_factory=list)
    """what a reader of the values must know, in words"""
    torn: bool = False
    lines: int = 0
    recognised: int = 0

    def say(self, text: str) -> None:
        """Add a gap, once."""
        if text not in self.gaps:
            self.gaps.append(text)


class Format(Protocol):
    """One kind of log: told by content, and read as a stream."""

    name: ClassVar[str]
    place: ClassVar[str]
    """what `Row.line` counts: line, entry, event"""
    axis: ClassVar[str]
    """what the step is read from"""
    signals: ClassVar[dict[str, str]]
    """key -> the signal that it is"""
    about: ClassVar[tuple[str, ...]]
    """what is known of this format's values and not written in the file"""
    averaged: ClassVar[frozenset[str]]
    """keys that are means over the steps since the last row"""

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all rows in their order. Raises `ImportTrouble` where the file cannot be read on."""
        ...


__all__ = ["Format", "ImportTrouble", "Kind", "Note", "Row", "Told"]
