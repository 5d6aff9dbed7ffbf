"""The examples run as they stand, and leave what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path) -> str:
    """Run an example in a folder of its own."""
    own = {k: v for k, v in os.environ.items() if "WANDB" not in k}  # another test's service is not ours
    env = {
        **own,
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def test_the_plain_loop_finds_its_changed_clip(tmp_path: Path) -> None:
    """One run, two segments, one change."""
    told = run("plain_loop.py", tmp_path)
    assert "step 11 begins a new regime: gradient clipping 1 -> 0.3" in told
    assert len(list((tmp_path / "lineage-runs").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_the_loops_with_a_tracker_leave_its_page_complete(tmp_path: Path, tracker: str) -> None:
    """Nothing waits for the tracker at the end, and nothing failed."""
    pytest.importorskip(tracker)
    told = run(f"{tracker}_loop.py", tmp_path)
    assert "records wait" not in told
    assert "Training goes on" not in told
    from lineage.ledger.reader import Ledger

    ledger = Ledger(next((tmp_path / "lineage-runs").iterdir()))
    assert ledger.last("verdict").payload.status == "holds"
    assert {r.payload.tracker for r in ledger.of("anchor")} == {tracker}
