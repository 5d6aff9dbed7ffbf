"""`lineage loss-normalisation`: whether each token counts the same in an update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import rung
from .common import CliError, Exit, Json

if TYPE_CHECKING:
    from ..replay.building import Built

NAME = "loss-normalisation"


def command(
    with_: rung.With = "",
    micro_batches: Annotated[
        int, typer.Option("--micro-batches", min=2, help="Micro-batches of the update; of different lengths.")
    ] = 4,
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Hold the gradient that your loop leaves against the token losses: which token counts how much."""
    built = rung.build(with_, device, needs=["loss"])
    given = rung.batches(built, micro_batches)
    from ..ladder.normalisation import NotComparable, loss_normalisation

    try:
        found = loss_normalisation(
            built.model,
            given,
            lambda micro: passes(built, micro),
            losses=built.token_losses,
            config=built.config,
            built_by=with_,
        )
    except NotComparable as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    rung.finish(found, run, record=record, as_json=as_json)


def passes(built: Built, micro: Any) -> Any:
    """Forward and backward of one update as `build` has them; gives the sum of what went backward."""
    assert built.loss is not None  # `build` was asked for it
    total = None
    for batch in micro:
        loss = built.loss(built.model, batch)
        if built.backward is not None:
            built.backward(loss, len(micro))
        else:
            loss = loss / len(micro)
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
    return total
