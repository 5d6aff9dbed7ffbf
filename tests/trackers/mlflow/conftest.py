from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported

import pytest
from mlflow import MlflowClient

from trackers import Page
from trackers.mlflow_ import MlflowTracker

from . import builders
from .servers import Faulty, Server

MODELS = hasattr(MlflowClient, "create_logged_model")
needs_models = pytest.mark.skipif(not MODELS, reason="LoggedModels came with MLflow 3.0")


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory, mlflow_database: Callable[[Path], str]) -> str:
    return mlflow_database(tmp_path_factory.mktemp("mlflow-sqlite"))


@pytest.fixture
def faulty(server: Server) -> Iterator[Faulty]:
    made = Faulty(server.uri)
    yield made
    made.close()


class Case:
    """One MLflow run, our tracker on it, and a client that reads it back."""

    def __init__(self, uri: str, tmp_path: Path, *, through: str | None = None) -> None:
        self.client = MlflowClient(uri)
        location = None if uri.startswith("http") else (tmp_path / "artifacts").as_uri()
        self.experiment = self.client.create_experiment(builders.uid(), artifact_location=location)
        self.run_id = self.client.create_run(self.experiment, run_name="pretrain").info.run_id
        self.tracker = self.attach(through)
        self.page = Page(run=builders.RUN)
        self.segment = builders.uid()
        self._tmp = tmp_path

    def attach(self, through: str | None = None) -> MlflowTracker:
        """A tracker as a new process would build it."""
        client = MlflowClient(through) if through else self.client
        return MlflowTracker((client, self.run_id))

    def show(self, payload: object, **more: object) -> str | None:
        made = builders.record(payload, **{"segment": self.segment, **more})  # type: ignore[arg-type]
        return self.tracker.show(made, self.page)

    def tags(self) -> dict[str, str]:
        """The run's tags without those that MLflow sets itself."""
        tags = self.client.get_run(self.run_id).data.tags
        return {k: v for k, v in tags.items() if not k.startswith("mlflow.") or k == "mlflow.note.content"}

    def artifact(self, path: str) -> str:
        return Path(self.client.download_artifacts(self.run_id, path, str(self._tmp))).read_text()

    def models(self) -> list[object]:
        return list(self.client.search_logged_models([self.experiment])) if MODELS else []

    def outputs(self) -> list[tuple[str, int]]:
        """The LoggedModels that the run wrote, with their steps."""
        outputs = getattr(self.client.get_run(self.run_id), "outputs", None)
        return [(m.model_id, m.step) for m in outputs.model_outputs] if outputs else []


@pytest.fixture(params=["server", "sqlite"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """A run on a real server, and one in a SQLite store without a server."""
    if request.param == "server":
        return Case(request.getfixturevalue("server").uri, tmp_path)
    return Case(request.getfixturevalue("sqlite_uri"), tmp_path)


@pytest.fixture
def served(server: Server, tmp_path: Path) -> Case:
    return Case(server.uri, tmp_path)


@pytest.fixture(autouse=True)
def _tracking_uri_restored() -> Iterator[None]:
    """The tracking URI is one for the process; a test that sets it leaves it as it was."""
    import mlflow

    was = os.environ.get("MLFLOW_TRACKING_URI")
    yield
    mlflow.set_tracking_uri("")
    if was is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)
