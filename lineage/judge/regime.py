"""Regimes: the conditions that results depend on, under one id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from .._rooms import schemas
from .values import normal


def values_of(effective: schemas.Effective) -> dict[str, schemas.Scalar]:
    """The effective values of classes R and C. Bitwise, operational and hazard classes stay out."""
    catalogue = schemas.catalogue()
    return {
        concept: held.value
        for concept, held in sorted(effective.values.items())
        if catalogue.concept(concept).cls in ("R", "C")
    }


def regime_id(values: Mapping[str, schemas.Scalar]) -> str:
    """sha256 over RFC 8785 JSON of {concept: normalised value}."""
    plain = {concept: _json(normal(value)) for concept, value in values.items()}
    return "sha256:" + hashlib.sha256(rfc8785.dumps(plain)).hexdigest()


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(v) for v in value]
    if isinstance(value, float):
        name = schemas.float_to_json(value)
        return name if isinstance(name, str) else value
    return value


def regime(
    effective: schemas.Effective,
    from_step: int,
    previous: schemas.Regime | None = None,
    drift: schemas.Drift | None = None,
    *,
    carry_on: bool = False,
) -> schemas.Regime | None:
    """Return the regime that opens, or None where the conditions are as before.

    With `carry_on`, the regime that goes on is returned instead of None: a new segment may be a new page in
    the tracker, and says in which regime it runs. A component that was not restored opens a regime too: it
    stands in the values as `state.<component>`.
    """
    values = values_of(effective)
    because: list[str] = []
    if previous is not None:
        values |= {k: v for k, v in previous.values.items() if k.startswith("state.")}
    for change in drift.changes if drift else ():
        if change.concept in schemas.COMPONENTS or change.concept in ("batch_skip", "state_edit"):
            values[f"state.{change.concept}"] = schemas.Scalar.of(
                f"changed at step {from_step}: {change.text}"
            )
        if change.cls in ("R", "C"):
            because.append(change.text)
    identity = regime_id(values)
    if previous is not None and previous.id == identity:
        return previous.model_copy(update={"from_step": from_step, "because": []}) if carry_on else None
    return schemas.Regime(
        id=identity,
        index=previous.index + 1 if previous else 0,
        from_step=from_step,
        previous=previous.id if previous else None,
        values=values,
        because=because,
    )
