"""The words of an entry, and the concepts that they stand for."""

from __future__ import annotations

import re

from .._rooms import schemas

_PARTS = re.compile(r"\s*(?:\+|,|;|&|\band\b)\s*")
_NATURE: dict[str, schemas.Nature] = {
    "R": "lever",
    "C": "code",
    "B": "part",
    "O": "operations",
    "H": "operations",
}
"""How a concept of a class behaves where the vocabulary has no word of its own for it."""


def words(concept: str) -> list[schemas.Word]:
    """The words of an entry: `data_order+data_mix` has two.

    A word that the vocabulary does not hold is looked up in the catalogue, as a concept and as a config key.
    """
    return [_word(p) for p in _PARTS.split(concept) if p] or [_word(concept)]


def _word(name: str) -> schemas.Word:
    found = schemas.vocabulary().word(name)
    if found.nature != "unknown":
        return found
    catalogue = schemas.catalogue()
    concept = catalogue.concepts.get(found.name) or catalogue.of_key(name)
    if concept is None:
        return found
    return schemas.Word(found.name, concept.id, _NATURE.get(concept.cls, "unknown"))
