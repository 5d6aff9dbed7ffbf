"""Which ranks must hold the same tensors, as each rank's placement declares it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Model


class AgreementGroup(Model):
    """Ranks that hold copies of the same tensors."""

    id: str = Field(description="as the rows of the table `states` name it")
    how: Literal["ddp", "mesh", "fsdp", "declared"] = Field(
        description="what declares it: a DistributedDataParallel wrapper, the placement on a device mesh, "
        "FullyShardedDataParallel, or the argument `replicas`"
    )
    ranks: str = Field(description="the ranks in the group, as ranges: 0-3,8-11")
    text: str = Field(description="the group in words")
    tensors: int = Field(ge=0, description="tensors of this rank that are in it")


class Agreement(Model):
    """What this rank has digested of its state so that replicas can be compared, and what of it nothing declares."""

    kind: Literal["agreement"] = "agreement"
    every: int = Field(ge=1, description="steps between two digests")
    groups: list[AgreementGroup] = []
    undeclared: int = Field(
        ge=0, default=0, description="tensors of which nothing says which ranks must hold the same"
    )
    left_out: dict[str, str] = Field(
        default={}, description="tensor -> why it is not digested or must not agree; at most 64"
    )
