"""The pytest plugin: a session under observation passes and fails as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import environment, script

SUITE = """
import threading, warnings
import pytest, torch, wandb

def test_logs(tmp_path, caplog):
    before = set(threading.enumerate())
    run = wandb.init(project="p", mode="offline", dir=str(tmp_path), settings=wandb.Settings(console="off"))
    run.log({"loss": float("nan")})
    run.finish()
    torch.save({"step": 1}, tmp_path / "ck.pt")
    assert not [r for r in caplog.records if r.name.startswith("lineage")]
    assert not [t for t in set(threading.enumerate()) - before if "lineage" in t.name]

def test_signature():
    import inspect
    assert list(inspect.signature(wandb.Run.log).parameters) == ["self", "data", "step", "commit"]

def test_fails():
    with pytest.raises(wandb.errors.Error):
        wandb.init(project="p", mode="nonsense")
    assert False, "as it does without"
"""


def test_a_suite_passes_and_fails_alike_and_the_plugin_says_what_it_saw(tmp_path: Path) -> None:
    script(tmp_path, "test_suite.py", SUITE)

    def session(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "test_suite.py", *more]
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment(tmp_path),
            timeout=600,
        )

    plain, watched = session(), session("-p", "lineage.observe.pytest_plugin")

    def results(out: str) -> set[str]:
        return {
            line.partition(" - ")[0]
            for line in out.splitlines()
            if line.startswith(("PASSED", "FAILED", "ERROR"))
        }

    assert results(watched.stdout) == results(plain.stdout)
    assert len(results(plain.stdout)) == 3
    assert watched.returncode == plain.returncode == 1
    (said,) = [line for line in watched.stdout.splitlines() if line.startswith("lineage: ")]
    assert "0 failures of the observer" in said
    assert not said.startswith("lineage: 0 calls")
    assert not (tmp_path / "lineage-runs").exists()
