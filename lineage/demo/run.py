"""The demo's story: an unbroken reference, a run that breaks, and two recoveries of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ledger.reader import Ledger
from .faults import Fault, draw

STEPS, SAVE_EVERY, WORLD = 60, 10, 2
FIRST, LAST = 25, 56
"""Between which steps a fault may strike: after the loss has settled a little, before the end."""

MARKER = ".lineage-demo"


class DemoError(RuntimeError):
    """A part of the demo failed; the text has the end of its output."""


@dataclass
class Story:
    """Where everything of one demo lies, and what became of it."""

    out: Path
    world: int = WORLD
    steps: int = STEPS
    tracker: str = "none"
    fault: Fault | None = None
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def ledgers(self) -> Path:
        """The folder of both ledgers."""
        return self.out / "lineage-runs"

    def ledger(self, run_id: str) -> Ledger:
        """Open one of the demo's ledgers."""
        return Ledger(self.ledgers / run_id)


def prepare(out: Path) -> None:
    """Make the demo's folder; one that an earlier demo made is replaced, any other is left alone."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARKER).exists():
            raise DemoError(f"{out} is not empty and no earlier demo made it; name another folder with --out")
        for p in out.rglob("*"):
            if p.is_dir() and not p.is_symlink():
                p.chmod(0o700)
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()


def train(
    story: Story, name: str, options: Sequence[str], *, run_id: str | None = None, world: int | None = None
) -> list[dict[str, Any]]:
    """Start the training script on every rank, as a launcher would, and read what it left.

    Raises `DemoError` where a rank fails.
    """
    size = world or story.world
    folder = story.out / name
    command = [
        sys.executable,
        "-m",
        "lineage.demo.train",
        "--out",
        str(folder),
        "--max-steps",
        str(story.steps),
    ]
    command += ["--save-every", str(SAVE_EVERY), "--run-name", name, "--tracker", story.tracker]
    command += ["--ledgers", str(story.ledgers), *(["--run-id", run_id] if run_id else []), *options]
    port = _free_port()
    ranks = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(size):
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "OMP_NUM_THREADS": "1",
        }
        log = (folder / f"log-{name}-{rank}.txt").open("w")
        # In the demo's folder, where MLflow then makes its own folder for artifacts.
        started = subprocess.Popen(command, env=env, cwd=story.out, stdout=log, stderr=subprocess.STDOUT)
        ranks.append((started, log))
    codes = [p.wait() for p, _ in ranks]
    for _, log in ranks:
        log.close()
    if any(codes):
        tail = "\n".join(
            (folder / f"log-{name}-{r}.txt").read_text()[-1500:] for r, c in enumerate(codes) if c
        )
        raise DemoError(f"training {name} failed with exit codes {codes}:\n{tail}")
    story.results[name] = [json.loads((folder / f"result-{name}-{r}.json").read_text()) for r in range(size)]
    return story.results[name]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


HABITS = (("--learning-rate", "1e-3"), ("--grad-clip", "0.3"), ("--drop-optimizer",), ("--skip-batches", "4"))
"""The habits that break validity: two values changed, the optimizer dropped, data skipped."""

REFERENCE, PRETRAIN = "demo-reference", "demo-pretrain"
"""The lineage run ids of the demo."""


def choose(seed: int, world: int = WORLD) -> Fault:
    """Draw the fault of a seed."""
    return draw(seed, world, FIRST, LAST)


def reference(story: Story) -> None:
    """The unbroken run."""
    train(story, "reference", (), run_id=REFERENCE)


def broken(story: Story) -> None:
    """The run that the fault strikes (or not, where there is none)."""
    options = ["--fault", str(story.fault)] if story.fault else []
    train(story, "pretrain", options, run_id=PRETRAIN)


def recover(story: Story, checkpoint: str, *, faithful: bool) -> None:
    """Resume from a checkpoint: with everything restored, or with the habits."""
    options = ["--resume", checkpoint]
    if faithful:
        train(story, "faithful", options)
        return
    run = story.results["pretrain"][0]["run"]
    habits = [word for habit in HABITS for word in habit]
    train(story, "habits", [*options, *habits, *(["--tracker-run", run] if run else [])])


def equal_weights(story: Story, a: str, b: str) -> bool:
    """Whether the final weights of two trainings are equal bit for bit, on every rank."""
    import torch

    for rank in range(story.world):
        left, right = (torch.load(story.out / n / f"final-{n}-{rank}.pt", weights_only=True) for n in (a, b))
        if left.keys() != right.keys() or not all(_same_bits(left[k], right[k]) for k in left):
            return False
    return True


def _same_bits(a: Any, b: Any) -> bool:
    import torch

    return bool(a.shape == b.shape and torch.equal(a.view(torch.int32), b.view(torch.int32)))


def equal_losses(story: Story, a: str, b: str) -> bool:
    """Whether the losses of the steps that both made are equal bit for bit, on every rank."""
    for left, right in zip(story.results[a], story.results[b], strict=True):
        common = set(left["losses"]) & set(right["losses"])
        if not common or any(left["losses"][s] != right["losses"][s] for s in common):
            return False
    return True
