"""What every integration needs: the tracker's run that is there, and a step that two calls of a framework make."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from .._rooms import schemas
from ..capture import state
from ..recorder.protection import Protection
from ..recorder.recorder import Recorder
from ..recorder.step import Step


def active_runs() -> dict[str, Any]:
    """The runs that W&B and MLflow have open in this process, by tracker, W&B's first.

    Neither is imported for it: what is not imported has no run.
    """
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    found = {"wandb": getattr(wandb, "run", None)}
    if mlflow is not None and hasattr(mlflow, "active_run"):
        found["mlflow"] = mlflow.active_run()
    return {kind: run for kind, run in found.items() if run is not None}


def active_run() -> Any:
    """The first of `active_runs`; None where there is none."""
    return next(iter(active_runs().values()), None)


def bare(wrapped: Any, name: str) -> Any:
    """The optimizer or scheduler that Accelerate wrapped under an attribute of this name; others as they are."""
    while type(wrapped).__module__.partition(".")[0] == "accelerate" and name in vars(wrapped):
        wrapped = vars(wrapped)[name]
    return wrapped


def read_again(rec: Recorder, *components: str) -> None:
    """Read components now, as what they were right after the load: for frameworks that restore one of them late."""
    if rec.live and rec.settings.digests:
        others = [c for c in rec.steps.loaded if c.component not in components]
        rec.steps.loaded = [*others, *state.capture(rec.watched, components)]


def forget_reading(rec: Recorder, *components: str) -> None:
    """Drop what was read of components right after the load: it was too early, so that it would tell nothing."""
    rec.steps.loaded = [c for c in rec.steps.loaded if c.component not in components]


def protection(rec: Recorder) -> Protection | None:
    """What says which checkpoints a rotation must keep; None where nothing is recorded."""
    writer = rec.begin() if rec.live else None
    return Protection(writer.ledger, write=writer.write) if writer is not None else None


class Logged:
    """What the training code logged through its framework: rows of the series `metrics`, beside our own signals."""

    def __init__(self, rec: Recorder, tracker: str) -> None:
        self._rec, self._tracker = rec, tracker

    def row(self, values: Mapping[str, Any], step: int) -> None:
        """Record what was logged at a step. Values that are no numbers are left out."""
        writer = self._rec.begin() if self._rec.live else None
        if writer is None:
            return
        same = {
            "segment": writer.ids.segment,
            "rank": self._rec.world.rank,
            "step": step,
            "tracker": self._tracker,
            "axis": "step=",
            "at": schemas.now(),
        }
        writer.metrics(
            [
                {
                    **same,
                    "key": str(key),
                    "value": float(v),
                    "n_nan": int(math.isnan(v)),
                    "n_posinf": int(v == math.inf),
                    "n_neginf": int(v == -math.inf),
                }
                for key, v in values.items()
                if isinstance(v, bool | int | float)
            ]
        )


class OpenStep:
    """`rec.step(...)` for callbacks: one call begins the step, another ends it. At most one is open."""

    def __init__(self, rec: Recorder) -> None:
        self.rec = rec
        self._open: Step | None = None

    def begin(self, number: int) -> None:
        """Open a step. One that is still open is left as one that was not finished."""
        self.leave(None)
        self._open = self.rec.step(number)
        self._open.__enter__()

    def batch(self, batch: Any) -> None:
        """Record a micro-batch of the open step; outside of a step (an evaluation) nothing is recorded."""
        if self._open is not None:
            self._open.batch(batch)

    def loss(self, loss: Any) -> None:
        """Record the loss of a micro-batch of the open step."""
        if self._open is not None:
            self._open.loss(loss)

    def end(self) -> None:
        """Close the step: its update is done."""
        step, self._open = self._open, None
        if step is not None:
            step.__exit__(None, None, None)

    def leave(self, error: BaseException | None) -> None:
        """Close a step whose update was not made: it failed, or the loop went another way."""
        step, self._open = self._open, None
        if step is not None:
            error = error or RuntimeError("the step was left before its update")
            step.__exit__(type(error), error, error.__traceback__)
