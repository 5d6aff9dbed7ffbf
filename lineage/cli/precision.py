"""`lineage precision`: what runs in 16 or 8 bits that should not."""

from __future__ import annotations

from . import rung
from .common import Json

NAME = "precision"


def command(
    with_: rung.With = "",
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Softmax, norms, loss and optimizer state below float32, fp16 without a scaler, fp8 without scales, by module."""
    built = rung.build(with_, device, needs=["loss"])
    assert built.loss is not None  # asked for
    from ..ladder.precision import precision_audit

    (batch,) = rung.batches(built)
    found = precision_audit(
        built.model,
        built.loss,
        batch,
        optimizer=built.optimizer,
        scaler=built.scaler,
        config=built.config,
        built_by=with_,
    )
    rung.finish(found, run, record=record, as_json=as_json)
