"""What `lineage.attach` takes: run objects of both trackers, a client, nothing, on ranks with and without a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from lineage.ledger.reader import Ledger
from lineage.recorder import identity
from tests.recorder.loop import Loop, only

from .conftest import Store
from .training import FIRST, attach, finished, start_wandb, train

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "form",
    [
        lambda store: store.start(),
        lambda store: mlflow.get_run(store.start().info.run_id),
        lambda store: (MlflowClient(store.uri), store.start().info.run_id),
    ],
    ids=["ActiveRun", "Run", "client and run id"],
)
def test_every_form_of_an_mlflow_run_gets_the_same_page(
    store: Store, tmp_path: Path, form: Callable[[Store], Any]
) -> None:
    run, loop = form(store), Loop()
    run_id = mlflow.active_run().info.run_id  # type: ignore[union-attr]
    with attach(loop, tmp_path / "runs", run=run, config=FIRST) as rec:
        train(loop, rec, 3, slow=False)
    tags = store.client.get_run(run_id).data.tags
    ledger = only(tmp_path / "runs")
    (alias,) = ledger.of("run")[0].payload.aliases
    assert (alias.tracker, alias.id) == ("mlflow", run_id)
    assert tags["lineage/run"] == ledger.run
    assert tags["lineage/status"] == "holds"
    assert mlflow.active_run().info.status == "RUNNING"  # type: ignore[union-attr]  # it stays the user's


def test_a_wandb_run_names_the_ledger_s_run_and_is_left_running(home: Path) -> None:
    run, loop = start_wandb(config=FIRST), Loop()
    with attach(loop, home / "runs", run=run) as rec:
        train(loop, rec, 3, slow=False)
    run.log({"after": 1.0})
    log = finished(run)
    ledger = only(home / "runs")
    assert log.config["lineage/run"]["id"] == ledger.run
    assert [a.id for a in ledger.of("run")[0].payload.aliases] == [run.id]
    assert ledger.of("config")[0].payload.source == "wandb.config"
    assert log.history[-1]["after"] == 1.0
    assert log.exit_code == 0


def test_a_disabled_wandb_run_costs_nothing_and_the_ledger_has_everything(home: Path) -> None:
    run, loop = start_wandb(mode="disabled", config=FIRST), Loop()
    with attach(loop, home / "runs", run=run) as rec:
        train(loop, rec, 3)
    ledger = only(home / "runs")
    assert ledger.last("verdict").payload.status == "holds"  # type: ignore[union-attr]
    assert ledger.of("degraded") == []


def test_without_a_tracker_the_page_is_in_the_ledger_s_own_folder(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", run=None, config=FIRST) as rec:
        train(loop, rec, 3)
    ledger = only(tmp_path / "runs")
    assert any((ledger.path / "view").iterdir())
    assert ledger.of("degraded") == []


def test_something_that_is_no_run_is_said_and_the_ledger_has_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", run={"id": "r1"}, config=FIRST) as rec:
        train(loop, rec, 3)
    assert "dict is no run of a known tracker" in caplog.text
    assert only(tmp_path / "runs").last("verdict").payload.status == "holds"  # type: ignore[union-attr]


RANK_ONE = """
import sys
from pathlib import Path
from tests.recorder.loop import Loop, attach
loop = Loop()
with attach(loop, Path(sys.argv[1])) as rec:
    loop.run(rec, 4, spoil=3)
"""


@pytest.mark.slow
def test_a_rank_without_a_run_and_without_a_process_group_joins_the_segment_of_the_rank_with_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RANK, WORLD_SIZE and the launcher's identity alone; the alarm of rank 1 is on the page of rank 0."""
    root = home / "runs"
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "TORCHELASTIC_RUN_ID": "job-7"}.items():
        monkeypatch.setenv(name, value)
    subprocess.run([sys.executable, "-c", RANK_ONE, str(root)], check=True, cwd=REPOSITORY, timeout=600)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(identity, "_attached", 0)  # as in a process of its own
    run, loop = start_wandb(config=FIRST), Loop()
    with attach(loop, root, run=run) as rec:
        train(loop, rec, 4, slow=False)
    log = finished(run)

    ledger: Ledger = only(root)
    (segment,) = ledger.segments
    assert segment.ranks == (0, 1)
    assert {r.payload.identity for r in ledger.of("segment")} == {"launcher"}
    assert [r.rank for r in ledger.of("run")] == [0]
    assert next((r.rank, r.step) for r in ledger.of("alarm") if r.payload.phase == "onset") == (1, 3)
    assert log.summary["lineage/first_non_finite"].startswith("rank 1, step 3")
    assert "rank 1, step 3" in log.summary["lineage/first_bad"]
