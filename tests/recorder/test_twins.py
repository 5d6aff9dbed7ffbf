"""Two processes that train as one rank of one run at one time: said while they run, and by verify afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lineage.ledger.verify import verify

from .loop import Loop, attach, only

OTHER = """
import sys
from tests.recorder.loop import Loop, attach

loop = Loop()
with attach(loop, sys.argv[1], run_id="one") as rec:
    loop.run(rec, 3)
    print("up", flush=True)
    sys.stdin.readline()
    loop.run(rec, 5)
"""


@pytest.mark.parametrize("alive", [True, False])
def test_an_older_process_of_the_same_run_that_still_lives_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alive: bool
) -> None:
    """A restart that did not wait. One that was killed, or has ended, is no twin."""
    command = [sys.executable, "-c", OTHER, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        if not alive:
            other.kill()
            other.wait()
        loop = Loop()
        with attach(loop, tmp_path, run_id="one") as rec:
            loop.run(rec, 3)
        if alive:
            other.communicate("\n")
    said = [r.payload for r in only(tmp_path).of("degraded") if r.payload.code == "LIN-J011"]
    assert bool(said) is alive
    assert ("LIN-J011" in caplog.text) is alive
    damage = {d.code for d in verify(tmp_path / "one").damage} - {"LIN-J001"}
    assert damage == ({"LIN-J011"} if alive else set())
