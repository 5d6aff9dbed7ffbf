"""A training script whose wandb-core is killed in the middle, as by the kernel when memory runs out.

Arguments: the folder of the ledgers, the run's id. Prints how many updates were made, and the recorder's last words.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import wandb

from tests.recorder.loop import Loop, attach
from tests.trackers.wandb.test_outage import IMPATIENT, core_pids


def main() -> None:
    """Train six updates, three of them after the death."""
    root, run_id = Path(sys.argv[1]), sys.argv[2]
    settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off", **IMPATIENT)
    run = wandb.init(
        project="p", id=run_id, mode="online", settings=settings, config={"lr": 0.1, "clip": 1.0}
    )
    loop = Loop()
    rec = attach(loop, root, run=run, exit_timeout=2.0)
    loop.run(rec, 3)
    run.log({"loss": 1.0})
    time.sleep(1.0)
    (pid,) = core_pids()
    os.kill(pid, signal.SIGKILL)
    loop.run(rec, 6)
    rec.checkpoint(loop.save(root / "ck"), step=6)
    print(loop.done, flush=True)


if __name__ == "__main__":
    main()
