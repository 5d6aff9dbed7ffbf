"""The real MLflow on SQLite: fluent and client calls, nested runs, threads, refused params."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from lineage.ledger import reader

from .conftest import Observed


@pytest.fixture
def store(tmp_path: Path, mlflow_database: Callable[[Path], str]) -> Iterator[str]:
    """A store of the test's own; no run and no experiment of an earlier test is active."""
    uri = mlflow_database(tmp_path)
    mlflow.tracking.fluent._active_experiment_id = None
    mlflow.set_tracking_uri(uri)
    yield uri
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri("")


def metrics(ledger: reader.Ledger) -> dict[str, dict[int, float]]:
    """Key -> step -> value."""
    out: dict[str, dict[int, float]] = {}
    for r in ledger.series("metrics").to_pylist():
        out.setdefault(r["key"], {})[r["step"]] = r["value"]
    return out


def asked(ledger: reader.Ledger) -> dict[str, object]:
    """The newest config."""
    found = ledger.last("config")
    return {k: v.plain() for k, v in found.payload.values.items()} if found else {}


def test_fluent_calls_are_recorded_and_the_store_has_the_same(store: str, observed: Observed) -> None:
    with mlflow.start_run(run_name="first") as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_params({"clip": 1.0, "name": "toy"})
        mlflow.log_metric("loss", 1.0, step=1)
        mlflow.log_metrics({"loss": 0.5, "acc": 0.25}, step=2)
        mlflow.set_tag("stage", "dev")
    ledger = observed.only()
    assert metrics(ledger) == {"loss": {1: 1.0, 2: 0.5}, "acc": {2: 0.25}}
    assert asked(ledger) == {"lr": "0.1", "clip": "1.0", "name": "toy"}
    known = ledger.of("run")[0].payload
    assert (known.name, known.aliases[0].id, known.aliases[0].project) == ("first", run.info.run_id, "0")
    (note,) = [r.payload for r in ledger.of("tracker_note")]
    assert note.values["stage"].plain() == "dev"
    assert ledger.of("segment_end")[0].payload.reason == "finished"
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.params == {"lr": "0.1", "clip": "1.0", "name": "toy"}
    assert not [t for t in kept.tags if "lineage" in t]


def test_client_calls_of_a_run_that_nobody_made_active_are_recorded(store: str, observed: Observed) -> None:
    """As Lightning does: the client alone, in one batch."""
    client = MlflowClient(store)
    run = client.create_run("0", run_name="client")
    client.log_batch(
        run.info.run_id,
        metrics=[Metric("loss", 1.0, 0, 3), Metric("lr", 0.1, 0, 3)],
        params=[Param("depth", "2")],
    )
    client.log_metric(run.info.run_id, "loss", 0.5, step=4)
    client.set_terminated(run.info.run_id, "FAILED")
    ledger = observed.only()
    assert metrics(ledger) == {"loss": {3: 1.0, 4: 0.5}, "lr": {3: 0.1}}
    assert asked(ledger) == {"depth": "2"}
    assert ledger.of("segment_end")[0].payload.reason == "exception"


def test_a_batch_sent_in_the_background_is_recorded_when_it_is_called(store: str, observed: Observed) -> None:
    client = MlflowClient(store)
    run = client.create_run("0")
    client.log_batch(run.info.run_id, metrics=[Metric("loss", 1.0, 0, 1)], synchronous=False).wait()  # type: ignore[union-attr]
    client.set_terminated(run.info.run_id)
    assert metrics(observed.only()) == {"loss": {1: 1.0}}


def test_nested_runs_are_runs_of_their_own(store: str, observed: Observed) -> None:
    with mlflow.start_run(run_name="sweep"):
        mlflow.log_param("trials", 2)
        for trial in range(2):
            with mlflow.start_run(run_name=f"trial {trial}", nested=True):
                mlflow.log_metric("loss", float(trial), step=1)
        mlflow.log_metric("best", 0.0, step=1)
    found = {ledger.of("run")[0].payload.name: metrics(ledger) for ledger in observed.end()}
    assert found == {
        "sweep": {"best": {1: 0.0}},
        "trial 0": {"loss": {1: 0.0}},
        "trial 1": {"loss": {1: 1.0}},
    }


def test_threads_that_log_to_one_run_lose_nothing(store: str, observed: Observed) -> None:
    client = MlflowClient(store)
    run_id = client.create_run("0").info.run_id

    def work(n: int) -> None:
        for step in range(20):
            client.log_metric(run_id, f"m{n}", float(step), step=step)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    client.set_terminated(run_id)
    found = metrics(observed.only())
    assert {k: len(v) for k, v in found.items()} == {f"m{n}": 20 for n in range(4)}


def test_a_param_that_mlflow_refuses_raises_as_it_did_and_stands_as_what_was_asked_for(
    store: str, observed: Observed
) -> None:
    """Two segments of one run, the second with another learning rate: MLflow shows the first for good."""
    with mlflow.start_run() as run:
        mlflow.log_params({"lr": 0.1, "clip": 1.0})
        mlflow.log_metric("loss", 1.0, step=1)
    with mlflow.start_run(run_id=run.info.run_id):
        with pytest.raises(MlflowException, match="Changing param values is not allowed"):
            mlflow.log_params({"lr": 0.01, "clip": 1.0})
        mlflow.log_metric("loss", 0.9, step=2)
    ledger = observed.only()
    one, two = ledger.segments
    assert (one.info.start, two.info.start) == ("fresh", "resume")
    (drift,) = [r.payload for r in ledger.of("drift", two.uid)]
    assert [(c.concept, c.requested_before.plain(), c.requested_after.plain()) for c in drift.changes] == [
        ("learning_rate", "0.1", "0.01")
    ]
    (note,) = [r.payload for r in ledger.of("tracker_note", two.uid)]
    assert note.code == "LIN-D008"
    assert note.values["lr"].plain() == "0.01"
    assert mlflow.get_run(run.info.run_id).data.params["lr"] == "0.1"


def test_where_no_ledger_knows_a_resumed_run_its_own_params_are_the_old_side(
    store: str, observed: Observed
) -> None:
    """The first segment was made without the observer: `start_run` brings what it logged."""
    import lineage.observe

    lineage.observe.uninstall()
    with mlflow.start_run() as run:
        mlflow.log_params({"lr": 0.1, "clip": 1.0})
    lineage.observe.install(lineage.observe.Options(dir=str(observed.root), quiet=True, capture=False))
    with mlflow.start_run(run_id=run.info.run_id):
        with pytest.raises(MlflowException):
            mlflow.log_params({"lr": 0.01, "clip": 1.0})
        mlflow.log_metric("loss", 0.9, step=2)
    ledger = observed.only()
    (drift,) = [r.payload for r in ledger.of("drift")]
    assert [(c.concept, c.requested_before.plain(), c.requested_after.plain()) for c in drift.changes] == [
        ("learning_rate", "0.1", "0.01")
    ]


def test_wandb_and_mlflow_of_one_training_are_one_run_with_two_aliases(
    store: str, home: Path, observed: Observed
) -> None:
    from .test_wandb import start

    with mlflow.start_run():
        run = start(config={"lr": 0.1})
        mlflow.log_metric("loss", 1.0, step=1)
        run.log({"loss": 1.0}, step=1)
        run.finish()
    ledger = observed.only()
    aliases = {a.tracker for r in ledger.of("run") for a in r.payload.aliases}
    assert aliases == {"wandb", "mlflow"}
    assert len(ledger.segments) == 1
    assert {r["tracker"] for r in ledger.series("metrics").to_pylist()} == {"wandb", "mlflow"}


def test_autologging_goes_on_as_before_and_its_values_are_recorded(store: str, observed: Observed) -> None:
    """Autologging of an estimator that is at hand, through MLflow's own queueing client."""
    from mlflow.utils.autologging_utils.client import MlflowAutologgingQueueingClient

    mlflow.autolog(silent=True)
    try:
        with mlflow.start_run() as run:
            queue = MlflowAutologgingQueueingClient()
            queue.log_params(run.info.run_id, {"depth": 3})
            queue.log_metrics(run.info.run_id, {"score": 0.75}, step=1)
            queue.flush(synchronous=True)
    finally:
        mlflow.autolog(disable=True, silent=True)
    ledger = observed.only()
    assert metrics(ledger) == {"score": {1: 0.75}}
    assert asked(ledger) == {"depth": "3"}
    assert mlflow.get_run(run.info.run_id).data.metrics == {"score": 0.75}
