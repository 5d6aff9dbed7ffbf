"""Answers to the questions of a rung: their form, and the words that lists of names are told in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .._rooms import schemas

MOST = 64
"""Names that an answer lists; `count` tells how many there are."""


def answer(
    question: str,
    outcome: schemas.Outcome,
    text: str,
    *,
    names: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    source: str | None = None,
    look_at: Sequence[str] = (),
) -> schemas.Answer:
    """One answer, with at most `MOST` names."""
    return schemas.Answer(
        question=question,
        outcome=outcome,
        text=text,
        names=list(names[:MOST]),
        count=len(names) if names else None,
        values=scalars(values),
        source=source,
        look_at=list(look_at),
    )


def scalars(values: Mapping[str, Any] | None) -> dict[str, schemas.Scalar]:
    """Numbers and words as they are recorded."""
    return {k: schemas.Scalar.of(v) for k, v in (values or {}).items()}


def some(names: Collection[str], most: int = 4) -> str:
    """The first names of a list, and that there are more: `a, b, c, d, ...`."""
    shown = list(names)[:most]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")
