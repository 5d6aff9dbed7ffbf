"""The trainings that all tests of the pages look at, told once to each tracker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported

pytest.importorskip("torch")

from tests.wandb_home import own_home

from .story import BAD, CHANGED, SPOILED, Story

if TYPE_CHECKING:
    from tests.trackers.mlflow.servers import Server

    from .mlflow_side import MlflowSide
    from .wandb_side import WandbSide


@pytest.fixture(scope="session")
def mlflow_side(tmp_path_factory: pytest.TempPathFactory, _mlflow_server: Server) -> MlflowSide:
    """All four runs on a real MLflow server."""
    from .mlflow_side import MlflowSide, elsewhere

    if not _mlflow_server.running:
        _mlflow_server.start()
    with elsewhere():
        side = MlflowSide(_mlflow_server.uri, "pages")
        Story(tmp_path_factory.mktemp("mlflow-story"), side).tell()
    return side


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all pages of a module: while it is open, no other one can be in this process."""
    from . import browser as browsers

    if browsers.CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    pytest.importorskip("playwright.sync_api")
    with browsers.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WandbSide]:
    """The run that was changed, in W&B's local logs."""
    from .wandb_side import WandbSide

    folder = tmp_path_factory.mktemp("wandb-offline")
    with pytest.MonkeyPatch.context() as patch, own_home(folder, patch):
        side = WandbSide()
        Story(folder, side).tell(CHANGED)
        yield side


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WandbSide, Any]]:
    """The spoiled run and its fork, on a backend on loopback: what the server was told, and the local logs."""
    from tests.trackers.wandb.stub_backend import served

    from .wandb_side import WandbSide

    folder = tmp_path_factory.mktemp("wandb-online")
    with (
        pytest.MonkeyPatch.context() as patch,
        own_home(folder, patch),
        served(patch) as backend,
    ):
        side = WandbSide(mode="online")
        Story(folder, side).tell(SPOILED, BAD)
        yield side, backend
