"""The page as data: sections of paragraphs, lists, tables and charts, the same for both formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Style = Literal["plain", "strong", "code", "quiet", "bad", "warn", "good"]


@dataclass(frozen=True)
class Span:
    """A piece of text and how it stands out. Words alone must be enough: style only repeats them."""

    text: str
    style: Style = "plain"


Inline = str | Span | Sequence[str | Span]
"""One line of text: a string, a span, or several of them in a row."""


@dataclass(frozen=True)
class Para:
    """A paragraph."""

    text: Inline


@dataclass(frozen=True)
class Bullets:
    """A list of lines."""

    items: Sequence[Inline]


@dataclass(frozen=True)
class Table:
    """A table: what it shows, its column heads, and rows whose first cell is the row's head."""

    caption: Inline
    head: Sequence[str]
    rows: Sequence[Sequence[Inline]]
    grid: bool = False
    """squares of a grid, which stay side by side on a phone; other tables are stacked there"""


@dataclass(frozen=True)
class Pre:
    """Lines in fixed width."""

    caption: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Chart:
    """A chart by name, with the words that say the same to whoever cannot see it."""

    name: str
    title: str
    words: str


@dataclass(frozen=True)
class Map:
    """The map of ranks and steps: the same squares as markup for a page, and as lines of letters."""

    title: str
    words: str
    svg: str
    """made by `grid_svg`, which escapes what it takes from a ledger"""
    lines: Sequence[str]


@dataclass(frozen=True)
class Twig:
    """One line of an outline, and the lines under it."""

    text: Inline
    under: Sequence[Twig] = ()


@dataclass(frozen=True)
class Outline:
    """A tree of lines, to be read from the top."""

    caption: str
    twigs: Sequence[Twig]


@dataclass(frozen=True)
class Sub:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Written:
    """What a person writes and no record tells: Markdown of theirs, kept as it stands."""

    key: str
    hint: str
    """what belongs here, for whoever writes it"""
    text: str = ""


Block = Para | Bullets | Table | Pre | Chart | Map | Outline | Sub | Written


@dataclass(frozen=True)
class Section:
    """A section under a heading."""

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)


# Control characters, and the characters that turn the direction of text around, could make a value from a
# config or an exception read as something else than it is.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def clean(text: str) -> str:
    """Replace characters that are not seen but change what is; line ends become spaces."""
    return _UNSEEN.sub("\ufffd", text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def spans(inline: Inline) -> list[Span]:
    """Bring a line to a list of clean spans."""
    if isinstance(inline, str):
        inline = Span(inline)
    if isinstance(inline, Span):
        inline = [inline]
    found = (s if isinstance(s, Span) else Span(s) for s in inline)
    return [Span(clean(s.text), s.style) for s in found]


def plain(inline: Inline) -> str:
    """The text of a line without its styles."""
    return "".join(s.text for s in spans(inline))
