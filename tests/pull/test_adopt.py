"""Runs that never had the layer, read from their pages as far as these go."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest

from lineage.ledger.reader import Ledger
from lineage.pull.pulling import pull
from lineage.pull.source import PullTrouble, parse
from tests.e2e.training import finished, start_wandb

from .command import asked, lineage


@pytest.fixture
def bare_wandb(home: Path) -> list[str]:
    """A run that changes its config while it runs, and a second offline segment with another clip, rewound."""
    first = start_wandb(id="r9", config={"optimizer": {"lr": 0.001}, "max_grad_norm": 1.0}, name="big one")
    for step in range(1, 41):
        if step == 21:
            first.config.update({"optimizer": {"lr": 0.0003}}, allow_val_change=True)
        loss = math.inf if step == 35 else 5 / step
        first.log({"loss": loss, "lr": 0.001 if step < 21 else 0.0003}, step=step)
    finished(first)
    second = start_wandb(id="r9", config={"optimizer": {"lr": 0.0003}, "max_grad_norm": 0.3})
    for step in range(31, 51):
        second.log({"loss": 5 / step, "lr": 0.002}, step=step)
    finished(second)
    return [str(r.settings.sync_dir) for r in (first, second)]


def test_the_config_history_of_a_wandb_log_becomes_drift_at_its_steps(
    bare_wandb: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    done = asked(0, "pull", bare_wandb[0], "--out", out)
    assert (done["layer"], done["whole"]) == (False, True)
    opened = Ledger(out)
    assert [(s.info.start, s.info.parent_step) for s in opened.segments] == [("fresh", None), ("rewind", 30)]
    held = [r.payload.values["optimizer.lr"].plain() for r in opened.of("config")]
    assert held == [0.001, 0.0003, 0.0003]
    drifts = {(c.concept, r.step) for r in opened.of("drift") for c in r.payload.changes}
    assert ("learning_rate", 20) in drifts  # the row of step 20 was still open: it may stand one row early
    assert ("grad_clip", 31) in drifts
    assert any("one row early" in g for r in opened.of("coverage") for g in r.payload.gaps)


def test_values_keep_their_steps_and_a_value_that_is_infinite_is_the_first_bad_one(
    bare_wandb: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    asked(0, "pull", bare_wandb[1], "--out", out)
    rows = Ledger(out).series("metrics", ["step", "key", "value", "n_posinf"]).to_pylist()
    assert len([r for r in rows if r["key"] == "loss"]) == 60
    assert [r["step"] for r in rows if r["n_posinf"]] == [35]
    assert "step 35" in lineage("first-bad", out).stdout


def test_what_was_logged_is_not_taken_for_a_signal_that_the_layer_read_itself(
    bare_wandb: list[str], tmp_path: Path
) -> None:
    """The signals of a pulled ledger are copies of what was logged: to be like them shows nothing."""
    out = tmp_path / "pulled"
    asked(0, "pull", bare_wandb[1], "--out", out)
    told = lineage("check", out).stdout
    assert "signal of the layer" not in told
    assert "own signals of this segment are not here" in told
    series = [s for segment in asked(0, "check", out, "--json")["segments"] for s in segment["series"]]
    assert {s["by"] for s in series} == {"wandb"}
    assert {s["definition"] for s in series} == {"not shown"}


def test_a_rate_above_the_one_that_the_config_asked_for_then_is_a_contradiction(
    bare_wandb: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    done = asked(0, "pull", bare_wandb[0], "--out", out)
    found = [r.payload.text for r in Ledger(out).of("finding") if r.payload.code == "LIN-D005"]
    assert len(found) == 1  # 0.001 before step 21 was what was asked for then
    assert "asks for 0.0003" in found[0]
    assert "0.002" in found[0]
    assert any(found[0] in n for n in done["notes"])


def test_pulling_a_page_without_a_journal_twice_changes_nothing_and_is_never_added_to(
    bare_wandb: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    asked(0, "pull", bare_wandb[0], "--out", out)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert asked(0, "pull", bare_wandb[0], "--out", out)["changed"] is False
    third = start_wandb(id="r9", config={"seed": 2})
    third.log({"loss": 1.0}, step=51)
    finished(third)
    refused = lineage("pull", bare_wandb[0], "--out", out)
    assert refused.returncode == 2
    assert "has changed since" in refused.stderr
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


@pytest.fixture
def bare_mlflow(tmp_path: Path, mlflow_database: Callable[[Path], str]) -> str:
    """A run that went back from step 20 to step 10, with a rate that its params do not say."""
    uri = mlflow_database(tmp_path)
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.MlflowClient(uri).create_experiment("bare")
    with mlflow.start_run(experiment_id=experiment, run_name="pretrain", tags={"team": "x"}) as run:
        mlflow.log_params({"learning_rate": 0.001, "max_grad_norm": 1.0, "api_key": "sk-" + "a" * 40})
        for step in range(1, 21):
            mlflow.log_metrics({"loss": 5 / step, "learning_rate": 0.001}, step=step)
        for step in range(11, 16):
            mlflow.log_metrics({"loss": 6 / step, "learning_rate": 0.003}, step=step)
        mlflow.log_metric("eval_loss", math.nan, step=15)
        mlflow.log_metric("system/cpu", 3.0, step=1)
    return f"mlflow://{uri}/{run.info.run_id}"


def test_an_mlflow_run_is_read_with_params_tags_rewind_and_its_contradictions(
    bare_mlflow: str, tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    done = asked(0, "pull", bare_mlflow, "--out", out)
    said = "\n".join(done["notes"])
    assert "which MLflow's page shows as the latest, is older than the one of step 15" in said
    assert "learning_rate asks for 0.001, and the rate in effect has its peak at 0.003" in said
    opened = Ledger(out)
    assert [(s.info.start, s.info.parent_step) for s in opened.segments] == [("fresh", None), ("rewind", 10)]
    (config,) = [r.payload for r in opened.of("config")]
    assert config.values["max_grad_norm"].plain() == "1.0"
    assert config.values["api_key"].type == "masked"
    told = " ".join(t for r in opened.of("coverage") for t in r.payload.recorded)
    assert "team: x" in told
    keys = {r["key"] for r in opened.series("metrics", ["key"]).to_pylist()}
    assert keys == {"loss", "learning_rate", "eval_loss"}
    assert lineage("audit", bare_mlflow).returncode == 0


def test_a_run_that_the_layer_saw_and_whose_journal_is_not_there_is_read_and_says_why(
    bare_mlflow: str, tmp_path: Path
) -> None:
    uri, _, run = bare_mlflow.removeprefix("mlflow://").rpartition("/")
    mlflow.MlflowClient(uri).set_tag(run, "lineage/run", "pretrain-7b")
    done = asked(0, "pull", bare_mlflow, "--out", tmp_path / "pulled")
    assert any(
        "the layer was there (run pretrain-7b), and no chunk of its journal" in n for n in done["notes"]
    )


def test_an_empty_page_is_refused_with_what_is_not_there(
    tmp_path: Path, mlflow_database: Callable[[Path], str]
) -> None:
    uri = mlflow_database(tmp_path)
    client = mlflow.MlflowClient(uri)
    run = client.create_run(client.create_experiment("empty")).info.run_id
    with pytest.raises(PullTrouble, match="no journal, no config and not one number"):
        pull([parse(f"mlflow://{uri}/{run}")], tmp_path / "x")
    assert not (tmp_path / "x").exists() or not any((tmp_path / "x").iterdir())


def test_params_alone_are_read_where_nothing_was_logged(
    tmp_path: Path, mlflow_database: Callable[[Path], str]
) -> None:
    uri = mlflow_database(tmp_path)
    client = mlflow.MlflowClient(uri)
    run = client.create_run(client.create_experiment("params")).info.run_id
    client.log_param(run, "learning_rate", 0.1)
    done = pull([parse(f"mlflow://{uri}/{run}")], tmp_path / "x")
    (config,) = [r.payload for r in Ledger(done.ledger).of("config")]
    assert config.values["learning_rate"].text() == "0.1"
