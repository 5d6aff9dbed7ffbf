"""How long the training thread is held up inside the layer's calls, with the tracker healthy, slow and dead."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lineage

from . import training
from .mlflow_server import Door, Server
from .reach import Reach
from .table import SPREAD, Column, Table, Target
from .timing import Variant, take_turns
from .wandb_offline import measure as measure_wandb

NAME = "blocking"
COLUMNS = (
    Column("state", "tracker"),
    Column("call", "call"),
    Column("by", "made by"),
    *SPREAD,
    Column("ratio", "layer without tracker = 1", "ratio"),
    Column("connects", "connections", "count"),
)
DELAY = 1.0
LIMITS = {
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""And few retries, far below MLflow's defaults (2, 120 and 7 retries): else a call to a dead server lasts minutes."""
IMPATIENT = 1.0
"""exit_timeout where the tracker is slow or dead: closing uses all of it, whatever it is."""
WITH, WITHOUT = "the layer, this tracker", "the layer, no tracker"
WARM = ("lineage.recorder.attach", "trackers.mlflow_.adapter", "trackers.wandb_.adapter")
"""Imported before the clock starts: what imports cost is the subject of the experiment `attach`."""
VERBS = ("attach", "first step", "step, enter + exit", "mitigate", "checkpoint")
CLOSE = "close, once"


class Layered:
    """A training loop within the layer, whose calls are timed one by one under `who`."""

    def __init__(self, reach: Reach, state: str, who: str, run: Any, folder: Path, **settings: Any) -> None:
        self.reach, self.state, self.who, self.folder = reach, state, who, folder
        self.training = training.Training(training.TINY)
        self.rec: lineage.Recorder = self._call(
            "attach",
            lambda: lineage.attach(
                run,
                dir=folder,
                quiet=True,
                report=False,
                config={"lr": 1e-3},
                **self.training.objects,
                **settings,
            ),
        )

    def _call(self, verb: str, action: Callable[[], Any]) -> Any:
        return self.reach.timed((self.state, verb, self.who), action)

    def step(self) -> None:
        """A step; the calls of the layer on both sides of it count as one sample."""
        t, key = self.training, (self.state, VERBS[2] if self.training.done else VERBS[1], self.who)
        batch = next(t.loader)
        step = self.rec.step(t.done + 1, batch)
        with self.reach.sample(key) as sample:
            step.__enter__()
            sample.pause()
            loss = t.compute(batch)
            t.update()
            sample.resume()
            step.loss(loss)
            step.__exit__(None, None, None)

    def turn(self, steps: int) -> Variant:
        """Some steps, three interventions and a checkpoint."""

        def take() -> list[float]:
            for _ in range(steps):
                self.step()
            for _ in range(3):
                self._call("mitigate", lambda: self.rec.mitigate("learning_rate", why="measured", after=1e-4))
            done = self.training.done
            path = self.training.save(self.folder / "checkpoints" / f"{self.who}-{done}")
            uid = self._call("checkpoint", lambda: self.rec.checkpoint(path, step=done))
            if uid is None:
                raise RuntimeError("the layer recorded no checkpoint: there is nothing to measure")
            return []

        return take

    def close(self) -> None:
        """Close, which may wait for the tracker, for a bounded time."""
        self._call(CLOSE, self.rec.close)


def run(
    *,
    rounds: int = 3,
    steps: int = 20,
    states: tuple[str, ...] = ("healthy", "slow", "dead"),
    retries: int = 2,
    exit_timeout: float | None = None,
) -> Table:
    """Measure MLflow in each state, then W&B offline. Rounds are few, since each waits for a slow server.

    `retries` is the limit of the user's own MLflow calls; `exit_timeout` is the layer's where the tracker is
    healthy, None for its default.
    """
    import torch

    torch.set_num_threads(1)
    limits = {**LIMITS, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(retries)}
    os.environ.update(limits)
    table = Table(NAME, "time inside one call, on the training thread", COLUMNS)
    reach = Reach()
    patience = {} if exit_timeout is None else {"exit_timeout": exit_timeout}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        with Server(folder) as server:
            for module in WARM:  # while the server starts
                importlib.import_module(module)
            server.ready()
            for state in states:
                settings = patience if state == "healthy" else {"exit_timeout": IMPATIENT}
                _mlflow(reach, state, server, folder / state, rounds, steps, settings)
        measure_wandb(reach, Layered, folder / "wandb", rounds, steps)
    _rows(table, reach)
    _targets(table, reach)
    table.notes += [
        f"slow: a door before the server waits {DELAY:g} s at each request; dead: its port is closed, after "
        "the run was started",
        f"the user's MLflow calls have {', '.join(f'{k}={v}' for k, v in limits.items())}; by MLflow's "
        "defaults the pauses between its 8 tries alone add up to about four minutes per call",
        "with n below 100, p99 is the slowest sample; fsync and whoever else uses the machine are in it",
        "step: enter + exit of `with rec.step(...)`, the training inside it left out; beside it, what would log "
        "two numbers. The first step opens the ledger",
        f"close waits for the tracker by design, at most exit_timeout: the default where it is healthy, "
        f"{IMPATIENT:g} s where it is slow or dead; what is not shown by then, `lineage sync` shows",
        "connections: opened by the training thread in all n calls (audit event socket.connect)",
    ]
    return table


def _mlflow(
    reach: Reach, kind: str, server: Server, folder: Path, rounds: int, steps: int, settings: dict[str, Any]
) -> None:
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    state = f"MLflow {kind}"
    door = Door(server.uri)
    mlflow.set_tracking_uri(door.uri)
    mlflow.set_experiment("bench")
    run = mlflow.start_run()
    client, run_id = MlflowClient(door.uri), run.info.run_id
    if kind == "slow":
        door.delay = DELAY
    elif kind == "dead":
        door.shut()
    own = Layered(reach, state, WITH, run, folder / "with", **settings)
    alone = Layered(reach, state, WITHOUT, None, folder / "without", **settings)
    metrics = [Metric("loss", 1.0, 0, 1), Metric("lr", 1e-3, 0, 1)]

    def user(verb: str, name: str, action: Callable[[], Any], times: int = 1) -> Variant:
        def take() -> list[float]:
            for _ in range(times):
                reach.attempted((state, verb, name), action)
            return []

        return take

    take_turns(
        {
            WITH: own.turn(steps),
            WITHOUT: alone.turn(steps),
            "a": user(VERBS[2], "mlflow.log_metrics", lambda: mlflow.log_metrics({"loss": 1.0, "lr": 1e-3})),
            "b": user(
                VERBS[2],
                "MlflowClient.log_batch(synchronous=False)",
                lambda: client.log_batch(run_id, metrics=metrics, synchronous=False),
                steps,
            ),
            "c": user("mitigate", "mlflow.set_tag", lambda: mlflow.set_tag("intervention", "lr to 1e-4")),
            "d": user("checkpoint", "mlflow.log_dict", lambda: mlflow.log_dict({"step": 1}, "ckpt.json")),
        },
        rounds,
        budget=10,
        least=2,
    )
    own.close()
    alone.close()
    reach.attempted((state, CLOSE, "mlflow.end_run"), mlflow.end_run)
    if kind != "dead":
        door.shut()


def _rows(table: Table, reach: Reach) -> None:
    for (state, call, who), samples in reach.ordered((*VERBS, CLOSE)):
        s = samples.summary()
        reference = reach.found.get((state, call, WITHOUT)) or reach.found.get((state, call, WITH))
        base = reference.summary()["median"] if reference else None
        table.add(
            state=state,
            call=call,
            by=who + samples.outcome(),
            **s,
            ratio=s["median"] / base if base else None,
            connects=samples.connects,
        )


def _targets(table: Table, reach: Reach) -> None:
    ours = {k: v for k, v in reach.found.items() if k[1] in VERBS and k[2] in (WITH, WITHOUT)}
    opened = sum(v.connects for v in ours.values())
    calls = sum(len(v.seconds) for v in ours.values())
    table.targets.append(
        Target(
            "no call of the layer opens a connection on the training thread",
            f"{opened} connections in {calls} calls",
            opened == 0,
        )
    )
    held = {k: max(v.seconds) for k, v in ours.items() if k[2] == WITH}
    (state, call, _), worst = max(held.items(), key=lambda item: item[1])
    table.targets.append(
        Target(
            f"no call of the layer waits for an answer, which a slow tracker gives after {DELAY:g} s",
            f"slowest of all: {call}, {state}, {1000 * worst:.1f} ms",
            worst < DELAY,
        )
    )
