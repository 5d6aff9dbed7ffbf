"""An MLflow server that is gone: training goes on, the process ends in time, and `lineage sync` catches up."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from lineage.cli.sync import sync
from tests.recorder.loop import Loop, only
from tests.trackers.mlflow.servers import Faulty, Server

from .conftest import Store
from .test_resume_mlflow import history, tagged
from .training import CHANGED, FIRST, attach, resumed, train

REPOSITORY = Path(__file__).parents[2]

SCRIPT = """
import atexit, sys
from pathlib import Path
from mlflow import MlflowClient
from tests.connections import connecting, mine
from tests.recorder.loop import Loop, attach
uri, root = sys.argv[1], Path(sys.argv[2])
listening = connecting()
threads = listening.__enter__()
atexit.register(lambda: print(mine(threads), len(threads)))  # the last of the exit handlers
loop = Loop()
rec = attach(loop, root, run=(MlflowClient(uri), "0" * 32), config={"lr": 0.1}, exit_timeout=1.0)
loop.run(rec, 50)
rec.checkpoint(loop.save(root / "ck"), step=50)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["dead", "hang", "login"])
def test_a_server_that_never_answers_delays_neither_steps_nor_the_end_of_the_process(
    server: Server, tmp_path: Path, fault: str
) -> None:
    """The training thread opens no connection, and waits at its end only as long as `exit_timeout` allows.

    Without that limit it would wait for ever, since what could not be shown is tried again and again.
    """
    faulty = Faulty(server.uri)
    if fault == "dead":
        faulty.close()
    else:
        faulty.fail(fault)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, faulty.uri, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=600,
        check=True,
    )
    if fault != "dead":
        faulty.close()
    of_training, of_all = map(int, done.stdout.split())
    assert (of_training, of_all > 0) == (0, True)
    ledger = only(tmp_path)
    assert ledger.last("segment_end").payload.last_step == 50  # type: ignore[union-attr]
    assert ledger.last("verdict").payload.status == "holds"  # type: ignore[union-attr]
    (trouble,) = [r.payload for r in ledger.of("degraded") if r.payload.part == "tracker"]
    assert (trouble.code, trouble.remedy) == ("LIN-L002", "lineage sync")
    assert ledger.damage == []


def page_of(client: MlflowClient, run: str) -> dict[str, Any]:
    """All that stands on a run's page: tags, metric points, models, artifacts."""
    data = client.get_run(run)
    outputs = getattr(data, "outputs", None)
    return {
        "tags": data.data.tags,
        "regime": history(client, run, "lineage/regime"),
        "models": sorted((m.model_id, m.step) for m in outputs.model_outputs) if outputs else [],
        "artifacts": sorted(f.path for f in client.list_artifacts(run, "lineage")),
    }


@pytest.mark.slow
def test_a_server_killed_in_the_middle_and_dead_at_the_next_start_is_brought_up_to_date_once(
    server: Server, tmp_path: Path
) -> None:
    root, ck = tmp_path / "runs", tmp_path / "ck"
    client = MlflowClient(server.uri)
    run_id = client.create_run(client.create_experiment("outage")).info.run_id
    loop = Loop()
    with attach(loop, root, run=(client, run_id), config=FIRST, exit_timeout=1.0) as rec:
        train(loop, rec, 3)
        server.kill()
        losses = train(loop, rec, 6, slow=False)
        rec.checkpoint(loop.save(ck), step=6)
    loop = resumed(ck)
    with attach(
        loop, root, run=(client, run_id), config=CHANGED, resumed_from=ck, exit_timeout=1.0
    ) as rec:  # the server is dead from the start
        losses |= train(loop, rec, 9, slow=False)
        rec.checkpoint(loop.save(tmp_path / "ck9"), step=9)
        writer = rec.begin()
        assert writer is not None
        assert writer.tasks.drain(60.0)  # with this exit_timeout the layer waits six seconds for its judging
    assert sorted(losses) == [4, 5, 6, 7, 8, 9]

    server.start()
    assert client.get_run(run_id).data.tags["lineage/status"] == "holds"  # as of the first step
    command = [
        sys.executable,
        "-c",
        "import lineage.cli; lineage.cli.main()",
        "sync",
        str(only(root).path),
        "--json",
    ]
    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert first.returncode == 0, first.stdout + first.stderr
    (result,) = json.loads(first.stdout)
    assert result["problems"] == []
    assert result["shown"] > 10
    page = page_of(client, run_id)
    tags = page["tags"]
    assert (tags["lineage/status"], tags["lineage/broken_since_step"]) == ("broken", "7")
    assert set(page["regime"]) == {(1, 0.0), (6, 0.0), (7, 1.0), (9, 1.0)}
    assert [step for _, step in sorted(page["models"], key=lambda m: m[1])] == [6, 9]
    assert len(tagged(tags, "drift")) == 1
    assert [s["start"] for s in tagged(tags, "segment").values()] == ["fresh", "resume"]
    assert json.loads(tags["lineage/anchor"])["root"] == only(root).of("seal")[-1].payload.root

    (alias,) = only(root).of("run")[0].payload.aliases
    assert sync(only(root), alias).shown == 0
    for note in (only(root).path / "delivered").iterdir():
        note.unlink()  # as after a crash that lost the notes: everything is sent once more
    assert sync(only(root), alias).shown >= result["shown"]
    assert page_of(client, run_id) == page


def test_after_a_rollback_the_page_says_which_steps_overlay_and_keeps_both_branches(
    store: Store, tmp_path: Path
) -> None:
    root, ck = tmp_path / "runs", tmp_path / "ck"
    run, loop = store.start(), Loop()
    with attach(loop, root, run=run, config=FIRST) as rec:
        train(loop, rec, 5, lambda step, loss: mlflow.log_metric("loss", loss, step=step))
        rec.checkpoint(loop.save(ck), step=5)
        before = train(loop, rec, 9, lambda step, loss: mlflow.log_metric("loss", loss, step=step))
    loop = resumed(ck)
    with attach(loop, root, run=run, config=CHANGED, resumed_from=ck) as rec:
        after = train(loop, rec, 7, lambda step, loss: mlflow.log_metric("loss", loss, step=step))
    client = store.client
    (note,) = [r for r in only(root).of("tracker_note") if r.payload.code == "LIN-T001"]
    tags = client.get_run(run.info.run_id).data.tags
    assert tags["lineage/note/LIN-T001"] == note.payload.text
    assert "between steps 6 and 9" in note.payload.text
    assert {(1, 0.0), (5, 0.0), (6, 1.0)} <= set(history(client, run.info.run_id, "lineage/regime"))
    rows = history(client, run.info.run_id, "loss")
    assert [step for step, _ in rows] == [1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 9]
    assert {(6, before[6]), (6, after[6])} <= set(rows)


def test_nan_and_infinite_metrics_of_the_user_s_stay_and_the_page_says_where_they_began(
    store: Store, tmp_path: Path
) -> None:
    run, loop = store.start(), Loop()
    with attach(loop, tmp_path / "runs", run=run, config=FIRST) as rec:
        train(loop, rec, 6, lambda step, loss: mlflow.log_metrics({"loss": loss}, step=step), spoil=4)
        mlflow.log_metric("ppl", float("inf"), step=6)
    client = store.client
    rows = history(client, run.info.run_id, "loss")
    assert [step for step, _ in rows] == [1, 2, 3, 4, 5, 6]
    assert sum(math.isnan(value) for _, value in rows) == 3
    tags = client.get_run(run.info.run_id).data.tags
    assert tags["lineage/first_non_finite"].startswith("First non-finite value: loss was NaN at step 4")
    assert tags["lineage/first_bad"].startswith("First bad: step 4, rank 0")
    assert client.get_metric_history(run.info.run_id, "ppl")[0].step == 6
