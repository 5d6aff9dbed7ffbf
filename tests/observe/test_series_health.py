"""Logged series that do not show what happened, end to end: a real script, a real tracker, the command line."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest

import lineage
from lineage.ledger import reader
from tests.e2e.training import finished
from tests.recorder.loop import Loop

from .conftest import Observed, Run, environment, ledgers, script
from .test_mlflow import store  # noqa: F401 - a fixture
from .test_wandb import start

TRAINING = """
import random, sys, wandb
run = wandb.init(project="p", config={"lr": 1e-3, "logging_nan_inf_filter": True})
draw, last = random.Random(0), None
for step in range(1, 121):
    loss = 2 + 8 / (1 + step / 20) + draw.gauss(0, 0.02)
    if sys.argv[1] == "stale" and step > 60:
        loss = last
    last = loss
    run.log({"train/loss": loss, "train/grad_norm": 0.3 + draw.random(), "train/lr": 1e-3}, step=step)
run.finish()
"""


def check(folder: Path, ledger: reader.Ledger, *more: str) -> subprocess.CompletedProcess[str]:
    """`lineage check` in a process of its own."""
    code = "from lineage.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, "check", str(ledger.path), *more],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(folder), "COLUMNS": "140"},
    )


def said(ledger: reader.Ledger) -> list[tuple[str, str]]:
    """The findings that were recorded about series, without switches."""
    found = [r.payload for r in ledger.of("finding") if r.payload.code.startswith("LIN-S")]
    return [(f.code, f.subject) for f in found if f.code != "LIN-S009"]


def test_a_stale_loss_of_an_unchanged_script_is_recorded_and_told_by_the_command(
    tmp_path: Path, run: Run
) -> None:
    """From step 61 on it logs the loss of step 60 again, while the norm moves."""
    path = script(tmp_path, "train.py", TRAINING)
    done = run(sys.executable, path, "stale")
    assert done.returncode == 0, done.stderr
    assert "LIN-S002: train/loss" in done.stderr
    (ledger,) = ledgers(tmp_path)
    assert said(ledger) == [("LIN-S002", "train/loss")]
    (record,) = [r for r in ledger.of("finding") if r.payload.code == "LIN-S002"]
    assert record.step == 60
    assert "health of 2 series" in ledger.of("coverage")[0].payload.recorded
    told = check(tmp_path, ledger)
    assert told.returncode == 1, told.stderr
    assert "in 61 rows, steps 60-120 to its end, while train/grad_norm moved" in told.stdout
    data = json.loads(check(tmp_path, ledger, "--json").stdout)
    (segment,) = data["segments"]
    assert {f["code"] for f in segment["findings"]} == {"LIN-S002", "LIN-S009"}
    assert [(s["key"], s["codes"]) for s in segment["series"]] == [
        ("train/loss", ["LIN-S002"]),
        ("train/grad_norm", []),
    ]


def test_of_a_healthy_script_only_the_switch_is_named(tmp_path: Path, run: Run) -> None:
    path = script(tmp_path, "train.py", TRAINING)
    done = run(sys.executable, path, "healthy")
    assert done.returncode == 0, done.stderr
    assert "LIN-S" not in done.stderr
    (ledger,) = ledgers(tmp_path)
    assert said(ledger) == [], done.stderr
    told = check(tmp_path, ledger)
    assert told.returncode == 0, told.stderr
    assert "note LIN-S009 config: logging_nan_inf_filter=True" in told.stdout


def test_a_run_without_losses_cannot_be_judged(tmp_path: Path, run: Run) -> None:
    text = 'import wandb\nrun = wandb.init(project="p")\nrun.log({"accuracy": 0.5}, step=1)\nrun.finish()\n'
    assert run(sys.executable, script(tmp_path, "train.py", text)).returncode == 0
    (ledger,) = ledgers(tmp_path)
    told = check(tmp_path, ledger)
    assert told.returncode == 4
    assert "Cannot tell: no series of a training loss" in told.stdout


def attached(observed: Observed, run: Any, loop: Loop, **more: Any) -> Any:
    return lineage.attach(run, dir=observed.root, quiet=True, report=False, **loop.objects, **more)


def test_a_log_that_filters_nan_is_told_by_the_layers_own_loss(home: Path, observed: Observed) -> None:
    """The user's series beside ours: at step 25 the loss is NaN, and W&B gets the last finite one."""
    loop, run = Loop(), start(id="r1")
    last = 0.0
    with attached(observed, run, loop) as rec:
        for step in range(1, 41):
            good = copy.deepcopy((loop.model.state_dict(), loop.optimizer.state_dict()))
            (loss,) = loop.run(rec, step, spoil=25)
            last = loss if math.isfinite(loss) else last
            run.log({"train/loss": last}, step=step)
            if step == 25:
                loop.model.load_state_dict(good[0])
                loop.optimizer.load_state_dict(good[1])
    log = finished(run)
    ledger = observed.only()
    found = [r.payload for r in ledger.of("finding") if r.payload.code.startswith("LIN-S")]
    assert [(f.code, f.subject) for f in found] == [("LIN-S006", "train/loss")]
    assert "finite at steps 25, where this rank's loss is not" in found[0].text
    assert "finite at steps 25" in log.summary["lineage/finding/LIN-S006/train/loss"]


def test_an_honest_log_beside_the_layers_own_signals_is_not_mentioned(
    store: str,  # noqa: F811
    observed: Observed,
) -> None:
    """MLflow, and the definition of each series is known."""
    loop = Loop(clip=0.5)
    with mlflow.start_run() as run, attached(observed, run, loop) as rec:
        for step in range(1, 41):
            (loss,) = loop.run(rec, step)
            mlflow.log_metric("loss", loss, step=step)
    ledger = observed.only()
    assert said(ledger) == []
    (segment,) = json.loads(check(observed.root.parent, ledger, "--json").stdout)["segments"]
    shown = {s["key"]: s["definition"] for s in segment["series"] if s["by"] == "mlflow"}
    assert shown == {"loss": "this rank's loss"}


@pytest.mark.parametrize(
    ("value", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_non_finite_value_survives_series_journal_and_page(
    home: Path, observed: Observed, value: float, word: str
) -> None:
    """Arrow while hot, Parquet when sealed, JSON in the journal, the W&B file itself."""
    run = start(id="r1")
    run.log({"loss": 1.0}, step=1)
    run.log({"loss": value}, step=2)
    observed.settle()
    (hot,) = observed.root.glob("*/series/*/*.metrics.arrows")
    assert repr(reader.Ledger(hot.parents[2]).series("metrics").to_pylist()[1]["value"]) == repr(value)
    log = finished(run)
    assert repr(log.history[1]["loss"]) == repr(value)
    ledger = observed.only()
    assert list(observed.root.glob("*/series/*/*.metrics.parquet"))
    row = ledger.series("metrics").to_pylist()[1]
    assert repr(row["value"]) == repr(value)
    assert [row["n_nan"], row["n_posinf"], row["n_neginf"]] == [
        word == w for w in ("NaN", "Infinity", "-Infinity")
    ]
    (alarm,) = ledger.of("alarm")
    assert json.loads(alarm.raw)["payload"]["value"] == word
    assert repr(alarm.payload.value) == repr(value)
