from __future__ import annotations

import os
import threading
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from trackers import Page, Tracker, TrackerRefused, adapter, kind_of
from trackers.mlflow_ import MlflowTracker

from . import builders as b
from .conftest import Case
from .servers import Server


def test_the_active_run_is_captured_where_it_lives_and_the_worker_creates_no_run_of_its_own(
    server: Server,
) -> None:
    mlflow.set_tracking_uri(server.uri)
    experiment = mlflow.set_experiment(b.uid()).experiment_id
    try:
        with mlflow.start_run() as run:
            tracker = adapter(str(kind_of(run)), run)
            mlflow.set_tracking_uri("http://127.0.0.1:1")  # the user moves on to another store
            made = b.record(b.verdict(), segment=b.uid())
            worker = threading.Thread(target=tracker.show, args=(made, Page(run=b.RUN)))
            worker.start()
            worker.join()
            mlflow.set_tracking_uri(server.uri)
    finally:
        mlflow.set_tracking_uri(server.uri)
        mlflow.end_run()
    client = MlflowClient(server.uri)
    runs = client.search_runs([experiment])
    assert [r.info.run_id for r in runs] == [run.info.run_id]
    assert runs[0].data.tags["lineage/status"] == "broken"
    assert isinstance(tracker, Tracker)


def test_requested_is_what_the_passed_run_object_holds_and_asks_no_server(served: Case) -> None:
    served.client.log_param(served.run_id, "lr", 3e-4)
    run = served.client.get_run(served.run_id)
    mlflow.set_tracking_uri("http://127.0.0.1:1")  # nobody answers there
    assert MlflowTracker(run).requested() == {"lr": "0.0003"}
    assert MlflowTracker((served.client, served.run_id)).requested() is None


def test_alias_names_run_experiment_and_page_without_the_credentials(
    served: Case,
) -> None:
    run = served.client.get_run(served.run_id)
    mlflow.set_tracking_uri("https://user:tok-123@ml.example.org/prefix?token=tok-456#x")
    alias = MlflowTracker(run).alias()
    assert alias.uri == "https://ml.example.org/prefix"
    assert alias.url == (
        f"https://ml.example.org/prefix/#/experiments/{served.experiment}/runs/{served.run_id}"
    )
    assert (alias.tracker, alias.id, alias.project) == ("mlflow", served.run_id, served.experiment)


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("postgresql://me:pw@db:5432/mlflow?sslpassword=pw", "postgresql://db:5432/mlflow"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("./mlruns", "./mlruns"),
    ],
)
def test_a_store_without_a_server_has_no_page_and_shows_no_password(uri: str, masked: str) -> None:
    class Client:  # only what the constructor reads: no database is opened
        tracking_uri = uri

    alias = MlflowTracker((Client(), "r1")).alias()
    assert (alias.uri, alias.url) == (masked, None)


def test_a_pair_learns_its_experiment_with_the_first_record_shown(served: Case) -> None:
    assert served.tracker.alias().project is None
    served.show(b.verdict())
    assert served.tracker.alias().project == served.experiment


def test_anything_else_is_refused_with_what_to_pass() -> None:
    with pytest.raises(TypeError, match=r"dict is no MLflow run\. Pass what mlflow\.start_run"):
        MlflowTracker({"run_id": "x"})


def test_a_file_is_published_under_its_new_name_and_no_name_leaves_our_folder(
    case: Case, tmp_path: Path
) -> None:
    report = tmp_path / "whatever.tmp"
    report.write_text("<h1>ü</h1>")
    case.tracker.publish(report, "report.html")
    case.tracker.publish(report, "journal/part 1.jsonl")
    assert case.artifact("lineage/report.html") == "<h1>ü</h1>"
    assert case.artifact("lineage/journal/part 1.jsonl") == "<h1>ü</h1>"
    for name in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(TrackerRefused, match="does not stay in"):
            case.tracker.publish(report, name)
    with pytest.raises(TrackerRefused, match="is not there"):
        case.tracker.publish(tmp_path / "absent", "x")


def test_a_run_that_is_gone_is_refused_for_good(case: Case) -> None:
    tracker = MlflowTracker((case.client, "0" * 32))
    with pytest.raises(TrackerRefused, match="0000"):
        tracker.show(b.record(b.verdict(), segment=case.segment), case.page)


def test_the_users_environment_and_a_finished_run_stay_as_they_are(case: Case) -> None:
    before = {k: v for k, v in os.environ.items() if k.startswith("MLFLOW")}
    case.client.set_terminated(case.run_id, "FAILED")
    case.show(b.verdict())
    case.show(b.checkpoint(5))
    case.tracker.close()
    assert case.client.get_run(case.run_id).info.status == "FAILED"
    assert {k: v for k, v in os.environ.items() if k.startswith("MLFLOW")} == before
