"""The contract on MLflow in a SQLite store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

pytest.importorskip("mlflow")

from mlflow import MlflowClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

import lineage
from lineage.ledger.reader import Ledger
from trackers.contract import Seen, TrackerContract
from trackers.mlflow_.adapter import MlflowTracker
from trackers.mlflow_.held import MlflowHeld

pytestmark = pytest.mark.slow

PREFIX = "lineage/"


class TestMlflow(TrackerContract):
    kind = "mlflow"

    @pytest.fixture(autouse=True)
    def _databases(self, mlflow_database: Callable[[Path], str]) -> Iterator[None]:
        self.new = mlflow_database
        self.runs: dict[Path, tuple[str, str]] = {}
        event.listen(Engine, "before_cursor_execute", _impatient, retval=True)
        yield
        event.remove(Engine, "before_cursor_execute", _impatient)

    def open(self, place: Path) -> MlflowTracker:
        uri, run = self._run(place)
        return MlflowTracker((MlflowClient(uri), run))

    def _run(self, place: Path) -> tuple[str, str]:
        if place not in self.runs:
            place.mkdir(parents=True)
            uri = self.new(place)
            client = MlflowClient(uri)
            experiment = client.create_experiment("e", artifact_location=(place / "artifacts").as_uri())
            self.runs[place] = (uri, client.create_run(experiment).info.run_id)
        return self.runs[place]

    def seen(self, place: Path) -> Seen:
        uri, run_id = self._run(place)
        client = MlflowClient(uri)
        run = client.get_run(run_id)
        tags = {k: v for k, v in run.data.tags.items() if not k.startswith("mlflow.") or "note" in k}
        points = {
            k: [(m.step, m.value, m.timestamp) for m in client.get_metric_history(run_id, k)]
            for k in run.data.metrics
        }
        home = Path(url2pathname(urlsplit(run.info.artifact_uri).path)) / "lineage"
        files = {p.relative_to(home).as_posix(): p.read_bytes() for p in home.rglob("*") if p.is_file()}
        # A LoggedModel's id is MLflow's own; what it stands for is in its tags and params.
        models = _models(client, run.info.experiment_id)
        ids = {m["id"]: m["uid"] for m in models}
        out = getattr(run, "outputs", None)
        outputs = [(ids[o.model_id], o.step) for o in out.model_outputs] if out else []
        lines = [*sorted(f"{k} = {v}" for k, v in tags.items()), points, models, sorted(outputs)]
        whole = "\n".join(map(str, lines))
        for model, uid in ids.items():
            whole = whole.replace(model, f"model of {uid}")
        numbered = sorted(k for k in tags if k.startswith(f"{PREFIX}regime/"))
        return Seen(whole, [json.loads(tags[k])["record"] for k in numbered], files)

    @contextmanager
    def dead(self, place: Path) -> Iterator[None]:
        """Another process holds the database, as one does that hangs within a transaction."""
        uri, _ = self._run(place)
        lock = sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        yield
        lock.execute("ROLLBACK")
        lock.close()

    def held(self, place: Path) -> MlflowHeld:
        return MlflowHeld(*self._run(place))


def _impatient(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> Any:
    """MLflow has SQLite wait 20 s for a lock: a test of a lock that stays waits a fifth of a second."""
    return statement.replace("busy_timeout = 20000", "busy_timeout = 200"), parameters


def _models(client: Any, experiment: str) -> list[dict[str, Any]]:
    """The LoggedModels of an experiment; MLflow has them since 3.0."""
    if not hasattr(client, "search_logged_models"):
        return []
    found = client.search_logged_models([experiment])
    said = [
        {
            "uid": m.tags.get("lineage/uid", m.model_id),
            "id": m.model_id,
            "name": m.name,
            "status": str(m.status),
            "tags": {k: v for k, v in m.tags.items() if k.startswith(PREFIX)},
            "params": dict(m.params),
        }
        for m in found
    ]
    return sorted(said, key=lambda m: str(m["uid"]))


def test_a_loop_with_the_layer_on_ends_and_its_page_has_the_verdict_and_a_loss(
    tmp_path: Path, mlflow_database: Callable[[Path], str]
) -> None:
    client = MlflowClient(mlflow_database(tmp_path))
    experiment = client.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())
    run_id = client.create_run(experiment).info.run_id
    rec = lineage.attach(
        (client, run_id), config={"lr": 0.1}, dir=tmp_path / "ledgers", exit_timeout=120, quiet=True
    )
    for step in (1, 2):
        with rec.step(step) as st:
            st.loss(1.0)
        client.log_metric(run_id, "loss", 1.0, step=step)
    rec.close()
    run = client.get_run(run_id)
    assert run.data.metrics["loss"] == 1.0
    assert "lineage/verdict" in run.data.tags
    ledger = Ledger(next((tmp_path / "ledgers").iterdir()))
    assert not ledger.of("degraded"), ledger.of("degraded")
    assert [r.payload.tracker for r in ledger.of("anchor")] == ["mlflow"]
