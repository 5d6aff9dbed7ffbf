"""SIGKILL at random points: what was acknowledged is there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

from lineage.ledger import scan
from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify

from .helpers import journal, kill

KILLS = 200
LONGEST = 0.006
"""Seconds from an acknowledgement to the kill: the time of one record or two."""


@pytest.fixture(scope="module")
def writers() -> Iterator[subprocess.Popen[str]]:
    """The process that forks the writers, warm."""
    command = [sys.executable, "-m", "tests.ledger.dying_writer"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(120) == 0


def life(writers: subprocess.Popen[str], ledger: Path, seed: int, after: int, delay: float) -> list[str]:
    """Start a writer, kill it `delay` seconds after so many records, return the ids it acknowledged.

    After 0 records means from the moment before the file is opened.
    """
    sent, said = cast(IO[str], writers.stdin), cast(IO[str], writers.stdout)
    sent.write(f"{ledger} {seed}\n")
    sent.flush()
    acknowledged: list[str] = []
    pid, begun = 0, False
    while not (pid and begun and len(acknowledged) >= after):
        word, _, value = said.readline().partition(" ")
        if word == "pid":
            pid = int(value)
        elif word == "ack":
            acknowledged.append(value.strip())
        begun = begun or word.strip() == "begin"
    time.sleep(delay)
    kill(pid)
    while True:
        word, _, value = said.readline().partition(" ")
        if word == "dead":
            assert int(value) == -9
            return acknowledged
        acknowledged.append(value.strip())


@pytest.mark.slow
def test_after_200_kills_every_acknowledged_record_is_in_the_ledger(
    tmp_path: Path, writers: subprocess.Popen[str]
) -> None:
    """No kill is damage: at most a torn last line is left, set aside by every later header."""
    dice = random.Random(20_261_129)
    acknowledged: list[str] = []
    for n in range(KILLS):
        acknowledged += life(writers, tmp_path, n, dice.randrange(7), dice.uniform(0, LONGEST))
    _, torn = scan.heads(tmp_path)
    acknowledged += life(writers, tmp_path, KILLS, 3, 0)
    ledger = open_ledger(tmp_path)
    assert set(acknowledged) <= {r.id for r in ledger.records}
    assert ledger.of("journal_header")[-1].payload.set_aside == torn
    found = verify(tmp_path)
    assert {d.code for d in found.damage} <= {"LIN-J001"}
    assert {d.file for d in found.damage} >= set(torn)
    assert found.whole
    assert torn, "no kill fell inside a line: the kills prove too little"


def test_a_line_cut_at_any_byte_is_set_aside_and_the_next_life_goes_on(
    tmp_path: Path, writers: subprocess.Popen[str]
) -> None:
    j = journal(tmp_path)
    j.close()
    whole = j.path.read_bytes()
    for cut in range(1, len(whole)):
        j.path.write_bytes(whole[:cut])
        assert [d.code for d in verify(tmp_path).damage] == ["LIN-J001"]
    j.path.write_bytes(whole[:-1])
    acknowledged = life(writers, tmp_path, 1, 3, 0)
    ledger = open_ledger(tmp_path)
    assert set(acknowledged) <= {r.id for r in ledger.records}
    assert ledger.of("journal_header")[0].payload.set_aside == [j.file]
    assert verify(tmp_path).whole
