"""What the observer costs: on the caller's thread at a log call, and at the start of a process that has no tracker.

A log call of W&B takes a hundred microseconds and more, and varies by more than the observer adds. So the wrapper is
timed around a function that does nothing, beside the tracker's own call with and without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import probes
from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns

NAME = "observe"
COLUMNS = (
    Column("what", "what"),
    Column("by", "made by"),
    *SPREAD,
    Column("ratio", "without the observer = 1", "ratio"),
)
ROW = {f"metric_{i}": float(i) for i in range(10)}
CALL_LIMIT, START_LIMIT = 5e-6, 50e-3
PLAIN, WATCHED = "plain", "under observation"
ROOT = Path(__file__).resolve().parent.parent
HOOK = ROOT / "lineage" / "observe" / "hook"


def run(*, rounds: int = 15, calls: int = 200, starts: int = 15) -> Table:
    """Time wrapped calls beside plain ones, and starts of Python with the hook beside starts without it."""
    table = Table(NAME, "what observation adds, on the caller's thread and at the start", COLUMNS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        _calls(table, Path(scratch), rounds, calls)
        _starts(table, Path(scratch), starts)
    table.notes += [
        f"log calls are those of {len(ROW)} numbers; each sample is the mean of {calls} calls in a row, since a "
        "clock's own reading costs as much as the copy",
        "`does nothing` is the wrapper around an empty function: the difference of its two rows is what a log call "
        "gains. The observer's thread is running and takes the copies meanwhile",
        "starts are whole runs of `python -c pass`, with the hook on PYTHONPATH as `lineage run` puts it there",
    ]
    return table


def _calls(table: Table, scratch: Path, rounds: int, calls: int) -> None:
    import mlflow
    import wandb
    from mlflow import MlflowClient

    import lineage.observe
    from lineage.observe.light.importlib_bootstrap_frames import around

    lineage.observe.install(
        lineage.observe.Options(dir=str(scratch / "ledgers"), quiet=True, capture=False, timeout=30.0)
    )
    light = lineage.observe.light
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(mode="offline", project="bench", dir=str(scratch), settings=settings)
    mlflow.set_tracking_uri(f"sqlite:///{scratch}/mlflow.db")
    client, run_id = MlflowClient(), mlflow.start_run().info.run_id
    log, metric = wandb.Run.log.__lineage_original__, MlflowClient.log_metric.__lineage_original__

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    wandb_nothing = around(nothing, light.wandb_copies.logged)
    mlflow_nothing = around(nothing, light.mlflow_copies.metric)
    handle = SimpleNamespace(tracking_uri=client.tracking_uri)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
        "wandb.Run.log, does nothing": (lambda: nothing(run, ROW), lambda: wandb_nothing(run, ROW), calls),
        "MlflowClient.log_metric, does nothing": (
            lambda: nothing(handle, run_id, "loss", 1.0, step=1),
            lambda: mlflow_nothing(handle, run_id, "loss", 1.0, step=1),
            calls,
        ),
        "wandb.Run.log, W&B offline": (lambda: log(run, ROW), lambda: run.log(ROW), calls),
        "MlflowClient.log_metric, SQLite": (
            lambda: metric(client, run_id, "loss", 1.0, step=1),
            lambda: client.log_metric(run_id, "loss", 1.0, step=1),
            max(1, calls // 20),
        ),
    }

    def turn(action: Callable[[], Any], times: int) -> Variant:
        def take() -> float:
            began = time.perf_counter()
            for _ in range(times):
                action()
            return (time.perf_counter() - began) / times

        return take

    for what, (plain, watched, times) in pairs.items():
        _drain(light)
        found = take_turns({PLAIN: turn(plain, times), WATCHED: turn(watched, times)}, rounds, budget=20)
        added = _rows(table, what, found)
        if what.endswith("does nothing"):
            _target(table, what, found[WATCHED], added, light.events.SWITCH)
    run.finish()
    mlflow.end_run()
    lineage.observe.uninstall(30.0)


def _drain(light: Any) -> None:
    """Let the observer's thread take what is in the queue, so that it never overflows."""
    end = time.monotonic() + 30
    while light.events.EVENTS and time.monotonic() < end:
        time.sleep(0.05)


def _rows(table: Table, what: str, found: dict[str, list[float]]) -> float:
    """Two rows, one for each way; returns what observation adds, median against median."""
    plain, watched = summary(found[PLAIN]), summary(found[WATCHED])
    table.add(what=what, by=PLAIN, **plain, ratio=1.0)
    table.add(what=what, by=WATCHED, **watched, ratio=watched["median"] / plain["median"])
    return float(watched["median"] - plain["median"])


def _target(table: Table, what: str, samples: list[float], added: float, switch: Any) -> None:
    if switch.failures or switch.dropped:
        raise RuntimeError(
            f"{switch.failures} failures ({switch.first_failure}), {switch.dropped} copies dropped"
        )
    name = what.partition(",")[0]
    table.targets.append(
        Target(
            f"a call of {name} gains less than {1e6 * CALL_LIMIT:g} us",
            f"median {1e6 * added:.2f} us, slowest mean of a turn {1e6 * max(samples):.2f} us",
            added < CALL_LIMIT,
        )
    )


def _starts(table: Table, scratch: Path, starts: int) -> None:
    folder = scratch / "meeting"
    folder.mkdir()
    environment = {k: v for k, v in probes.environment().items() if k != "PYTHONPATH"}
    hooked = {**environment, "PYTHONPATH": str(HOOK), "LINEAGE_OBSERVE_TO": str(folder)}

    def turn(env: dict[str, str]) -> Variant:
        def take() -> float:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True, env=env, cwd=ROOT)
            return time.perf_counter() - began

        return take

    turn(hooked)()  # its bytecode is written once
    if not any(name.endswith(".seen") for name in os.listdir(folder)):
        raise RuntimeError("the hook left no sign of life: there is nothing to measure")
    found = take_turns({PLAIN: turn(environment), WATCHED: turn(hooked)}, starts, budget=30)
    added = _rows(table, "start of Python without a tracker", found)
    table.targets.append(
        Target(
            f"a process that imports no tracker starts less than {1e3 * START_LIMIT:g} ms later",
            f"median {1e3 * added:.1f} ms",
            added < START_LIMIT,
        )
    )
