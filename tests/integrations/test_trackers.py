"""Trainer and Accelerate report to W&B and to MLflow at once: both pages show what the ledger holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
wandb = pytest.importorskip("wandb")
mlflow = pytest.importorskip("mlflow")

from tests.wandb_home import own_home
from trackers.wandb_ import offline_log

from .accelerate_loops import Loop
from .hf_loops import saved, trainer
from .reading import changes, only

pytestmark = pytest.mark.slow


@pytest.fixture
def both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_database: Callable[[Path], str]
) -> Iterator[str]:
    """W&B offline in a folder of the test, and MLflow on a database of the test's own."""
    uri = mlflow_database(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "both")
    mlflow.set_tracking_uri(uri)
    with own_home(tmp_path / "home", monkeypatch):
        yield uri
    while mlflow.active_run() is not None:
        mlflow.end_run()


def w_and_b(home: Path) -> offline_log.OfflineRun:
    """W&B's own log of the newest run."""
    log = max(home.glob("**/run-*.wandb"), key=lambda p: p.stat().st_mtime)
    return offline_log.read_run(log)


def m_l_flow(uri: str) -> Any:
    """MLflow's newest run."""
    client = mlflow.MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return client.search_runs(experiments)[0]


def delivered(folder: Path) -> dict[str, set[str]]:
    """Tracker -> the records that its page shows."""
    ledger = only(folder)
    every = {r.id for r in ledger.records}
    found: dict[str, set[str]] = {}
    for path in (ledger.path / "delivered").glob("*.txt"):
        found.setdefault(path.name.partition("-")[0], set()).update(every & set(path.read_text().split()))
    return found


def test_trainer_reports_to_both_and_both_pages_show_a_resume_with_another_rate(
    tmp_path: Path, both: str
) -> None:
    """The rate that was asked for and the one in effect are on both pages, and the drift's verdict."""
    wanted = {"report_to": ["wandb", "mlflow"], "options": {"exit_timeout": 60}}
    trainer(tmp_path, stop=4, run_name="first", **wanted).train()
    wandb.finish()
    trainer(tmp_path, stop=5, learning_rate=5e-3, run_name="second", **wanted).train(
        resume_from_checkpoint=str(saved(tmp_path, 3))
    )
    assert "learning_rate" in changes(tmp_path)
    wandb.finish()
    log, page = w_and_b(tmp_path / "home"), m_l_flow(both)
    assert log.config["learning_rate"] == 5e-3  # the frameworks' own logging is as it was
    assert page.data.params["learning_rate"] == "0.005"
    assert "train/loss" in log.summary
    assert "loss" in page.data.metrics
    said = "requested 0.01 -> 0.005, not in effect"
    assert any(said in str(v) for k, v in log.config.items() if k.startswith("lineage"))
    assert any(said in v for k, v in page.data.tags.items() if k.startswith("lineage/"))
    assert page.data.tags["lineage/run"] == only(tmp_path).run
    shown = delivered(tmp_path)
    assert set(shown) == {"wandb", "mlflow"}
    newest = only(tmp_path).segments[-1].uid
    due = {r.id for r in only(tmp_path).records if r.segment == newest and r.kind in ("drift", "verdict")}
    assert due <= shown["wandb"] & shown["mlflow"]
    aliases = {a.tracker for r in only(tmp_path).of("run") for a in r.payload.aliases}
    assert aliases == {"wandb", "mlflow"}


def test_accelerate_logs_with_both_and_both_pages_show_the_resume(tmp_path: Path, both: str) -> None:
    """`log_with=["wandb", "mlflow", LineageTracker()]`."""
    wanted = {"log_with": ["wandb", "mlflow"], "options": {"exit_timeout": 60}}
    Loop(tmp_path, **wanted).run(4).accelerator.end_training()
    loop = Loop(tmp_path, rate=5e-3, **wanted).load(3).run(5)
    loop.accelerator.end_training()
    log, page = w_and_b(tmp_path / "home"), m_l_flow(both)
    said = "requested 0.01 -> 0.005, not in effect"
    assert any(said in str(v) for k, v in log.config.items() if k.startswith("lineage"))
    assert any(said in v for k, v in page.data.tags.items() if k.startswith("lineage/"))
    assert set(delivered(tmp_path)) == {"wandb", "mlflow"}
    assert len(only(tmp_path).segments) == 2


def test_a_second_tracker_that_cannot_be_used_is_said_and_the_first_goes_on(
    tmp_path: Path, both: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise ImportError("no such adapter")

    monkeypatch.setattr("lineage.integrations._second_page._Page", fail)
    made = trainer(tmp_path, stop=3, report_to=["wandb", "mlflow"], run_name="first")
    made.train()
    assert made.state.global_step == 3
    assert "no such adapter" in caplog.text
    assert set(delivered(tmp_path)) == {"wandb"}
