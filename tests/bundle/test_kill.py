"""SIGKILL while evidence is written: acknowledged records are there, and no half bundle passes for a whole one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

pytest.importorskip("torch")

from lineage.bundle import reading, verifying
from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify
from tests.ledger.helpers import kill
from tests.recorder.loop import only

KILLS = int(os.environ.get("LINEAGE_BUNDLE_KILLS", "25"))
"""How many; 200 takes some minutes."""
LONGEST = 0.5
"""Seconds from the end of the bad step to the kill: some times what a bundle takes beside a loop that never pauses."""


@pytest.fixture(scope="module")
def loops() -> Iterator[subprocess.Popen[str]]:
    """The process that forks the loops, warm."""
    command = [sys.executable, "-m", "tests.bundle.dying_loop"]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(300) == 0


def life(loops: subprocess.Popen[str], root: Path, delay: float) -> set[str]:
    """Start a loop, kill it `delay` seconds after its bad step; the ids of the records that it acknowledged."""
    root.mkdir()
    sent, said = cast(IO[str], loops.stdin), cast(IO[str], loops.stdout)
    sent.write(f"{root}\n")
    sent.flush()
    acknowledged: set[str] = set()
    pid, bad = 0, False
    while not (pid and bad):
        word, _, value = said.readline().strip().partition(" ")
        if word == "pid":
            pid = int(value)
        elif word == "ack":
            acknowledged.add(value)
        bad = bad or word == "bad"
    time.sleep(delay)
    kill(pid)
    while True:
        word, _, value = said.readline().strip().partition(" ")
        if word == "dead":
            assert int(value) == -9
            return acknowledged
        if word == "ack":
            acknowledged.add(value)


@pytest.mark.slow
def test_after_kills_every_acknowledged_record_is_there_and_every_bundle_verifies_or_is_unfinished(
    tmp_path: Path, loops: subprocess.Popen[str]
) -> None:
    """A recorded bundle is whole; one without its name says that it was never finished, and is no damage."""
    dice = random.Random(20_261_130)
    seen: Counter[str] = Counter()
    for n in range(KILLS):
        root = tmp_path / str(n)
        acknowledged = life(loops, root, dice.uniform(0, LONGEST))
        folder = only(root / "runs").path
        ledger = open_ledger(folder)
        assert acknowledged <= {r.id for r in ledger.records}
        assert verify(folder).whole
        for record in ledger.of("bundle"):
            checked = verifying.verify(folder / record.payload.location)
            assert checked.whole
            assert reading.Bundle(checked.path).root == record.payload.root
            assert reading.Bundle(checked.path).state() is not None
            seen["recorded"] += 1
        named = verifying.folders(folder)
        assert all(verifying.verify(p).whole for p in named)
        assert len(named) <= 1
        seen["named, not recorded"] += len(named) - len(ledger.of("bundle"))
        for path in (folder / "captured").glob("*/.rank*"):
            unfinished = verifying.verify(path)
            assert unfinished.partial
            seen["unfinished"] += 1
    print(dict(seen))
    assert seen["recorded"]
    assert seen["unfinished"], "no kill fell inside a bundle: the kills prove too little"
