"""Rollbacks, forks and campaigns of nested runs in MLflow: branches are told apart, and one row tells of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow

from lineage.cli.sync import sync
from tests.recorder.loop import Loop, only

from .conftest import Store
from .training import CHANGED, FIRST, attach, resumed, train


def log(step: int, loss: float) -> None:
    """As the user's loop does."""
    mlflow.log_metric("loss", loss, step=step)


def test_a_latest_value_of_the_abandoned_branch_is_flagged_until_the_branch_has_passed_it(
    store: Store, tmp_path: Path
) -> None:
    root, ck, ck7 = tmp_path / "runs", tmp_path / "ck", tmp_path / "ck7"
    run, loop = store.start(), Loop()
    with attach(loop, root, run=run, config=FIRST) as rec:
        train(loop, rec, 5, log, slow=False)
        rec.checkpoint(loop.save(ck), step=5)
        train(loop, rec, 9, log, slow=False)
    loop = resumed(ck)
    with attach(loop, root, run=run, config=CHANGED, resumed_from=ck) as rec:
        train(loop, rec, 7, log, slow=False)
        rec.checkpoint(loop.save(ck7), step=7)
    lies = store.client.get_metric_history(run.info.run_id, "loss")
    tags = store.client.get_run(run.info.run_id).data.tags
    assert max(m.step for m in lies) == 9  # so MLflow shows the value of step 9, which was left
    assert "latest values are those of step 9 until this branch passes it" in tags["lineage/note/LIN-T001"]
    assert "has passed" not in tags["lineage/note/LIN-T001"]
    assert tags["lineage/note/LIN-T004"] == (
        "This run stands on segment 1 to step 5, then segment 2 from step 6. Abandoned: steps 6 to 9 of segment 1"
    )
    loop = Loop().load(ck7)
    loop.clip = CHANGED["clip"]
    with attach(loop, root, run=run, config=CHANGED, resumed_from=ck7) as rec:
        train(loop, rec, 11, log, slow=False)
    tags = store.client.get_run(run.info.run_id).data.tags
    assert tags["lineage/note/LIN-T001"].splitlines()[-1].startswith("this branch has passed step 9")
    assert tags["lineage/note/LIN-T004"].endswith("Abandoned: steps 6 to 9 of segment 1")
    assert "segment 3 from step 8" in tags["lineage/note/LIN-T004"]


def test_a_campaign_of_nested_runs_is_told_on_each_page_and_in_the_parent_s_own_row(
    store: Store, tmp_path: Path
) -> None:
    root, ck = tmp_path / "runs", tmp_path / "ck"
    with mlflow.start_run(experiment_id=store.experiment, run_name="campaign") as campaign:
        with mlflow.start_run(nested=True, experiment_id=store.experiment) as first:
            loop = Loop()
            with attach(loop, root, run=first, config=FIRST) as rec:
                train(loop, rec, 5, log, slow=False)
                rec.checkpoint(loop.save(ck), step=5)
                train(loop, rec, 9, log, slow=False)
        above = store.client.get_run(campaign.info.run_id).data.tags
        assert above["lineage/status"] == "holds"
        with mlflow.start_run(nested=True, experiment_id=store.experiment) as second:
            loop = resumed(ck)
            with attach(loop, root, run=second, config=CHANGED, resumed_from=ck) as rec:
                train(loop, rec, 8, log, slow=False)
    ledger, ids = only(root), (first.info.run_id, second.info.run_id)
    pages = [store.client.get_run(i).data.tags for i in ids]
    assert json.loads(pages[0]["lineage/segment/001"])["start"] == "fresh"
    assert json.loads(pages[1]["lineage/segment/002"])["parent_step"] == 5
    assert "lineage/note/LIN-T001" not in pages[1]  # no value overlays: they are on two pages
    assert f"segment 1 (MLflow run {ids[0]}) to step 5" in pages[1]["lineage/note/LIN-T004"]

    above = store.client.get_run(campaign.info.run_id).data.tags
    rows = [json.loads(above[f"lineage/campaign/{ledger.run}/{n}"]) for n in ("001", "002")]
    assert [r["run"] for r in rows] == list(ids)
    assert [r["text"] for r in rows] == ["fresh, world size 1", "resume after step 5, world size 1"]
    assert above["lineage/status"] == "broken"
    assert above["lineage/verdict"].startswith("Broken since step 6")
    found = store.client.search_runs([store.experiment], "tags.`lineage/status` = 'broken'")
    assert {r.info.run_id for r in found} == {campaign.info.run_id, ids[1]}

    old = next(a for r in ledger.of("run") for a in r.payload.aliases if a.id == ids[0])
    assert sync(ledger, old, uri=store.uri).problems == []  # the abandoned branch's page learns of it
    tags = store.client.get_run(ids[0]).data.tags
    assert tags["lineage/note/LIN-T004"].endswith("Abandoned: steps 6 to 9 of segment 1")
    assert tags["lineage/status"] == "holds"
    assert store.client.get_run(campaign.info.run_id).data.tags == above  # an older verdict changes nothing


def test_a_parent_of_several_runs_shows_the_worst_of_their_newest_verdicts(
    store: Store, tmp_path: Path
) -> None:
    """A sweep is a parent too: each run beneath it is one of its own."""
    with mlflow.start_run(experiment_id=store.experiment) as sweep:
        for n, spoil in enumerate((3, -1)):
            with mlflow.start_run(nested=True, experiment_id=store.experiment) as run:
                loop = Loop()
                with attach(loop, tmp_path / f"runs{n}", run=run, config=FIRST) as rec:
                    train(loop, rec, 4, slow=False, spoil=spoil)
    tags = store.client.get_run(sweep.info.run_id).data.tags
    each = [v for k, v in tags.items() if k.startswith("lineage/campaign/") and k.endswith("/status")]
    assert sorted(json.loads(v)["status"] for v in each) == ["broken", "holds"]
    assert tags["lineage/status"] == "broken"


def test_a_fork_names_its_parent_run_and_has_its_checkpoint_as_an_input(store: Store, tmp_path: Path) -> None:
    root, ck, ck8 = tmp_path / "runs", tmp_path / "ck", tmp_path / "ck8"
    loop = Loop()
    with store.start() as old, attach(loop, root, run=old, config=FIRST) as rec:
        train(loop, rec, 5, slow=False)
        rec.checkpoint(loop.save(ck), step=5)
    parent, before = only(root).run, store.client.get_run(old.info.run_id).data.tags
    with store.start() as new:
        loop = resumed(ck)
        with attach(loop, root, run=new, config=CHANGED, resumed_from=ck, fork=True) as rec:
            train(loop, rec, 8, slow=False)
            rec.checkpoint(loop.save(ck8), step=8)
        loop = Loop().load(ck8)
        with attach(loop, root, run=new, config=CHANGED, resumed_from=ck8) as rec:
            train(loop, rec, 10, slow=False)
    page = store.client.get_run(new.info.run_id)
    assert page.data.tags["lineage/fork_of"] == parent != page.data.tags["lineage/run"]
    history = store.client.get_metric_history(new.info.run_id, "lineage/regime")
    assert min((m.step, m.value) for m in history) == (5, 0.0)
    assert (6, 1.0) in {(m.step, m.value) for m in history}
    (model,) = page.inputs.model_inputs
    assert store.client.get_logged_model(model.model_id).params["step"] == "5"
    assert store.client.get_run(old.info.run_id).data.tags == before
