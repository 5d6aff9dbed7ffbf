"""Runs that trained with the layer and without it, whose original disk is then away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported

import mlflow
import pytest

from lineage.ledger.reader import Ledger
from tests.e2e.training import CHANGED, FIRST, attach, finished, resumed, settle, start_wandb, train
from tests.recorder.loop import Loop, only
from tests.wandb_home import own_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the real W&B client of this test writes."""
    with own_home(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No ledger, active run or tracking URI of another test."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "here"))
    was = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.tracking.fluent._active_experiment_id = None
    yield
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri("")
    if was is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)


@dataclass
class Trained:
    """A run whose ledger was taken away; `away` is where an honest test may look at it."""

    uri: str
    sources: list[str]
    away: Path

    @property
    def source(self) -> str:
        return self.sources[0]

    @property
    def original(self) -> Ledger:
        return only(self.away)

    @property
    def run_id(self) -> str:
        return self.source.rpartition("/")[2]


def train_mlflow(folder: Path, uri: str, segments: int = 1) -> Trained:
    """Train with MLflow, each segment in an MLflow run of its own; then the disk is away."""
    mlflow.set_tracking_uri(uri)
    location = None if uri.startswith("http") else (folder / "artifacts").as_uri()
    experiment = mlflow.MlflowClient(uri).create_experiment(folder.name, artifact_location=location)
    root, sources = folder / "runs", []
    for n in range(segments):
        config = CHANGED if n else FIRST
        loop = resumed(folder / "ck0") if n else Loop()
        more = {"resumed_from": folder / "ck0"} if n else {}
        with mlflow.start_run(experiment_id=experiment) as run:
            mlflow.log_params(config)
            with attach(loop, root, run=run, config=config, **more) as rec:
                train(
                    loop,
                    rec,
                    4 * (n + 1),
                    lambda step, loss: mlflow.log_metric("loss", loss, step=step),
                    slow=False,
                )
                rec.checkpoint(loop.save(folder / f"ck{n}"), step=4 * (n + 1))
                settle(rec)
        sources.append(f"mlflow://{uri}/{run.info.run_id}")
    return Trained(uri, sources, Path(shutil.move(root, folder / "away")))


@pytest.fixture
def trained(tmp_path: Path, mlflow_database: Callable[[Path], str]) -> Trained:
    """One segment, in a SQLite store without a server."""
    return train_mlflow(tmp_path, mlflow_database(tmp_path))


@pytest.fixture
def offline(home: Path) -> Trained:
    """Two offline segments of one W&B run, the second with another learning rate and clip."""
    root, ck = home / "runs", home / "ck"
    first, loop = start_wandb(id="r1", config=FIRST), Loop()
    with attach(loop, root, run=first, config=FIRST) as rec:
        train(loop, rec, 4, lambda step, loss: first.log({"loss": loss}, step=step), slow=False)
        rec.checkpoint(loop.save(ck), step=4)
        settle(rec)
    finished(first)
    second, loop = start_wandb(id="r1", config=CHANGED), resumed(ck)
    with attach(loop, root, run=second, config=CHANGED, resumed_from=ck) as rec:
        train(loop, rec, 8, lambda step, loss: second.log({"loss": loss}, step=step), slow=False)
        settle(rec)
    finished(second)
    return Trained(
        "", [str(r.settings.sync_dir) for r in (first, second)], Path(shutil.move(root, home / "away"))
    )
