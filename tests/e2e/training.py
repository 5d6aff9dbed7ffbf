"""A user's training script in small: its own tracker calls, with the layer attached beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wandb

import lineage
from tests.recorder import loop as loops
from tests.recorder.loop import Loop
from trackers.wandb_ import offline_log

FIRST = {"lr": 0.1, "clip": 1.0}
CHANGED = {"lr": 0.01, "clip": 0.3}


def attach(loop: Loop, root: Path, **options: Any) -> lineage.Recorder:
    """Attach to a loop, with patience for the tracker at the end: a busy machine leaves no page behind."""
    return loops.attach(loop, root, **{"exit_timeout": 120.0, **options})


def settle(rec: lineage.Recorder, seconds: float = 300.0) -> None:
    """Wait until the page has caught up, as it does within one step of a real training."""
    w = rec._writer
    assert w is not None
    assert w.tasks.drain(seconds)
    if w.outbox is not None:
        assert w.outbox.drain(seconds) == 0


def train(
    loop: Loop,
    rec: lineage.Recorder,
    stop: int,
    log: Callable[[int, float], object] = lambda step, loss: None,
    *,
    slow: bool = True,
    spoil: int = -1,
) -> dict[int, float]:
    """Train up to `stop` updates and log each loss as the user does. Returns step -> loss.

    `slow`: the page catches up after the first step, and before the last.
    """
    losses = {}
    first = loop.done + 1
    for step in range(first, stop + 1):
        (loss,) = loop.run(rec, step, spoil=spoil)
        losses[step] = loss
        log(step, loss)
        if slow and step in (first, stop - 1):
            settle(rec)
    return losses


def resumed(checkpoint: Path, **changed: Any) -> Loop:
    """A loop that continues from a checkpoint with another learning rate and clip, both in effect."""
    loop = Loop(clip=changed.get("clip", CHANGED["clip"])).load(checkpoint)
    loop.scheduler.base_lrs = [changed.get("lr", CHANGED["lr"])]
    return loop


def start_wandb(**more: Any) -> Any:
    """Begin a W&B run as a script does, without what the client would record of the machine."""
    extra = more.pop("settings", {})
    settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off", **extra)
    return wandb.init(**{"project": "p", "mode": "offline", "settings": settings, **more})


def finished(run: Any) -> offline_log.OfflineRun:
    """Finish a run and read it back from its log, whose last block is written a moment after `finish`."""
    folder = run.settings.sync_dir
    run.finish()
    end = time.monotonic() + 120
    while (log := offline_log.read_run(folder)).exit_code is None and time.monotonic() < end:
        time.sleep(0.05)
    assert log.exit_code is not None, f"{folder} has no end after 120 s"
    return log


def logged(history: list[dict[str, Any]], key: str = "loss") -> dict[int, float]:
    """Step -> value of the user's own metric in a W&B history."""
    return {row["_step"]: row[key] for row in history if key in row}


def points(history: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The regime series in a W&B history: (training step, regime)."""
    return [(row["lineage/step"], row["lineage/regime"]) for row in history if "lineage/regime" in row]
