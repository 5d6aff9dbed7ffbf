"""Rungs of the debugging ladder: checks that a team makes of a recipe before or beside a run, and what they gave."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Digest, Model, Scalar, Uid

RUNGS = (
    "expectations",
    "batch",
    "loss_normalisation",
    "overfit",
    "gradients",
    "runs",
    "reference",
    "canary",
    "precision",
)
"""The rungs, from the cheapest question to the dearest one."""

Outcome = Literal["pass", "fail", "cannot_tell"]


class Answer(Model):
    """One question of a rung, and its answer."""

    question: str = Field(description="id of the question, such as optimizer_holds_missing")
    outcome: Outcome
    text: str = Field(description="what was found, in words, or why it cannot be told")
    names: list[str] = Field(
        default=[], description="parameters, modules, samples or steps concerned, at most 64"
    )
    count: int | None = Field(default=None, ge=0, description="how many there are in all")
    values: dict[str, Scalar] = Field(default={}, description="numbers that the answer rests on")
    source: str | None = Field(
        default=None, description="where the formula, the threshold or the expectation is from"
    )
    look_at: list[str] = Field(
        default=[],
        description="what commonly makes this so, to be looked at; none of it is shown to be the cause",
    )


class Recipe(Model):
    """What was tried. Two rungs on one recipe have the same digest."""

    digest: Digest = Field(
        description="of the parameters' names, shapes and types, the classes and the config"
    )
    built_by: str | None = Field(default=None, description="the function that made it, as module:function")
    model: str | None = Field(default=None, description="class of the model")
    optimizer: str | None = Field(default=None, description="class of the optimizer")
    parameters: int | None = Field(
        default=None, ge=0, description="elements of all parameters, tied ones once"
    )
    config: dict[str, Scalar] = {}


class Rung(Model):
    """One check of the debugging ladder, so that a later reader sees that it was made, of what, with which result."""

    kind: Literal["rung"] = "rung"
    uid: Uid
    rung: str = Field(description="one of RUNGS")
    outcome: Outcome = Field(
        description="fail where any answer is; pass where none is and its main questions pass; else cannot_tell"
    )
    text: str = Field(description="the result in one sentence")
    answers: list[Answer] = []
    recipe: Recipe | None = None
    world_size: int = 1
    device: str | None = None
    parameters: dict[str, Scalar] = Field(default={}, description="how it was made: steps, thresholds, seeds")
    limits: list[str] = Field(default=[], description="what this rung does not show")
