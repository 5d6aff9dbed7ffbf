"""Observation within a test's process, and whole commands under `lineage run`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported

import pytest

for needed in ("torch", "wandb", "mlflow"):
    pytest.importorskip(needed)

import lineage.observe
from lineage.ledger import reader
from tests.wandb_home import own_home

REPOSITORY = Path(__file__).parents[2]


@dataclass
class Observed:
    """An observer in this process, and the ledgers that it writes."""

    root: Path

    def settle(self) -> None:
        """Wait until all that was called is recorded."""
        found = lineage.observe.observer()
        assert found is not None
        assert found.flush(300.0), "the observer did not come to an end"

    def end(self) -> list[reader.Ledger]:
        """Stop observing; the ledgers, oldest first."""
        lineage.observe.uninstall(300.0)
        return sorted(
            (reader.Ledger(p) for p in reader.find(self.root)), key=lambda ledger: ledger.records[0].at
        )

    def only(self) -> reader.Ledger:
        """Stop observing; the one ledger that there is."""
        (ledger,) = self.end()
        assert ledger.damage == []
        return ledger


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    """This process under observation for the length of a test. No failure of the observer goes unseen."""
    switch = lineage.observe.light.events.SWITCH
    switch.failures, switch.dropped, switch.memory_saves = 0, 0, 0
    root = tmp_path / "runs"
    lineage.observe.install(lineage.observe.Options(dir=str(root), quiet=True, capture=False))
    yield Observed(root)
    lineage.observe.uninstall(300.0)
    assert switch.failures == 0, switch.first_failure


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything that the W&B client writes lies in the test's own folder; its service ends with the test."""
    with own_home(tmp_path, monkeypatch) as folder:
        yield folder


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command under `lineage run`, in the test's folder, whose ledgers are in `runs`."""

    def call(
        *words: str | Path, env: dict[str, str] | None = None, **more: object
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*lineage_run(tmp_path), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**environment(tmp_path), **(env or {})},
            timeout=600,
        )

    return call


def lineage_run(folder: Path) -> list[str]:
    """The command `lineage run`, up to the two dashes."""
    code = "from lineage.cli import main; main()"
    return [sys.executable, "-P", "-c", code, "run", "--ledger", str(folder / "runs"), "--"]


def environment(folder: Path) -> dict[str, str]:
    """This process's variables, with trackers that stay in the folder and say nothing."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("LINEAGE_", "WANDB_", "MLFLOW_", "PYTHON"))
    }
    quiet = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
    }
    return {**kept, **quiet}


def script(folder: Path, name: str, text: str) -> Path:
    """Write a user's script."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def ledgers(folder: Path) -> list[reader.Ledger]:
    """The ledgers below a folder's `runs`, oldest first."""
    found = [reader.Ledger(p) for p in reader.find(folder / "runs")]
    return sorted(found, key=lambda ledger: ledger.records[0].at)
