"""A process that forks training loops on request, each of which steps as fast as it can until it is killed.

Imports are done once, so that a new loop costs a fork. On stdin, one line per loop: `<ledger root> <seconds>`,
the second being how long each eighth step takes. On stdout, each line one unbuffered write: `pid <pid>`,
`step <n>` when a step's block has been left, and `dead <status>`.
"""

from __future__ import annotations

import gc
import os
import sys
import time

import torch
import torch._dynamo  # which the first optimizer of a process imports

import lineage
import lineage.recorder.attach
import lineage.recorder.boundary
from tests.ledger.dying_writer import say
from tests.ledger.helpers import reap


def train_until_killed(root: str, slow: float) -> None:
    """Real steps of a tiny model; every eighth waits, as one with a save in it would."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rec = lineage.attach(None, model=model, optimizer=optimizer, dir=root, quiet=True, report=False)
    for step in range(1, 1_000_000):
        if step % 8 == 0:
            time.sleep(slow)
        batch = torch.randn(4, 3)
        with rec.step(step, batch) as st:
            loss = model(batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            st.loss(loss)
        say(f"step {step}")


def main() -> None:
    """Serve until stdin ends."""
    torch.set_num_threads(1)
    gc.freeze()  # a collection in a fork would copy all of this
    for line in sys.stdin:
        root, slow = line.split()
        pid = os.fork()
        if pid == 0:
            train_until_killed(root, float(slow))
            os._exit(1)
        say(f"pid {pid}")
        say(f"dead {reap(pid)}")


if __name__ == "__main__":
    main()
