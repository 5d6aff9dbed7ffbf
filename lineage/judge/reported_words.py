"""The words of an entry, and the concepts that they stand for."""

from __future__ import annotations

import re

from .._rooms import schemas

_PARTS = re.compile(r"\s*(?:\+|,|;|&|\band\b)\s*")


def words(concept: str) -> list[schemas.Word]:
    """The words of an entry: `data_order+data_mix` has two."""
    vocabulary = schemas.vocabulary()
    return [vocabulary.word(p) for p in _PARTS.split(concept) if p] or [vocabulary.word(concept)]
