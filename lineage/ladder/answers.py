"""Answers to the questions of a rung, and what they come to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from uuid6 import uuid7

from .._rooms import schemas
from ..judge.rung_answers import scalars


def outcome(answers: Sequence[schemas.Answer], main: Collection[str]) -> schemas.Outcome:
    """`fail` where any fails, `pass` where none does and all main questions pass, else `cannot_tell`."""
    if any(a.outcome == "fail" for a in answers):
        return "fail"
    asked = [a for a in answers if a.question in main]
    return "pass" if asked and all(a.outcome == "pass" for a in asked) else "cannot_tell"


def rung(
    name: str,
    answers: Sequence[schemas.Answer],
    text: str,
    *,
    main: Collection[str],
    recipe: schemas.Recipe | None = None,
    world_size: int = 1,
    device: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    limits: Sequence[str] = (),
) -> schemas.Rung:
    """A rung with its answers; `main`: the questions without whose answer it is none.

    Raises `ValueError` for a name that is none of `schemas.RUNGS`."""
    if name not in schemas.RUNGS:
        raise ValueError(f"{name!r} is no rung; known are {', '.join(schemas.RUNGS)}")
    return schemas.Rung(
        uid=str(uuid7()),
        rung=name,
        outcome=outcome(answers, main),
        text=text,
        answers=list(answers),
        recipe=recipe,
        world_size=world_size,
        device=device,
        parameters=scalars(parameters),
        limits=list(limits),
    )


def require(*rungs: schemas.Rung) -> None:
    """For a team's own tests: raises `AssertionError` with what failed, or with what nobody could tell."""
    for r in rungs:
        if r.outcome != "pass":
            said = [f"{a.question}: {a.text}" for a in r.answers if a.outcome != "pass"]
            raise AssertionError("\n  ".join([f"{r.rung} {r.outcome.replace('_', ' ')}: {r.text}", *said]))
