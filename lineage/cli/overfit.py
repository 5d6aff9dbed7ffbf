"""`lineage overfit`: one batch, learnt by heart."""

from __future__ import annotations

from typing import Annotated

import typer

from . import rung
from .common import Json

NAME = "overfit"


def command(
    with_: rung.With = "",
    steps: Annotated[int, typer.Option(min=1, help="Updates at most.")] = 200,
    below: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The share of the first loss to be reached.")
    ] = 0.1,
    floor: Annotated[
        float, typer.Option(help="The lowest loss there can be, as with label smoothing or soft targets.")
    ] = 0.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A question whose no is meant, such as optimizer_holds_frozen; repeatable."),
    ] = None,
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Train on one batch again and again: loss, gradients, and whether the optimizer holds every parameter."""
    built = rung.build(with_, device, needs=["loss", "optimizer"])
    assert built.loss is not None  # asked for
    from ..ladder.one_batch import overfit

    (batch,) = rung.batches(built)
    found = overfit(
        built.model,
        built.optimizer,
        built.loss,
        batch,
        steps=steps,
        below=below,
        floor=floor,
        allow=allow or (),
        config=built.config,
        built_by=with_,
    )
    rung.finish(found, run, record=record, as_json=as_json)
