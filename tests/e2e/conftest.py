"""Real W&B clients in a temporary home, a backend for them on loopback, and real MLflow stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported

import pytest

pytest.importorskip("torch")

import mlflow

from tests.trackers.wandb.stub_backend import StubBackend, served
from tests.wandb_home import own_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything that the client writes lies in the test's own folder; its service ends with the test."""
    with own_home(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture
def backend(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubBackend]:
    """A W&B backend on loopback; runs with mode="online" talk to it."""
    with served(monkeypatch) as stub:
        yield stub


class Store:
    """An MLflow store on SQLite without a server, with all artifacts in the test's folder."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.uri = uri
        mlflow.set_tracking_uri(self.uri)
        self.client = mlflow.MlflowClient(self.uri)
        self.experiment = self.client.create_experiment(
            "e", artifact_location=(folder / "artifacts").as_uri()
        )

    def start(self) -> mlflow.ActiveRun:
        """Begin a run as a script does."""
        return mlflow.start_run(experiment_id=self.experiment)


@pytest.fixture
def store(tmp_path: Path, mlflow_database: Callable[[Path], str]) -> Store:
    """An MLflow store without a server."""
    return Store(tmp_path, mlflow_database(tmp_path))


@pytest.fixture(autouse=True)
def _no_run_left_active() -> Iterator[None]:
    """The active MLflow run and the tracking URI are one for the process: a test leaves none behind."""
    was = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.tracking.fluent._active_experiment_id = None  # what an earlier test of this process chose
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        os.environ.pop(name, None)
    yield
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri("")
    if was is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)
