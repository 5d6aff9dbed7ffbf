"""A batch of tokens as lines: one for each place, with what stands there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..judge import shown_batch as rules
from ..judge.shown_batch import Meaning, Tokens


@dataclass(frozen=True)
class Place:
    """One place of a row."""

    place: int
    id: int
    text: str
    label: int | None
    label_text: str
    counts: bool
    """the label counts in the loss"""
    held: bool
    """a token stands here, and no padding"""
    mask: int | None
    position: int | None
    segment: int | None
    begins: bool
    """another document begins"""
    odd: bool
    """the id or the label is out of range"""


def places(t: Tokens, m: Meaning, text: Sequence[Sequence[str]], row: int) -> Iterator[Place]:
    """The places of one row."""
    held, counts, names = (
        rules.real(t, m, row),
        rules.counts(t, m, row),
        dict(zip(t.ids[row], text[row], strict=True)),
    )
    borders = set(rules.borders(t, m, row))
    for i, value in enumerate(t.ids[row]):
        label = t.labels[row][i] if t.labels is not None else None
        yield Place(
            place=i,
            id=value,
            text=text[row][i],
            label=label,
            label_text="" if label is None else names.get(label, ""),
            counts=bool(counts) and counts[i],
            held=held[i],
            mask=t.mask[row][i] if t.mask is not None else None,
            position=t.positions[row][i] if t.positions is not None else None,
            segment=t.segments[row][i] if t.segments is not None else None,
            begins=i in borders,
            odd=rules.out_of_range(value, m)
            or (label is not None and label >= 0 and rules.out_of_range(label, m)),
        )


def columns(t: Tokens) -> list[str]:
    """The headings of what the batch has."""
    return [
        "place",
        "id",
        "token",
        *(["label", "label is"] if t.labels is not None else []),
        *(["mask"] if t.mask is not None else []),
        *(["position"] if t.positions is not None else []),
        *(["document"] if t.segments is not None else []),
    ]


def visible(text: str) -> str:
    """A token's text with what cannot be seen made visible: spaces, line ends, other control characters."""
    shown = text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
