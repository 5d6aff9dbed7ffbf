"""Rank 1 of two, as a process of its own: it logs beside rank 0, and its loss breaks at step 3.

Arguments: the folder of the ledgers, the tracker, then what finds the run there. Prints what it left in the tracker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.recorder.loop import Loop, attach


def mlflow_run(uri: str, run_id: str) -> Any:
    """The run of rank 0, as a script does that gives the same to every rank."""
    from mlflow import MlflowClient

    return MlflowClient(uri), run_id


def wandb_run(run_id: str, mode: str) -> Any:
    """A second writer to the run of rank 0 in shared mode, or a run of its own."""
    import wandb

    extra = (
        {"x_label": "rank1", "x_primary": False, "x_update_finish_state": False} if mode == "shared" else {}
    )
    settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off", **extra)
    return wandb.init(project="p", id=run_id, mode=mode, settings=settings)


def main() -> None:
    """Train four steps."""
    root, tracker, *where = sys.argv[1:]
    run, loop = (mlflow_run if tracker == "mlflow" else wandb_run)(*where), Loop()
    with attach(loop, Path(root), run=run, exit_timeout=60.0) as rec:
        loop.run(rec, 4, spoil=3)
    if tracker == "wandb":
        print([k for k in dict(run.config) if k.startswith("lineage/")], list(run.tags or ()))
        run.finish()


if __name__ == "__main__":
    main()
