"""SIGKILL of a training loop: at most two steps of the series are lost, also in its first milliseconds."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

pytest.importorskip("torch")

import lineage
from lineage.judge import graph
from lineage.ledger import series
from tests.ledger.helpers import kill

from .loop import Loop, attach, only

LOST = 2
"""The step in flight, and one that was not copied yet."""


@pytest.fixture(scope="module")
def loops() -> Iterator[subprocess.Popen[str]]:
    """The process that forks the loops, warm."""
    command = [sys.executable, "-m", "tests.recorder.dying_loop"]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(300) == 0


def life(loops: subprocess.Popen[str], root: Path, after: int, delay: float, slow: float) -> int:
    """Start a loop, kill it `delay` seconds after so many steps; the last step that it said it had left."""
    sent, said = cast(IO[str], loops.stdin), cast(IO[str], loops.stdout)
    sent.write(f"{root} {slow}\n")
    sent.flush()
    pid = last = 0
    while not (pid and last >= after):
        word, _, value = said.readline().partition(" ")
        if word == "pid":
            pid = int(value)
        elif word == "step":
            last = int(value)
    time.sleep(delay)
    kill(pid)
    while True:
        word, _, value = said.readline().partition(" ")
        if word == "dead":
            assert int(value) == -9
            return last
        last = int(value)


@pytest.mark.parametrize("slow", [0.0, 0.05], ids=["fast", "fast with pauses"])
def test_a_kill_loses_at_most_two_steps_of_the_series(
    tmp_path: Path, loops: subprocess.Popen[str], slow: float
) -> None:
    """From the first step on, however fast the loop runs."""
    dice = random.Random(20_261_130)
    for n, after in enumerate([1, 1, 1, 2, 2, 3, 5, 8, 13, *(dice.randrange(1, 60) for _ in range(6))]):
        last = life(loops, tmp_path / str(n), after, dice.uniform(0, 0.004), slow)
        ledger = only(tmp_path / str(n))
        for table in ("probes", "batches"):
            steps = set(ledger.series(table, ["step"])["step"].to_pylist())
            assert set(range(1, last - LOST + 1)) <= steps, f"{table}: of {last} steps"
            assert all(series.fault(f) is None for f in series.files(ledger.path, table))


def test_recording_steps_imports_no_pandas(tmp_path: Path) -> None:
    """It is installed here; hundreds of modules would be imported at the first row, into somebody's training."""
    script = (
        "import sys, torch, lineage\n"
        f"rec = lineage.attach(None, dir={str(tmp_path)!r}, quiet=True, report=False)\n"
        "with rec.step(1, torch.ones(2, 3)) as st:\n"
        "    st.loss(1.0)\n"
        "assert rec._writer._lines.drain(300)\n"
        "print([m for m in sys.modules if m.partition('.')[0] == 'pandas'][:3])\n"
    )
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"


def first_bad(ledger: Path) -> tuple[int, str]:
    """Exit code and words of `lineage first-bad`."""
    done = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "first-bad", str(ledger)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "140"},
    )
    return done.returncode, done.stdout


def test_first_bad_says_of_a_killed_run_without_values_that_it_is_not_known_whether_any_were_given(
    tmp_path: Path, loops: subprocess.Popen[str]
) -> None:
    """Losses were given, and the series is gone: it must not say that a line of code was missing."""
    life(loops, tmp_path, 3, 0.0, 0.0)
    ledger = only(tmp_path).path
    shutil.rmtree(ledger / "series")
    code, said = first_bad(ledger)
    assert code == 4
    assert "Segment 1 left no word of its end (it was killed, or still runs)" in said
    assert "If the loop has no `st.loss(loss)`" in said


def test_first_bad_says_of_an_ended_run_what_its_segments_say(tmp_path: Path) -> None:
    """No loss was given: the line to add. It was, and the files are gone: where to look."""
    with lineage.attach(None, dir=tmp_path / "none", quiet=True, report=False) as rec, rec.step(1):
        pass
    code, said = first_bad(only(tmp_path / "none").path)
    assert (code, "None was given, as each segment says at its end. Add `st.loss(loss)`" in said) == (4, True)
    with lineage.attach(None, dir=tmp_path / "lost", quiet=True, report=False) as rec, rec.step(1) as st:
        st.loss(1.0)
    ledger = only(tmp_path / "lost").path
    shutil.rmtree(ledger / "series")
    code, said = first_bad(ledger)
    assert (code, "Segment 1 says that values were recorded, so their files are gone" in said) == (4, True)


KILLED = """
import os, sys, time
from pathlib import Path
from tests.recorder.loop import Loop, attach

root = Path(sys.argv[1])
loop = Loop()
rec = attach(loop, root / "runs", run_id="killed")
loop.run(rec, 4)
rec.checkpoint(loop.save(root / "step-4"), step=4)
rec._writer.tasks.drain(60)  # so that no record of the worker's comes later
loop.run(rec, 12)
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""


def test_how_far_a_killed_segment_came_is_read_from_its_series(tmp_path: Path) -> None:
    """Its journal ends at the checkpoint; the eight steps after it were made, and a resume leaves them behind."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == -9
    loop = Loop().load(tmp_path / "step-4")
    with attach(loop, tmp_path / "runs", resumed_from=tmp_path / "step-4") as rec:
        loop.run(rec, 6)
    ledger = only(tmp_path / "runs")
    found = graph.build(ledger.records, reached=ledger.reached)
    first, second = found.segments
    assert max(r.step or 0 for r in ledger.records if r.segment == first) == 4
    assert 10 <= found.last_step[first] <= 12
    assert found.last_step[second] == 6
    assert found.abandoned() == {first: 4}
