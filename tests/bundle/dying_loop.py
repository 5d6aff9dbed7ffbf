"""A process that forks training loops on request, each of which meets a bad step and is killed around it.

On stdin, one line per loop: `late <ledger root>`, or `early <ledger root>` for one that does not wait until its
environment is on record. On stdout, each line one unbuffered write: `pid <pid>`, `ack <record id> <kind>` when a call
that wrote a record has returned, `bad` when the bad step's block has been left, `dead <status>`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import torch
import torch._dynamo  # which the first optimizer of a process imports

import lineage
import lineage.bundle.writing
import lineage.recorder.attach
import lineage.recorder.boundary
from lineage.recorder.writer import Writer
from tests.ledger.dying_writer import say
from tests.ledger.helpers import reap

BAD = 3
LONGEST = 120
"""Seconds that a loop lives at most."""


def acknowledged() -> None:
    """Say each record's id when the call that wrote it has returned."""
    write = Writer.write

    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        record = write(self, *args, **kwargs)
        say(f"ack {record.id} {record.payload.kind}")
        return record

    Writer.write = told  # type: ignore[method-assign]


def train_until_killed(root: str, *, early: bool) -> None:
    """Real steps of a small model; the third loss is NaN, and the gate holds its update back."""
    signal.alarm(LONGEST)  # a loop that nobody kills must not hold its watcher up
    os.chdir(root)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    rec = lineage.attach(
        None, model=model, optimizer=optimizer, dir=f"{root}/runs", quiet=True, report=False, gate=True
    )
    for step in range(1, 1_000_000):
        batch = torch.randn(16, 64)
        with rec.step(step, batch) as st:
            loss = model(batch).pow(2).mean() * (float("nan") if step == BAD else 1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            st.loss(loss)
        if step == BAD:
            say("bad")
        if (
            step == BAD - 1 and not early
        ):  # a bundle of the first seconds waits for what is said of the environment
            rec.surroundings.wait_written(60.0)


def main() -> None:
    """Serve until stdin ends."""
    torch.set_num_threads(1)
    acknowledged()
    gc.freeze()  # a collection in a fork would copy all of this
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            when, _, root = line.strip().partition(" ")
            train_until_killed(root, early=when == "early")
            os._exit(1)
        say(f"pid {pid}")
        say(f"dead {reap(pid)}")


if __name__ == "__main__":
    main()
