"""What a fresh process times at its start, for `attach.py`. Only the standard library is imported up here."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "BENCH "

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "PYTHONWARNINGS": "ignore",
}
"""No trackers' news on the terminal, nothing sent from a benchmark."""


def environment() -> dict[str, str]:
    """This process's variables without settings of trackers or of the layer, which would change the figures."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LINEAGE_", "WANDB_", "MLFLOW_"))}
    return {**kept, **QUIET}


def main(name: str, scratch: str) -> None:
    """Run one probe and print its seconds."""
    probe: Callable[[Path], dict[str, float]] = globals()[name]
    print(MARK + json.dumps(probe(Path(scratch))), flush=True)
    os._exit(0)  # what a tracker does at exit is not start-up


class Clock:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def __call__(self) -> float:
        now = time.perf_counter()
        self._last, spent = now, now - self._last
        return spent


def layer(scratch: Path, **objects: Any) -> dict[str, float]:
    """The layer without torch."""
    clock = Clock()
    import lineage

    found = {"import": clock()}
    began = time.perf_counter()
    rec = lineage.attach(None, dir=scratch / "ledgers", quiet=True, report=False, **objects)
    found["returned"] = time.perf_counter() - began
    rec.surroundings.wait_read(300)
    found["captured"] = time.perf_counter() - began
    if rec.now.code is None or rec.now.environment is None or not rec.now.environment.packages:
        raise RuntimeError("code or packages were not captured: there is nothing to time")
    if objects:
        clock()
        with rec.step(1):
            found["first_step"] = clock()
    return found


def layer_torch(scratch: Path) -> dict[str, float]:
    """The layer beside a torch model, as a training script has it."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    return layer(scratch, model=model, optimizer=torch.optim.AdamW(model.parameters()))


def wandb(scratch: Path) -> dict[str, float]:
    """W&B offline, in its own folder."""
    clock = Clock()
    import wandb as wandb_

    found = {"import": clock()}
    wandb_.init(mode="offline", project="bench", dir=tempfile.mkdtemp(dir=scratch))
    found["started"] = clock()
    return found


def mlflow(scratch: Path) -> dict[str, float]:
    """MLflow on a new SQLite database: the first run makes it, the second finds it there."""
    folder = tempfile.mkdtemp(dir=scratch)
    os.chdir(folder)  # MLflow makes ./mlruns for artifacts
    clock = Clock()
    import mlflow as mlflow_

    found = {"import": clock()}
    mlflow_.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow_.start_run()
    found["created"] = clock()
    mlflow_.end_run()
    clock()
    mlflow_.start_run()
    found["started"] = clock()
    return found
