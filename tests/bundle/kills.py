"""`python -m tests.bundle.kills`: SIGKILL at random points of the time in which a bundle is written, and what is left.

Real processes train, meet a bad step and are killed between its end and some time after the bundle's record. What
must hold, whatever the moment: every acknowledged record is there, the ledger verifies, a bundle with its name
verifies and has its state, one without says that it is partial. A kill that leaves anything else ends this with a
message that says which.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from lineage.bundle import MANIFEST, reading, verifying
from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify
from tests.ledger.helpers import kill
from tests.recorder.loop import only

BEYOND = 1.25
"""Of the time that a bundle takes: kills are spread over so much of it, so that some come after its record."""
EARLY = 4
"""Each fourth life is one whose environment is still being read at the bad step: its bundle must wait for that."""
MEASURED = 5
"""Lives that are watched to the bundle's record, to learn how long it takes."""


class Left(Exception):
    """What a kill left is not what must hold; the text says what."""


@dataclass
class Life:
    """What one loop acknowledged, and when its bundle was on record, in seconds after the bad step."""

    acknowledged: set[str] = field(default_factory=set)
    recorded_after: float | None = None


@contextmanager
def loops() -> Iterator[subprocess.Popen[str]]:
    """The process that forks the loops, warm."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bundle.dying_loop"],
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
        if process.wait(300) != 0:
            raise Left(f"the process of the loops ended with {process.returncode}")


def live(process: subprocess.Popen[str], root: Path, delay: float | None, *, early: bool = False) -> Life:
    """Start a loop and kill it `delay` seconds after its bad step, or when its bundle is on record (None)."""
    root.mkdir()
    sent, said = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
    sent.write(f"{'early' if early else 'late'} {root}\n")
    sent.flush()
    life, pid, bad = Life(), 0, 0.0
    while not (pid and bad and (delay is not None or life.recorded_after is not None)):
        word, _, value = said.readline().strip().partition(" ")
        if word == "pid":
            pid = int(value)
        elif word == "bad":
            bad = time.monotonic()
        elif word == "ack":
            _acknowledged(life, value, bad)
        elif word in ("dead", ""):
            raise Left(f"a loop ended by itself ({value})")
    if delay is not None:
        time.sleep(max(0.0, bad + delay - time.monotonic()))
    kill(pid)
    while True:
        word, _, value = said.readline().strip().partition(" ")
        if word == "ack":
            _acknowledged(life, value, bad)
        elif word == "dead":
            if int(value) != -9:
                raise Left(f"a loop ended with {value}, not by the kill")
            return life


def _acknowledged(life: Life, value: str, bad: float) -> None:
    record, _, kind = value.partition(" ")
    life.acknowledged.add(record)
    if kind == "bundle":
        life.recorded_after = time.monotonic() - bad


def judge(root: Path, life: Life) -> str:
    """How far the bundle had come. Raises `Left` where anything is not as it must be."""
    folder = only(root / "runs").path
    ledger = open_ledger(folder)
    lost = life.acknowledged - {r.id for r in ledger.records}
    if lost:
        raise Left(f"{len(lost)} acknowledged records are not in {folder}")
    if not verify(folder).whole:
        raise Left(f"`lineage verify {folder}` finds damage")
    named, recorded = verifying.folders(folder), ledger.of("bundle")
    for path in {*named, *(folder / r.payload.location for r in recorded)}:
        checked = verifying.verify(path)
        if not checked.whole:
            raise Left(f"{path} has its name and is not whole: {checked.wrong}")
        if reading.Bundle(path).state() is None:
            raise Left(f"{path} has no state, and the gate held the update back")
    if any(reading.Bundle(folder / r.payload.location).root != r.payload.root for r in recorded):
        raise Left(f"a bundle in {folder} has another root than its record")
    hidden = list((folder / "captured").glob("*/.rank*"))
    for path in hidden:
        checked = verifying.verify(path)
        if not checked.partial:
            raise Left(f"{path} was never finished and does not say so")
    return _stage(named, len(recorded), hidden)


def _stage(named: list[Path], recorded: int, hidden: list[Path]) -> str:
    if len(named) + len(hidden) > 1 or recorded > len(named):
        raise Left(
            f"one bad step has {len(named)} bundles, {len(hidden)} unfinished ones, {recorded} records"
        )
    if named:
        return "on record" if recorded else "has its name, not on record"
    if not hidden:
        return "not begun"
    files = [p for p in hidden[0].rglob("*") if p.is_file()]
    if not files:
        return "unfinished, no file yet"
    if (hidden[0] / MANIFEST).is_file():
        return "unfinished, with its manifest"
    batch = any(p.name.startswith("step3-micro0") for p in files)
    return f"unfinished, {'with' if batch else 'before'} the bad step's batch"


def run(kills: int, seed: int, into: Path) -> tuple[Counter[str], int, float]:
    """(stage -> how often, acknowledged records, median seconds that a bundle takes). Raises `Left`."""
    dice, seen, records = random.Random(seed), Counter[str](), 0
    with loops() as process:
        took: dict[bool, list[float]] = {}
        for early in (False, True):
            for n in range(MEASURED):
                root = into / f"measured-{early}-{n}"
                life = live(process, root, None, early=early)
                judge(root, life)
                took.setdefault(early, []).append(life.recorded_after or 0.0)
        for n in range(kills):
            root, early = into / str(n), n % EARLY == EARLY - 1
            life = live(process, root, dice.uniform(0, BEYOND * max(took[early])), early=early)
            seen[judge(root, life)] += 1
            records += len(life.acknowledged)
    return seen, records, statistics.median(took[False])


def main() -> None:
    """Kill as often as asked, and print how far the bundles had come."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bundle.kills", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20_261_130)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lineage-kills-") as into:
        try:
            seen, records, took = run(asked.kills, asked.seed, Path(into))
        except Left as e:
            raise SystemExit(f"FAILED: {e}") from None
    print(f"{sum(seen.values())} kills; a bundle takes {1000 * took:.0f} ms beside a loop that never pauses")
    for stage, count in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"{count:5}  {stage}")
    print(
        f"{records:,} acknowledged records: all there. Every bundle with its name verifies; every other says partial."
    )


if __name__ == "__main__":
    main()
