"""A ledger for each test of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.ledger.reader import Ledger

from . import run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> run.Clock:
    return run.Clock(monkeypatch)


@pytest.fixture
def ledger(tmp_path: Path, clock: run.Clock) -> Ledger:
    """Two segments of four ranks on two nodes; the loss of rank 1 is no number at step 20 of the second."""
    return run.write(tmp_path / "runs", clock)
