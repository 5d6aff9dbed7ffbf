"""The training script of the secrets test: copied into a repository of its own, and run there as a user would.

Arguments: the tracker, the folder for all output, then a command line full of secrets. The user's own tracker
calls get no secret; the layer gets them in its config, and reads the rest by itself.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import wandb
from mlflow import MlflowClient

import lineage
from lineage.capture import code, environment
from tests.e2e import plants
from tests.recorder.loop import Loop
from tests.secret_samples import SAMPLES, as_file_name, planted

OUT = Path(sys.argv[2])
UID = "0197a3c4-0111-7000-8000-000000000111"


class Unreadable:
    """A config of the user's that raises when it is read, with a secret in its message."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_dict(self) -> dict[str, Any]:
        raise RuntimeError(self.text)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError(self.text)


def start(tracker: str) -> Any:
    """The user's own run."""
    if tracker == "wandb":
        settings = wandb.Settings(
            x_disable_stats=True,
            x_disable_meta=True,
            disable_git=True,
            console="off",
            x_save_requirements=False,
        )
        return wandb.init(project="p", mode="offline", dir=str(OUT), settings=settings)
    uri = f"sqlite:///{OUT}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    MlflowClient(uri).create_experiment("e", artifact_location=(OUT / "artifacts").as_uri())
    mlflow.set_experiment("e")
    return mlflow.start_run()


def everything_at_once(run: Any) -> None:
    """One segment with a report: all secrets in every place that can hold many."""
    loop = Loop()
    with lineage.attach(
        run, dir=OUT / "ledgers", run_id="all", config=plants.config(), **loop.objects
    ) as rec:
        loop.run(rec, 4)
        rec.checkpoint(loop.save(OUT / "ck"), step=4)


def few_by_few(run: Any, together: int) -> None:
    """One segment for every `together` secrets, in the places that hold one at a time."""
    names = list(SAMPLES)
    groups = [names[i : i + together] for i in range(0, len(names), together)]
    for i, group in enumerate([*groups, []]):
        text = "; ".join(planted(n) for n in group) or f"{plants.CANARY}exception"
        notebook = "/".join(as_file_name(n) or planted(n) for n in group) or f"{plants.CANARY}notebook"
        os.environ["JPY_SESSION_NAME"] = f"/home/me/{notebook}.ipynb"
        if group:
            first, *others = map(plants.in_url, group)
            query = "".join(f"?access_token={other}" for other in others)
            url = f"https://user:{first}@git.example.org/x.git{query}"
            subprocess.run(["git", "config", "remote.origin.url", url], check=True)
        options: dict[str, Any] = {"dir": OUT / "ledgers", "exit_timeout": 5.0, "quiet": i % 9 != 0}
        last = not group or i % 9 == 8
        rec = lineage.attach(run, run_id=f"each-{i // 9}", config=Unreadable(text), report=last, **options)
        with rec.step(1):
            pass
        rec.evaluation(UID, {"loss": text}, evaluator="e", evaluator_version="1")  # type: ignore[dict-item]
        rec.close(RuntimeError(f"step failed: {text}"))


def dead_servers() -> None:
    """Tracker addresses with secrets, on which every call fails."""
    found = code.capture()
    code.capture = lambda **_: found
    for i, name in enumerate([*SAMPLES, None]):
        secret = plants.in_url(name) if name else "x"
        host = "127.0.0.1:1" + ("" if name else f"/{plants.CANARY}tracker-uri")
        client = MlflowClient(f"http://user:{secret}@{host}")
        rec = lineage.attach(
            (client, "0" * 32),
            dir=OUT / "dead",
            run_id=f"dead-{i // 9}",
            exit_timeout=0.05,
            report=False,
            quiet=True,
        )
        with rec.step(1):
            pass
        rec.close()


def main() -> None:
    """All of it, with what the layer says in the log kept in a file."""
    handler = logging.FileHandler(OUT / "lineage.log")
    logging.getLogger("lineage").addHandler(handler)
    run = start(sys.argv[1])
    everything_at_once(run)
    # The environment stays as it was read: reading it a hundred times more would only take time.
    environment.capture = functools.cache(environment.capture)
    few_by_few(run, 2)
    if sys.argv[1] == "mlflow":
        dead_servers()
        mlflow.end_run()
    else:
        run.finish()


if __name__ == "__main__":
    main()
