"""The words of an entry, and the concepts that they stand for."""

from __future__ import annotations

import re
from functools import lru_cache

from .._rooms import schemas

_PARTS = re.compile(r"\s*(?:\+|,|;|&|\band\b)\s*")


@lru_cache(maxsize=4096)  # entries are compared with each other, each time by their words
def words(concept: str) -> tuple[schemas.Word, ...]:
    """The words of an entry: `data_order+data_mix` has two."""
    vocabulary = schemas.vocabulary()
    return tuple(vocabulary.word(p) for p in _PARTS.split(concept) if p) or (vocabulary.word(concept),)
