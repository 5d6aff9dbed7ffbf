"""Many ranks and one page: rank 0 writes it and shows what broke on the others; no rank leaves an empty run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from lineage.recorder import identity
from lineage.recorder.rank_page import RankPage
from schemas import Run, TrackerAlias
from tests.recorder.loop import Loop, only
from tests.trackers.wandb.stub_backend import StubBackend
from tests.trackers.wandb.test_outage import IMPATIENT
from trackers import NotMine, Outbox, Page

from .conftest import Store
from .test_outage_mlflow import REPOSITORY
from .training import FIRST, attach, points, start_wandb, train


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is rank 0 of two of one launch."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "job-7"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(identity, "_attached", 0)  # as in a process of its own


def rank_one(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Let rank 1 train, and end. Returns what it printed."""
    monkeypatch.setenv("RANK", "1")
    command = [sys.executable, "-m", "tests.e2e.rank_one", *arguments]
    own = {
        k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"
    }  # a client of its own, as on its own node
    done = subprocess.run(
        command, cwd=REPOSITORY, env=own, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    monkeypatch.setenv("RANK", "0")
    return done.stdout.strip()


@pytest.mark.slow
def test_ranks_that_all_get_the_same_mlflow_run_show_each_thing_once_and_make_no_run(
    two_ranks: None, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.client.create_run(store.experiment).info.run_id
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, run=(MlflowClient(store.uri), run_id), config=FIRST) as rec:
        train(loop, rec, 2, slow=False)
        rank_one(monkeypatch, str(root), "mlflow", store.uri, run_id)
        train(loop, rec, 4, slow=False)
    assert [r.info.run_id for r in store.client.search_runs([store.experiment])] == [run_id]
    tags = store.client.get_run(run_id).data.tags
    alarms = [json.loads(v) for k, v in sorted(tags.items()) if k.startswith("lineage/alarm/")]
    onsets = [a for a in alarms if a["phase"] == "onset"]
    shown = {(a["rank"], a["step"], a["signal"]) for a in onsets}
    assert len(shown) == len(onsets)
    assert (1, 3, "loss") in shown
    assert "step 3, rank 1" in tags["lineage/first_non_finite"]
    assert [k for k in tags if k.startswith("lineage/segment/")] == ["lineage/segment/001"]
    (segment,) = only(root).segments
    assert segment.ranks == (0, 1)


@pytest.mark.slow
def test_in_shared_mode_a_secondary_rank_sets_neither_config_nor_tags_and_its_alarm_is_on_the_page(
    two_ranks: None, backend: StubBackend, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared mode is W&B's own way to have many writers on one run. A second writer's config and tags replace."""
    labels = {"x_label": "rank0", "x_primary": True, **IMPATIENT}
    run = start_wandb(mode="shared", id="r1", config=FIRST, tags=["mine"], settings=labels)
    root, loop = home / "runs", Loop()
    with attach(loop, root, run=run) as rec:
        train(loop, rec, 2, lambda step, loss: run.log({"loss": loss}), slow=False)
        assert rank_one(monkeypatch, str(root), "wandb", "r1", "shared") == "[] []"
        train(loop, rec, 4, lambda step, loss: run.log({"loss": loss}), slow=False)
    run.finish()
    page = backend.runs["r1"]
    assert list(backend.runs) == ["r1"]
    assert page.tags == ["mine", "lineage:broken"]
    assert page.values["lr"] == 0.1
    assert page.summary["lineage/first_non_finite"].startswith("rank 1, step 3: ")
    assert len([a for a in backend.alerts if "non-finite" in a["title"]]) == 1
    assert points(page.history)[0] == (1, 0)
    assert page.values["lineage/segments/001/start"]["world_size"] == 2


class Shows:
    """A tracker that counts what it shows."""

    kind = "mlflow"

    def __init__(self, run_id: str) -> None:
        self.id, self.shown = run_id, 0

    def alias(self) -> TrackerAlias:
        return TrackerAlias(tracker="mlflow", id=self.id, uri="sqlite:///x")

    def requested(self) -> None:
        return None

    def show(self, record: Any, page: Page) -> str:
        self.shown += 1
        return "there"

    def publish(self, file: Path, name: str) -> None:
        self.shown += 1

    def close(self) -> None:
        pass


def test_a_rank_with_a_run_of_its_own_shows_its_records_there(tmp_path: Path) -> None:
    loop = Loop()
    alias = TrackerAlias(tracker="mlflow", id="of-rank-0", uri="sqlite:///x")
    with attach(loop, tmp_path) as rec:
        writer = rec.begin()
        assert writer is not None
        writer.write(Run(uid=writer.ids.run, aliases=[alias], source="new"))
        folder, record = writer.journal.path.parent, writer.write(Run(uid="x", aliases=[], source="new"))
    own, other = Shows("of-rank-1"), Shows("of-rank-0")
    # rank 0's first record of the run is the one that it wrote when it attached, without a page
    assert RankPage(own, folder).show(record, Page("x")) == "there"
    assert own.shown == 1
    waited = iter(range(0, 1000, 30))
    nowhere = RankPage(other, tmp_path / "not there", clock=lambda: float(next(waited)))
    with pytest.raises(NotMine):
        nowhere.show(record, Page("x"))
    noted: list[Any] = []
    outbox = Outbox(
        nowhere, Page("x"), on_shown=lambda *a: noted.append(a), on_trouble=lambda *a: noted.append(a)
    )
    outbox.put(record)
    assert outbox.close(60.0) == 0
    assert (noted, other.shown) == ([], 0)
