"""Fifty secrets in twelve places, real training on real trackers: none is in anything that the layer wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.secret_samples import SAMPLES, planted

from . import plants

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["wandb", "mlflow"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All output of one training process in a repository of its own; the folder above holds what was planted."""
    base = tmp_path_factory.mktemp(f"secrets-{request.param}")
    plants.repository(base / "repository", Path(__file__).with_name("secret_training.py"))
    plants.distributions(base / "site")
    out = base / "out"
    out.mkdir()
    own = {k: str(base / "home") for k in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    environment = plants.variables(
        os.environ,
        PYTHONPATH=f"{REPOSITORY}:{base / 'site'}",
        WANDB_ERROR_REPORTING="false",
        MLFLOW_DISABLE_TELEMETRY="true",
        **own,
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "train.py", request.param, str(out), *plants.argv()],
        cwd=base / "repository",
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    print(f"{request.param}: {time.monotonic() - started:.1f} s")
    assert done.returncode == 0, done.stderr[-3000:]
    (out / "stderr.txt").write_text(done.stderr)
    return out


def test_no_part_of_any_secret_is_in_what_was_written(trained: Path) -> None:
    assert plants.leaks([trained]) == {}
