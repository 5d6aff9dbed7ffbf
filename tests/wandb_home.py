"""A home of its own for the real W&B client of one test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

FOLDERS = ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR")


@contextlib.contextmanager
def own_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything that the client writes lies in the folder; its service begins and ends with the test.

    The client reads its environment once per process. What an earlier test of this process made it read is
    taken down first, else this test's folder and backend would go unheard.
    """
    _take_down()
    for name in FOLDERS:
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_SERVICE", raising=False)
    yield folder
    _take_down()


def _take_down() -> None:
    with contextlib.suppress(ConnectionError):  # where a test has killed the service
        wandb.teardown()
