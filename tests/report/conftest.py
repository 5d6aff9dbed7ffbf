"""One real ledger for all tests of the report, written by a real, small training run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import lineage
from lineage.report import facts as facts_

from . import toy


@pytest.fixture(scope="session")
def broken_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger folder of a run with a healthy start, a faithful resume, and a resume with bad habits."""
    root = tmp_path_factory.mktemp("toy")
    before = Path.cwd()
    os.chdir(root)  # so that no git repository that is being worked on is captured
    try:
        toy.train(root, 10)
        toy.train(root, 10, resume=root / "step-8")
        toy.train(root, 12, resume=root / "step-8", habits=toy.BAD)
    finally:
        os.chdir(before)
    (ledger,) = (root / "runs").iterdir()
    return ledger


@pytest.fixture(scope="session")
def healthy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger folder of a run in which nothing happens."""
    root = tmp_path_factory.mktemp("healthy")
    toy.train(root, 5)
    (ledger,) = (root / "runs").iterdir()
    return ledger


@pytest.fixture(scope="session")
def ledger(broken_run: Path) -> lineage.Ledger:
    return lineage.open_ledger(broken_run)


@pytest.fixture(scope="session")
def facts(ledger: lineage.Ledger) -> facts_.Facts:
    return facts_.gather(ledger)


@pytest.fixture
def copy(broken_run: Path, tmp_path: Path) -> Path:
    """A copy of the ledger that a test may damage."""
    return Path(shutil.copytree(broken_run, tmp_path / broken_run.name))
