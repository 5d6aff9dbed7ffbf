"""The real client in a temporary home, offline or against a backend on loopback."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

import trackers
from tests.wandb_home import own_home
from trackers.wandb_ import offline_log

from .builders import RUN
from .stub_backend import StubBackend


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything that the client writes lies in the test's own folder; its service ends with the test."""
    with own_home(tmp_path, monkeypatch) as folder:
        yield folder


def settings(**more: Any) -> wandb.Settings:
    return wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off", **more)


@pytest.fixture
def start(home: Path) -> Callable[..., Any]:
    """Begin an offline run, or an online one where a backend's address is in the environment."""

    def begin(**more: Any) -> Any:
        extra = more.pop("settings", {})
        return wandb.init(**{"project": "p", "mode": "offline", "settings": settings(**extra), **more})

    return begin


@pytest.fixture
def page() -> trackers.Page:
    return trackers.Page(RUN)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubBackend]:
    """A backend on loopback, to which `start(mode="online")` talks."""
    stub = StubBackend()
    monkeypatch.setenv("WANDB_BASE_URL", stub.url)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    yield stub
    if stub.listening:  # what a failed test has left open ends while there is still somebody to answer
        with contextlib.suppress(ConnectionError):
            wandb.teardown()
        stub.close()
    assert stub.faults == []


def finished(run: Any) -> offline_log.OfflineRun:
    """Finish a run and read it back from its log, whose last block is written a moment after `finish`."""
    folder = run.settings.sync_dir
    run.finish()
    end = time.monotonic() + 120
    while (log := offline_log.read_run(folder)).exit_code is None and time.monotonic() < end:
        time.sleep(0.05)
    assert log.exit_code is not None, f"{folder} has no end after 120 s"
    return log
