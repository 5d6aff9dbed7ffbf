"""A resume with another learning rate and clip, beside a user's own MLflow run on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tests.recorder.loop import Loop, only
from tests.trackers.mlflow.conftest import MODELS
from tests.trackers.mlflow.servers import Server

from .training import CHANGED, FIRST, attach, resumed, train


def tagged(tags: dict[str, str], kind: str) -> dict[int, Any]:
    """The numbered tags of a kind: number -> what it holds."""
    prefix = f"lineage/{kind}/"
    return {int(k.removeprefix(prefix)): json.loads(v) for k, v in tags.items() if k.startswith(prefix)}


def history(client: MlflowClient, run: str, metric: str) -> list[tuple[int, float]]:
    """The points of a metric: (step, value), by step."""
    return sorted((m.step, m.value) for m in client.get_metric_history(run, metric))


@pytest.mark.slow
def test_both_values_are_on_the_page_although_mlflow_refuses_the_new_ones(
    server: Server, tmp_path: Path
) -> None:
    mlflow.set_tracking_uri(server.uri)
    experiment = mlflow.create_experiment("resume")
    root, ck = tmp_path / "runs", tmp_path / "ck"

    run, loop = mlflow.start_run(None, experiment, tags={"team": "mine"}, description="My notes."), Loop()
    mlflow.log_params(FIRST)
    with attach(loop, root, run=run, config=FIRST) as rec:
        before = train(loop, rec, 5, lambda step, loss: mlflow.log_metrics({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=5)
    mlflow.end_run()

    again, loop = mlflow.start_run(run_id=run.info.run_id), resumed(ck)
    with pytest.raises(MlflowException, match="Changing param values is not allowed"):
        mlflow.log_param("lr", CHANGED["lr"])
    with attach(loop, root, run=again, config=CHANGED, resumed_from=ck) as rec:
        after = train(loop, rec, 9, lambda step, loss: mlflow.log_metrics({"loss": loss}, step=step))
        rec.checkpoint(loop.save(tmp_path / "ck9"), step=9)
    mlflow.end_run()

    client, run_id = MlflowClient(server.uri), run.info.run_id
    page = client.get_run(run_id)
    tags = page.data.tags
    # the user's own
    assert dict(history(client, run_id, "loss")) == pytest.approx(before | after)
    assert page.data.params == {"lr": "0.1", "clip": "1.0"}
    assert tags["team"] == "mine"
    assert tags["mlflow.note.content"].endswith("My notes.")
    assert page.info.status == "FINISHED"
    # old and new beside each other
    (drift,) = tagged(tags, "drift").values()
    changes = {c["concept"]: c for c in drift["changes"]}
    assert changes["learning_rate"]["requested"] == {"before": 0.1, "after": 0.01}
    assert changes["learning_rate"]["effective"] == {"before": 0.1, "after": 0.01}
    assert changes["grad_clip"]["requested"] == {"before": 1.0, "after": 0.3}
    assert changes["grad_clip"]["effective"] == {"before": 1.0, "after": 0.3}
    configs = [
        json.loads(Path(client.download_artifacts(run_id, f"lineage/config_{n:03d}.json")).read_text())
        for n in (1, 2)
    ]
    assert configs == [FIRST, CHANGED]
    segments = tagged(tags, "segment")
    assert [s["start"] for s in segments.values()] == ["fresh", "resume"]
    assert segments[2]["parent_step"] == 5
    # the regime against the user's steps, the verdict in tags and description
    regime = history(client, run_id, "lineage/regime")
    assert {(1, 0.0), (5, 0.0), (6, 1.0)} <= set(regime)
    assert {value for step, value in regime if step > 5} == {1.0}
    assert (tags["lineage/status"], tags["lineage/broken_since_step"]) == ("broken", "6")
    assert tags["lineage/confounded"] == "true"
    assert "gradient clipping 1 -> 0.3" in tags["mlflow.note.content"]
    # anchors and the journal
    anchored = [r.payload for r in only(root).of("anchor")]
    assert json.loads(tags["lineage/anchor"])["root"] == anchored[-1].root
    assert len(anchored) == 4
    assert [f.path for f in client.list_artifacts(run_id, "lineage") if f.is_dir] == ["lineage/journal"]
    if MODELS:
        by_step = {m.step: client.get_logged_model(m.model_id) for m in page.outputs.model_outputs}
        assert sorted(by_step) == [5, 9]
        assert by_step[9].tags["lineage/parents"] == by_step[5].tags["lineage/uid"]
        assert segments[2]["parent_model"] == by_step[5].model_id
