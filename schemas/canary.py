"""A canary: a short fixed job in a file, to be made again after a change of compiler, kernel, driver or topology."""

from __future__ import annotations

from pydantic import Field

from ._base import Float, Model, Scalar, Time
from .rungs import Recipe

CANARY_SCHEMA = "lineage/canary/1-0-0"
"""Name and MODEL-REVISION-ADDITION of the file."""


class CanaryPoint(Model):
    """The state at one step, tensor by tensor: exact digests."""

    step: int = Field(description="updates made, from 1")
    gradients: dict[str, str] = Field(default={}, description="parameter -> digest of its gradient")
    weights: dict[str, str] = Field(default={}, description="parameter -> digest after the update")


class CanaryRun(Model):
    """The job with one seed."""

    seed: int
    losses: list[Float] = Field(description="before each update, the mean over ranks")
    points: list[CanaryPoint] = []


class Canary(Model):
    """The file that `lineage canary record` writes."""

    schema_: str = Field(default=CANARY_SCHEMA, alias="schema")
    at: Time
    recipe: Recipe
    steps: int
    world_size: int = 1
    runs: list[CanaryRun] = Field(
        description="one for each seed, the first one's digests tell where two sides part"
    )
    repeats: bool | None = Field(
        default=None,
        description="whether the first seed gave the same bits when it was run again; null: not tried",
    )
    conditions: dict[str, Scalar] = Field(
        default={},
        description="torch, device, threads, compiler, attention kernels, precision: what may be changed",
    )
