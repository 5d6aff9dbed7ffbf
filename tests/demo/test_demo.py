"""The demo from end to end: what struck is found, and nothing is found where nothing struck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Warm

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

HABITS = {"learning_rate", "grad_clip", "optimizer_state", "batch_skip"}


COMMAND = "from lineage.cli import main; main()"
WARM = f"""
import sys
from lineage.demo import run
from tests.warm import Subprocess
run.subprocess = Subprocess(sys.argv.pop(1))  # starts the ranks
{COMMAND}
"""


def lineage(*arguments: str, cwd: Path, warm: Warm | None = None) -> Any:
    """Run the command line as a user would, with JSON output. `warm`: it and its ranks start from there."""
    words, env = [*arguments, "--json"], {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    if warm:
        done = warm.run(["-c", WARM, warm.address, *words], cwd=cwd, env=env)
    else:
        command = [sys.executable, "-c", COMMAND, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_what_the_seed_injects_is_found_and_both_recoveries_are_judged(
    tmp_path: Path, seed: int, warm_trainer: Warm
) -> None:
    """Rank and step are named, the faithful resume equals the reference, the habits are all listed."""
    from lineage.demo.run import choose

    tracker = "mlflow" if seed == 1 else "none"
    arguments = ("--seed", str(seed), "--tracker", tracker, "--out", str(tmp_path / "demo"))
    told = lineage("demo", *arguments, cwd=tmp_path, warm=warm_trainer)
    fault, cell = choose(seed), told["found"]["cell"]
    assert (cell["rank"], cell["step"]) == (fault.rank, fault.step)
    assert told["found"]["ties"] == []
    assert told["faithful_equals_reference"] is True
    assert sorted(told["changes"]) == sorted(HABITS)  # all four, each once
    assert told["went_wrong"] is False
    assert not (tmp_path / "mlruns").exists()  # all of it lies in the demo's folder
    assert told["confounded"] is True
    assert told["problems"] == []
    assert {p["what"] for p in told["preserved"]} >= {"last good checkpoint", "first bad batch", "rank files"}
    status = {
        side: {c["claim"]: c["status"] for c in v["verdict"]["claims"]}
        if "verdict" in v
        else {c["claim"]: c["status"] for c in v["claims"]}
        for side, v in told["verdicts"].items()
    }
    assert set(status["faithful"].values()) == {"holds"}
    assert set(status["last_good"].values()) == {"holds"}
    for claim in ("loss_curve", "ablation", "data_exposure", "bitwise"):
        assert status["habits"][claim] == "broken"


def test_three_seeds_of_the_tests_draw_different_kinds() -> None:
    """The seeds above do not all test the same fault."""
    from lineage.demo.run import choose

    assert len({choose(s).kind for s in (1, 2, 5)}) == 3


def test_without_a_fault_nothing_is_found(tmp_path: Path) -> None:
    """A healthy run ends without alarm, and first-bad says so with exit code 0. Every process starts cold."""
    told = lineage("demo", "--no-fault", "--tracker", "none", "--out", str(tmp_path / "demo"), cwd=tmp_path)
    assert (told["found"], told["went_wrong"]) == (None, False)
    ledgers = tmp_path / "demo" / "lineage-runs"
    for run in ("demo-reference", "demo-pretrain"):
        assert lineage("first-bad", str(ledgers / run), cwd=tmp_path)["first_bad"] is None
        assert lineage("verify", str(ledgers / run), cwd=tmp_path)["whole"] is True


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    """The demo replaces its own folder only."""
    precious = tmp_path / "demo" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    done = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "demo", "--out", str(precious.parent)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 4
    assert "--out" in done.stderr
    assert precious.read_text() == "years of work"
