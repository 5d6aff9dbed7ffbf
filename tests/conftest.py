"""What many tests share: an MLflow server, a prepared MLflow database, processes that start warm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .warm import Warm

if TYPE_CHECKING:
    from .trackers.mlflow.servers import Server

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported
os.environ.setdefault("LINEAGE_HARDWARE_EVERY", "0")  # what else happens on this machine is no part of a test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker ends long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    """No test leaves a setting behind: it would lead the ledger of a later one, in the same process, elsewhere."""
    before = _settings()
    yield
    assert _settings() == before


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("LINEAGE_")}


@pytest.fixture(scope="session")
def warm_reader() -> Iterator[Warm]:
    """Processes that start with the packages that every command of ours imports."""
    with Warm("pydantic", "typer", "rich.console", "rich.table", "pyarrow.parquet", "numpy") as server:
        yield server


@pytest.fixture(scope="session")
def warm_trainer() -> Iterator[Warm]:
    """Processes that start with torch, what it imports for distributed training, and what draws reports."""
    pytest.importorskip("torch")
    reports = ("altair", "jinja2", "vl_convert", "markdown_it")
    with Warm("torch.nn.parallel", "torch._dynamo", "pydantic", "pyarrow.parquet", *reports) as server:
        yield server


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Makes an empty MLflow database in a folder and gives its URI; MLflow itself makes it once, which is slow."""
    from mlflow import MlflowClient

    made = tmp_path_factory.mktemp("mlflow-database") / "mlflow.db"
    MlflowClient(f"sqlite:///{made}").search_experiments()

    def copy(folder: Path) -> str:
        return f"sqlite:///{shutil.copy(made, folder / 'mlflow.db')}"

    return copy


@pytest.fixture(scope="session")
def _mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from .trackers.mlflow.servers import Server

    made = Server(tmp_path_factory.mktemp("mlflow-server"))
    yield made
    made.kill()


@pytest.fixture
def server(_mlflow_server: Server) -> Server:
    """One real MLflow server on SQLite for all tests of this process; whoever kills it may leave it dead."""
    if not _mlflow_server.running:
        _mlflow_server.start()
    return _mlflow_server
