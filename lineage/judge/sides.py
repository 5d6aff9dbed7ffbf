"""One side of a boundary: what is known of a checkpoint's conditions, or of those that run now."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._rooms import schemas


@dataclass(frozen=True)
class Side:
    """What is known of one side of a boundary: a checkpoint's, or that of a segment now running."""

    config: schemas.Config | None = None
    effective: schemas.Effective | None = None
    code: schemas.CodeState | None = None
    environment: schemas.Environment | None = None
    lr_ahead: dict[int, list[float]] = field(default_factory=dict)

    def value(self, concept: str) -> schemas.EffectiveValue | None:
        """The effective value of a concept on this side."""
        return self.effective.values.get(concept) if self.effective else None
