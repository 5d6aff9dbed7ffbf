"""Where the code calls `lineage.attach` too, the observer hands over: one run, one segment, nothing twice."""

from __future__ import annotations

from pathlib import Path

import mlflow
import torch

from tests.recorder.loop import Loop

from .conftest import Observed
from .test_mlflow import store  # noqa: F401 - a fixture
from .test_wandb import start


def attached(root: Path, run: object, loop: Loop, **more: object):  # type: ignore[no-untyped-def]
    import lineage

    return lineage.attach(run, dir=root, quiet=True, report=False, **loop.objects, **more)


def test_attached_before_the_first_row_the_observer_only_passes_on_what_is_logged(
    home: Path, observed: Observed
) -> None:
    loop, run = Loop(), start(id="r1", config={"lr": 0.1})
    with attached(observed.root, run, loop) as rec:
        for loss in loop.run(rec, 3):
            run.log({"loss": loss})
        torch.save(loop.model.state_dict(), home / "ck.pt")
        rec.checkpoint(home / "ck.pt", step=3)
    run.finish()
    ledger = observed.only()
    (segment,) = ledger.segments
    assert "observed" not in segment.info.settings
    assert len(ledger.of("run")) == len(ledger.of("coverage")) == len(ledger.of("segment_end")) == 1
    assert len({r.payload.uid for r in ledger.of("checkpoint")}) == 1
    rows = ledger.series("metrics").to_pylist()
    assert {r["key"] for r in rows} == {"loss"}
    own = {r["step"]: r["value"] for r in ledger.series("probes").to_pylist() if r["signal"] == "loss"}
    assert [r["value"] for r in rows] == [own[s] for s in (1, 2, 3)]
    assert {r["signal"] for r in ledger.series("probes").to_pylist()} >= {"loss", "lr"}


def test_attached_after_the_first_rows_the_same_run_and_segment_go_on(home: Path, observed: Observed) -> None:
    loop, run = Loop(), start(id="r1", config={"lr": 0.1})
    run.log({"setup": 1.0}, step=0)
    observed.settle()
    with attached(observed.root, run, loop) as rec:
        loop.run(rec, 3)
        run.log({"loss": 1.0}, step=3)
    run.finish()
    ledger = observed.only()
    (segment,) = ledger.segments
    assert segment.info.start == "fresh"
    assert len({r.file for r in ledger.records}) == 2  # the observer's journal, and the recorder's
    assert ledger.of("degraded") == []  # no other process writes for this rank
    assert len(ledger.of("segment_end")) == 1
    assert [r["key"] for r in ledger.series("metrics").to_pylist()] == ["setup", "loss"]
    newest = ledger.of("segment")[-1]
    assert newest.supersedes == ledger.of("segment")[0].id
    assert newest.step == 0 or newest.step is None


def test_an_mlflow_run_is_handed_over_and_the_next_run_is_observed_again(
    store: str,  # noqa: F811
    observed: Observed,
) -> None:
    loop = Loop()
    with mlflow.start_run() as run, attached(observed.root, run, loop, config={"lr": 0.1}) as rec:
        loop.run(rec, 2)
        mlflow.log_metric("loss", 1.0, step=2)
    with mlflow.start_run(run_name="second"):
        mlflow.log_metric("loss", 0.5, step=1)
    first, second = observed.end()
    assert [(r["key"], r["step"]) for r in first.series("metrics").to_pylist()] == [("loss", 2)]
    assert second.of("run")[0].payload.name == "second"
    assert second.series("metrics").num_rows == 1
