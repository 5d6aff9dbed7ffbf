"""What starting costs: imports, `lineage.attach` until it returns, and until git and packages are captured.

Every sample is a fresh Python process, since imports and caches are paid once per process. The working
directory of those that start the layer is this repository, whose revision and diff they capture.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import probes
from .imports import slowest
from .table import SPREAD, Column, Table, Target
from .timing import summary, take_turns

NAME = "attach"
COLUMNS = (
    Column("what", "start-up of"),
    Column("phase", "phase"),
    *SPREAD,
    Column("ratio", "time, layer's attach to captured = 1", "ratio"),
)
LIMIT = 1.0
"""Seconds: the target for attaching with git and packages captured."""
ROOT = Path(__file__).resolve().parent.parent
CAPTURED = "attach until git and packages are captured"


@dataclass(frozen=True)
class Start:
    """Something that starts: a function of `probes`, and what the numbers that it prints are called."""

    what: str
    probe: Callable[[Path], Mapping[str, float]]
    phases: Mapping[str, str]

    def sample(self, scratch: Path) -> dict[str, float]:
        """Run the probe in a fresh process. Raises `RuntimeError` with its output where it fails."""
        code = f"import sys; from benchmarks import probes; probes.main({self.probe.__name__!r}, sys.argv[1])"
        done = subprocess.run(
            [sys.executable, "-c", code, str(scratch)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=probes.environment(),
            check=False,
            timeout=600,
        )
        lines = [x for x in done.stdout.splitlines() if x.startswith(probes.MARK)]
        if done.returncode != 0 or not lines:
            raise RuntimeError(f"starting {self.what} failed ({done.returncode}):\n{done.stderr[-3000:]}")
        found: dict[str, float] = json.loads(lines[-1].removeprefix(probes.MARK))
        return found


LAYER = {
    "import": "import lineage",
    "returned": "attach until it returns, lazy imports included",
    "captured": CAPTURED,
    "first_step": "first step: opens the ledger",
}
STARTS = (
    Start("layer, no torch", probes.layer, {k: v for k, v in LAYER.items() if k != "first_step"}),
    Start("layer, torch model and optimizer", probes.layer_torch, LAYER),
    Start("W&B offline", probes.wandb, {"import": "import wandb", "started": "wandb.init(mode='offline')"}),
    Start(
        "MLflow on SQLite",
        probes.mlflow,
        {
            "import": "import mlflow",
            "created": "mlflow.start_run, makes the database",
            "started": "mlflow.start_run, database is there",
        },
    ),
)


def run(*, rounds: int = 4, imports: int = 3) -> Table:
    """Start each in turn, `rounds` times; look into the imports `imports` times."""
    table = Table(NAME, f"start-up in this repository ({ROOT.name})", COLUMNS)
    phases: dict[str, dict[str, list[float]]] = {s.what: {p: [] for p in s.phases} for s in STARTS}
    with tempfile.TemporaryDirectory() as scratch:

        def turn(start: Start) -> Callable[[], list[float]]:
            def sample() -> list[float]:
                found = start.sample(Path(scratch))
                for phase in start.phases:
                    phases[start.what][phase].append(found[phase])
                return [sum(found.values())]

            return sample

        take_turns({s.what: turn(s) for s in STARTS}, rounds, budget=20)
    reference = {s.what: phases[s.what].get("captured") for s in STARTS}
    own = summary(reference["layer, torch model and optimizer"] or [])["median"]
    for start in STARTS:
        for phase, words in start.phases.items():
            s: dict[str, Any] = summary(phases[start.what][phase])
            table.add(what=start.what, phase=words, **s, ratio=s["median"] / own)
        captured = reference[start.what]
        if captured is not None:
            table.targets.append(_target(start.what, summary(captured)))
    table.notes += [
        "attach is counted from the call; torch, wandb and mlflow are imported before it, and not counted",
        "`import lineage` is light; the lazy import of the recorder is paid within attach",
        *slowest("import lineage", imports),
        *slowest("import lineage; lineage.attach", imports),
    ]
    return table


def _target(what: str, s: Mapping[str, float | int]) -> Target:
    return Target(
        f"{what}: attach with git and packages captured in under {LIMIT:g} s",
        f"median {s['median']:.2f} s, slowest of {s['n']}: {s['max']:.2f} s",
        s["median"] < LIMIT,
    )
