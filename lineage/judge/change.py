"""A change of what is in effect, made from a concept and the words for it."""

from __future__ import annotations

from .._rooms import schemas


def effective_change(
    concept_id: str, text: str, before: object, after: object, read_from: str
) -> schemas.Change:
    """A change found on live objects or records: class and title are the concept's, values are tagged here."""
    concept = schemas.catalogue().concept(concept_id)
    return schemas.Change(
        concept=concept_id,
        cls=concept.cls,
        title=concept.title,
        effective_before=schemas.Scalar.of(before),
        effective_after=schemas.Scalar.of(after),
        read_from=read_from,
        text=text,
    )
