"""W&B offline: the layer's calls on such a run, and what the layer does to the user's own `run.log`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .reach import Reach
from .timing import Variant, take_turns

STATE = "W&B offline"
LOG = "step, enter + exit"


def measure(reach: Reach, layered: Callable[..., Any], folder: Path, rounds: int, steps: int) -> None:
    """Two runs, one with the layer on it; `layered` makes a loop within the layer."""
    import wandb

    folder.mkdir(parents=True)

    def start() -> Any:
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        return wandb.init(
            mode="offline", project="bench", dir=str(folder), reinit="create_new", settings=settings
        )

    watched, bare = start(), start()
    own = layered(reach, STATE, "the layer, this tracker", watched, folder / "with")
    alone = layered(reach, STATE, "the layer, no tracker", None, folder / "without")

    def log(run: Any, name: str) -> Variant:
        def take() -> list[float]:
            for _ in range(steps):
                reach.timed((STATE, LOG, name), lambda: run.log({"loss": 1.0, "lr": 1e-3}))
            return []

        return take

    def artifact() -> list[float]:
        record = wandb.Artifact("ckpt", type="checkpoint", metadata={"step": 1})
        reach.timed(
            (STATE, "checkpoint", "run.log_artifact, metadata only"), lambda: bare.log_artifact(record)
        )
        return []

    take_turns(
        {
            "with": own.turn(steps),
            "without": alone.turn(steps),
            "log beside the layer": log(watched, "run.log on the run with the layer"),
            "log": log(bare, "run.log on a run without the layer"),
            "artifact": artifact,
        },
        rounds,
    )
    own.close()
    alone.close()
    reach.timed((STATE, "close, once", "run.finish"), bare.finish)
    watched.finish()
