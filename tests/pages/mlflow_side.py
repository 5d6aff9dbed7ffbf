"""A script's own MLflow calls, and the addresses of the pages that come of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """The tracking URI is one for the process; it is as before when this ends."""
    was = os.environ.get("MLFLOW_TRACKING_URI")
    yield
    mlflow.set_tracking_uri("")
    if was is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)


class MlflowSide:
    """Runs in one experiment on a server."""

    def __init__(self, uri: str, experiment: str = "pretraining") -> None:
        self.uri = uri
        mlflow.set_tracking_uri(uri)
        self.client = MlflowClient(uri)
        self.experiment = self.client.create_experiment(experiment)
        self.runs: dict[str, str] = {}

    def begin(self, name: str, config: Mapping[str, Any], notes: str) -> Any:
        """Start or resume a run; the params are those of its first segment, as MLflow has it."""
        if name in self.runs:
            return mlflow.start_run(run_id=self.runs[name])
        run = mlflow.start_run(None, self.experiment, run_name=name, description=notes)
        mlflow.log_params(dict(config))
        self.runs[name] = run.info.run_id
        return run

    def log(self, losses: Mapping[int, float]) -> None:
        """Log the losses in one request."""
        active = mlflow.active_run()
        assert active is not None
        at = int(active.info.start_time)
        self.client.log_batch(
            active.info.run_id, [Metric("loss", v, at + step, step) for step, v in losses.items()]
        )

    def end(self) -> None:
        """End the run as a script does."""
        mlflow.end_run()

    def page(self, name: str, tab: str = "") -> str:
        """The address of a run's page."""
        return f"{self.uri}/#/experiments/{self.experiment}/runs/{self.runs[name]}{tab}"

    def table(self, query: str = "") -> str:
        """The address of the run list, searched."""
        asked = f"?searchFilter={quote(query)}" if query else ""
        return f"{self.uri}/#/experiments/{self.experiment}/runs{asked}"

    def comparison(self, *names: str) -> str:
        """The address of the comparison of some runs."""
        runs = quote(json.dumps([self.runs[n] for n in names]))
        experiments = quote(json.dumps([self.experiment]))
        return f"{self.uri}/#/compare-runs?runs={runs}&experiments={experiments}"
