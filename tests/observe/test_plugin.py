"""The pytest plugin: a session under observation passes and fails as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import Run, environment, ledgers, script

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


CHILD = """
import os, subprocess, sys

CODE = '''
import wandb
run = wandb.init(project="p", mode="offline", id="of-a-child")
run.log({"loss": 0.5}, step=1)
run.finish()
'''

def test_starts_a_process():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
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


def test_a_process_that_a_test_starts_is_observed_and_says_nothing(tmp_path: Path) -> None:
    script(tmp_path, "test_child.py", CHILD)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "lineage.observe.pytest_plugin"]
    done = subprocess.run(
        [*words, "test_child.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**environment(tmp_path), "LINEAGE_DIR": str(tmp_path / "runs")},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert "1 further processes" in done.stdout
    (ledger,) = ledgers(tmp_path)
    assert [r["value"] for r in ledger.series("metrics").to_pylist()] == [0.5]


def test_the_variables_of_the_session_are_put_back(tmp_path: Path) -> None:
    code = (
        "import os; before = dict(os.environ); import lineage.observe.pytest_plugin as p; "
        "assert os.environ['PYTHONPATH'].endswith('/theirs'); p.pytest_unconfigure(None); print(os.environ == before)"
    )
    env = {**environment(tmp_path), "PYTHONPATH": "/theirs"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.stdout == "True\n", done.stderr


THREADS = """
import sys, threading

BEFORE = set(threading.enumerate())

def test_sees_no_thread_come():
    import wandb
    assert sys.modules["_lineage_light"].events.SWITCH.recording
    run = wandb.init(project="p", mode="offline")
    run.log({"loss": 0.5}, step=1)
    run.finish()
    observer = sys.modules["lineage.observe"].observer()
    assert observer.flush(300.0)
    assert observer.shared.begun == 1
    assert not [t for t in set(threading.enumerate()) - BEFORE if "lineage" in t.name]
    assert "lineage-observer" in [t.name for t in BEFORE]
"""


def test_in_a_test_session_under_the_command_the_thread_is_there_before_any_test(
    tmp_path: Path, run: Run
) -> None:
    path = script(tmp_path, "test_threads.py", THREADS)
    done = run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", path)
    assert done.returncode == 0, done.stdout


def test_a_program_that_imports_pytest_is_no_test_session(tmp_path: Path, run: Run) -> None:
    code = "import sys, pytest; print('lineage.observe' in sys.modules)"
    assert run(sys.executable, "-c", code).stdout == "False\n"
