"""The real W&B client, offline: what its calls show reaches the ledger, and the calls stay as they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

import lineage.observe
from lineage.ledger import reader
from tests.e2e.training import finished
from tests.trackers.wandb.stub_backend import StubBackend, served

from .conftest import Observed

QUIET = {"x_disable_stats": True, "x_disable_meta": True, "console": "off"}


def start(**more: Any) -> Any:
    return wandb.init(**{"project": "p", "mode": "offline", "settings": wandb.Settings(**QUIET), **more})


def metrics(ledger: reader.Ledger, key: str) -> dict[int, float]:
    """Step -> value of one logged key."""
    return {r["step"]: r["value"] for r in ledger.series("metrics").to_pylist() if r["key"] == key}


def test_run_log_and_wandb_log_are_one_series_and_the_tracker_has_the_same(
    home: Path, observed: Observed
) -> None:
    run = start(id="r1", name="first", config={"lr": 0.1})
    run.log({"loss": 1.0, "nested": {"a": 2}})
    wandb.log({"loss": 0.5, "text": "hello"})
    run.log({"loss": torch.tensor(0.25)})
    log = finished(run)
    ledger = observed.only()
    assert metrics(ledger, "loss") == {0: 1.0, 1: 0.5, 2: 0.25}
    assert metrics(ledger, "nested.a") == {0: 2.0}
    assert [row["loss"] for row in log.history] == [1.0, 0.5, 0.25]
    (known,) = ledger.of("run")
    assert known.payload.name == "first"
    assert [(a.tracker, a.id) for a in known.payload.aliases] == [("wandb", "r1")]
    gaps = ledger.of("coverage")[0].payload.gaps
    assert any("no numbers are not kept: text" in g for g in gaps)
    assert any("count of log calls" in g for g in gaps)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([({"loss": 1.0}, {"step": 7}), ({"acc": 0.5}, {"step": 7})], {"loss": {7: 1.0}, "acc": {7: 0.5}}),
        ([({"loss": 1.0}, {"commit": False}), ({"acc": 0.5}, {})], {"loss": {0: 1.0}, "acc": {0: 0.5}}),
        ([({"loss": 1.0, "train/global_step": 30}, {})], {"loss": {30: 1.0}}),
        ([({"loss": 1.0, "my_axis": 12}, {})], {"loss": {12: 1.0}}),
    ],
    ids=["step", "commit", "a known column", "define_metric"],
)
def test_a_row_stands_at_the_step_that_the_user_means(
    home: Path, observed: Observed, calls: list[Any], expected: dict[str, Any]
) -> None:
    run = start()
    run.define_metric("loss", step_metric="my_axis")
    for row, options in calls:
        run.log(row, **options)
    run.finish()
    ledger = observed.only()
    assert {key: metrics(ledger, key) for key in expected} == expected


def test_every_way_to_change_a_config_is_seen_and_a_later_change_is_drift(
    home: Path, observed: Observed
) -> None:
    run = start(config={"lr": 0.1, "model": {"depth": 2}})
    run.config.update({"clip": 1.0})
    run.config.batch_size = 8
    wandb.config["seed"] = 3
    run.log({"loss": 1.0}, step=1)
    observed.settle()
    run.config.update({"lr": 0.01, "best_step": 4}, allow_val_change=True)
    observed.settle()
    run.finish()
    ledger = observed.only()
    first, last = ledger.of("config")[0].payload.values, ledger.of("config")[-1].payload.values
    assert {k: v.plain() for k, v in first.items()} == {
        "lr": 0.1,
        "model.depth": 2,
        "clip": 1.0,
        "batch_size": 8,
        "seed": 3,
    }
    assert last["best_step"].plain() == 4
    (drift,) = [r.payload for r in ledger.of("drift")]
    assert drift.moment == "in_run"
    assert [(c.concept, c.requested_before.plain(), c.requested_after.plain()) for c in drift.changes] == [
        ("learning_rate", 0.1, 0.01)
    ]
    assert "value in effect is not shown" in drift.changes[0].text
    assert drift.unclassified == []  # a key that only came is no change


def test_a_config_change_that_wandb_refuses_raises_as_it_did(home: Path, observed: Observed) -> None:
    run = start(config={"lr": 0.1})
    with pytest.raises(wandb.errors.Error, match="Attempted to change value"):
        run.config.update({"lr": 0.2})
    run.finish()
    assert observed.only().last("config").payload.values["lr"].plain() == 0.1  # type: ignore[union-attr]


def test_a_resumed_run_continues_the_same_ledger_and_says_what_was_asked_for_otherwise(
    home: Path, observed: Observed
) -> None:
    """Offline the id is all that two processes share."""
    for lr in (0.1, 0.01):
        run = start(id="r1", resume="allow", config={"lr": lr, "clip": 1.0})
        run.log({"loss": 1.0}, step=1)
        run.finish()
    ledger = observed.only()
    one, two = ledger.segments
    assert (one.info.start, two.info.start) == ("fresh", "resume")
    (drift,) = [r.payload for r in ledger.of("drift", two.uid)]
    (change,) = drift.changes
    assert (change.concept, change.effective_before, change.effective_after) == ("learning_rate", None, None)
    assert "learning_rate" in drift.not_shown
    verdict = ledger.of("verdict", two.uid)[-1].payload
    assert {c.claim: c.status for c in verdict.claims}["loss_curve"] == "broken"


def test_init_while_a_run_is_active_is_no_second_run_and_reinit_is(home: Path, observed: Observed) -> None:
    run = start(id="a")
    assert start(id="b") is run  # what W&B does by default
    run.log({"loss": 1.0})
    other = start(id="c", reinit="create_new")
    other.log({"loss": 2.0})
    run.log({"loss": 3.0})
    other.finish()
    third = start(id="d", reinit="finish_previous")
    third.log({"loss": 4.0})
    third.finish()
    ids = {ledger.of("run")[0].payload.aliases[0].id: metrics(ledger, "loss") for ledger in observed.end()}
    assert ids == {"a": {0: 1.0, 1: 3.0}, "c": {0: 2.0}, "d": {0: 4.0}}


def test_a_loss_that_is_not_a_number_is_an_alarm_though_wandb_charts_hide_it(
    home: Path, observed: Observed
) -> None:
    run = start()
    for step, loss in enumerate([1.0, 0.9, math.nan], 1):
        run.log({"train/loss": loss, "eval/loss": math.inf}, step=step)
    run.finish()
    ledger = observed.only()
    (alarm,) = [r.payload for r in ledger.of("alarm") if r.payload.phase == "onset"]
    assert (alarm.code, alarm.signal) == ("LIN-A001", "loss")
    assert ledger.last("first_bad").payload.cell.step == 3  # type: ignore[union-attr]
    assert math.isnan(metrics(ledger, "train/loss")[3])
    assert metrics(ledger, "eval/loss")[1] == math.inf


def test_rows_that_wandb_drops_after_a_rollback_are_kept_and_said(home: Path, observed: Observed) -> None:
    run = start()
    for step in (10, 11, 5, 6):
        run.log({"loss": float(step)}, step=step)
    run.finish()
    ledger = observed.only()
    assert metrics(ledger, "loss") == {10: 10.0, 11: 11.0, 5: 5.0, 6: 6.0}
    assert any("LIN-T001" in g and "step 5" in g for g in ledger.of("coverage")[0].payload.gaps)


def test_a_run_that_began_before_the_observer_is_taken_up_at_its_next_call(
    home: Path, observed: Observed
) -> None:
    lineage.observe.uninstall()
    run = start(id="early", config={"lr": 0.5})
    lineage.observe.install(lineage.observe.Options(dir=str(observed.root), quiet=True, capture=False))
    run.log({"loss": 1.0}, step=4)
    run.finish()
    ledger = observed.only()
    assert metrics(ledger, "loss") == {4: 1.0}
    assert ledger.of("run")[0].payload.aliases[0].id == "early"


def test_nothing_of_the_observer_s_reaches_the_run_s_page(home: Path, observed: Observed) -> None:
    run = start(config={"lr": 0.1}, tags=["mine"])
    run.log({"loss": 1.0})
    observed.settle()
    log = finished(run)
    assert set(log.config) - {"_wandb"} == {"lr"}
    assert {k for row in log.history for k in row if not k.startswith("_")} == {"loss"}
    assert list(log.tags) == ["mine"]
    assert not [f for f in log.files if "lineage" in f]


@pytest.fixture
def backend(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubBackend]:
    """A W&B backend on loopback; runs with mode="online" talk to it."""
    with served(monkeypatch) as stub:
        yield stub


def test_where_no_ledger_knows_a_resumed_run_its_config_is_read_before_wandb_overwrites_it(
    backend: StubBackend, observed: Observed
) -> None:
    """The first segment was made without the observer; online, W&B keeps only the newer value."""
    lineage.observe.uninstall()
    start(id="r1", mode="online", config={"lr": 0.1, "clip": 1.0}).finish()
    lineage.observe.install(lineage.observe.Options(dir=str(observed.root), quiet=True, capture=False))
    run = start(id="r1", mode="online", resume="must", config={"lr": 0.01, "clip": 1.0})
    run.log({"loss": 1.0}, step=7)
    run.finish()
    ledger = observed.only()
    assert ledger.segments[0].info.start == "resume"
    (drift,) = [r.payload for r in ledger.of("drift")]
    assert [(c.concept, c.requested_before.plain(), c.requested_after.plain()) for c in drift.changes] == [
        ("learning_rate", 0.1, 0.01)
    ]


def test_a_tracker_that_does_not_answer_holds_init_up_for_two_seconds_and_changes_nothing(
    backend: StubBackend, observed: Observed
) -> None:
    from lineage.observe import before

    found = lineage.observe.observer()
    assert found is not None
    given = {"id": "r1", "resume": "must", "project": "p"}
    with backend.silent():
        assert before.held(given, found.shared.settings) is None  # comes back, though no answer ever does
    backend.status = 503
    assert before.held(given, found.shared.settings) is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"id": "r1"},
        {"resume": "allow"},
        {"id": "r1", "resume": "never"},
        {"id": "r1", "resume": "must", "mode": "offline"},
    ],
)
def test_nothing_is_read_of_a_run_that_is_not_resumed(
    backend: StubBackend, observed: Observed, given: Any
) -> None:
    from lineage.observe import before

    found = lineage.observe.observer()
    assert found is not None
    assert before.held(given, found.shared.settings) is None
    assert backend.calls == []


def test_two_runs_of_one_script_with_other_configs_are_told_apart_by_the_command_line(
    home: Path, observed: Observed
) -> None:
    from .test_ranks import _lineage

    for lr in (0.1, 0.01):
        run = start(config={"lr": lr, "clip": 1.0})
        run.log({"loss": 1.0}, step=1)
        run.finish()
    first, second = (str(ledger.path) for ledger in observed.end())
    said = _lineage(home, "diff", first, second)
    assert said.returncode == 1, said.stderr
    words = " ".join(said.stdout.split())
    assert "learning rate" in words
    assert "0.1" in words
    assert "0.01" in words
    assert "not shown" in words


def test_a_run_object_that_was_made_without_a_project_is_observed(observed: Observed) -> None:
    run = wandb.Run(settings=wandb.Settings(mode="offline", run_id="bare"))
    wandb_copies = lineage.observe.light.wandb_copies
    wandb_copies.logged((run, {"loss": 1.0}), {}, None)
    observed.settle()
    (ledger,) = observed.end()
    assert [r["value"] for r in ledger.series("metrics").to_pylist()] == [1.0]
