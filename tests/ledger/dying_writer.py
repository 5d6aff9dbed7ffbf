"""A process that forks writers on request, each of which appends until it is killed.

Imports are done once, so that a new writer costs a fork. On stdin, one line per writer: `<ledger> <seed>`.
On stdout, each line one unbuffered write: `pid <pid>`, `begin` just before the file is opened, `ack <record
id>` after each append has returned, and `dead <status>` when the writer is gone.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from uuid6 import uuid7

from lineage.ledger import scan, seal
from tests.ledger.helpers import journal, note, reap, segment


def say(text: str) -> None:
    """One line, at once."""
    os.write(1, text.encode() + b"\n")


def append_until_killed(ledger: Path, seed: int) -> None:
    """As rank 0 of a new segment: records of very different lengths, and seals.

    Every other writer's disk takes few bytes at a time, so that kills fall inside lines.
    """
    dice = random.Random(seed)
    if seed % 2:
        write = os.write
        os.write = lambda fd, data, /: write(fd, bytes(data)[:256])
    uid = str(uuid7())
    heads, torn = scan.heads(ledger)
    say("begin")
    j = journal(ledger, segment=uid, previous=heads, set_aside=torn)
    say(f"ack {j.append(segment(uid)).id}")
    for n in range(1_000_000):
        size = dice.choice([0, 0, 300, 5_000, 200_000])
        payload = note(n, size) if n % 7 else seal.seal(scan.heads(ledger)[0], "checkpoint")
        say(f"ack {j.append(payload).id}")


def main() -> None:
    """Serve until stdin ends."""
    for line in sys.stdin:
        ledger, seed = line.split()
        pid = os.fork()
        if pid == 0:
            append_until_killed(Path(ledger), int(seed))
            os._exit(1)
        say(f"pid {pid}")
        say(f"dead {reap(pid)}")


if __name__ == "__main__":
    main()
