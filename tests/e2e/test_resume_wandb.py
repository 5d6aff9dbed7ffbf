"""A resume with another learning rate and clip, beside a user's own W&B run: offline, and online."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.loop import Loop, only
from tests.trackers.wandb.stub_backend import StubBackend

from .training import CHANGED, FIRST, attach, finished, logged, points, resumed, start_wandb, train


def sides(drift: dict[str, Any], concept: str) -> tuple[Any, ...]:
    """Requested before and after, effective before and after."""
    names = ("requested_before", "requested_after", "effective_before", "effective_after")
    return tuple(drift[concept][n] for n in names)


def test_offline_each_segment_is_a_log_of_its_own_and_the_later_one_shows_both_values(home: Path) -> None:
    root, ck = home / "runs", home / "ck"
    run, loop = start_wandb(id="r1", config=FIRST, tags=["mine"]), Loop()
    with attach(loop, root, run=run) as rec:
        before = train(loop, rec, 5, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=5)
    first = finished(run)

    run, loop = start_wandb(id="r1", config=CHANGED, tags=["mine"], resume="allow"), resumed(ck)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        after = train(loop, rec, 9, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(home / "ck9"), step=9)
    second = finished(run)

    # the user's own: every row, config, tags
    assert logged(first.history) == pytest.approx(before)
    assert logged(second.history) == pytest.approx(after)
    assert sorted(after) == [6, 7, 8, 9]
    assert (first.config["lr"], first.config["clip"]) == (0.1, 1)
    assert (second.config["lr"], second.config["clip"]) == (0.01, 0.3)
    assert (first.tags, second.tags) == (("mine",), ("mine", "lineage:broken"))
    # old and new beside each other
    drift = second.config["lineage/drift/002"]
    assert sides(drift, "learning_rate") == (0.1, 0.01, 0.1, 0.01)
    assert sides(drift, "grad_clip") == (1, 0.3, 1, 0.3)
    assert drift["confounded"] is True
    assert first.config["lineage/segments/001"]["config"] != second.config["lineage/segments/002"]["config"]
    # the regime against the user's steps, the verdict, the alert
    assert points(first.history)[0] == (1, 0)
    assert points(second.history)[0] == (6, 1)
    assert {regime for _, regime in points(second.history)} == {1}
    assert second.metrics["lineage/regime"]["step_metric"] == "lineage/step"
    assert second.summary["lineage/status"] == "broken"
    assert second.summary["lineage/broken_since_step"] == 6
    assert second.pinned == ["lineage/verdict"]
    assert "gradient clipping 1 -> 0.3" in second.config["lineage/verdict"]
    assert [a.level for a in second.alerts] == ["ERROR"]
    assert (first.alerts, first.summary["lineage/status"]) == ([], "holds")
    # checkpoints with their parent, the anchor, the journal
    (parent,), (child,) = first.artifacts, second.artifacts
    assert child.type == "checkpoint"
    assert child.metadata["parents"] == [parent.metadata["checkpoint"]]
    assert {"step-9", child.metadata["checkpoint"]} <= set(child.aliases)
    anchors = {r.payload.root for r in only(root).of("anchor")}
    assert {first.config["lineage/anchor"]["root"], second.config["lineage/anchor"]["root"]} <= anchors
    for log in (first, second):
        assert any(f.startswith("lineage/journal/") for f in log.files)


@pytest.mark.parametrize("resume", ["must", "allow"])
def test_online_the_page_shows_both_values_after_the_user_has_updated_the_config(
    backend: StubBackend, home: Path, resume: str
) -> None:
    root, ck = home / "runs", home / "ck"
    run, loop = start_wandb(mode="online", id="r1", config=FIRST, tags=["mine"]), Loop()
    with attach(loop, root, run=run) as rec:
        before = train(loop, rec, 5, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=5)
    run.finish()

    run, loop = start_wandb(mode="online", id="r1", resume=resume), resumed(ck)
    run.config.update(CHANGED, allow_val_change=True)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        after = train(loop, rec, 9, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(home / "ck9"), step=9)
    run.finish()

    page = backend.runs["r1"]
    assert logged(page.history) == pytest.approx(before | after)
    assert (page.values["lr"], page.values["clip"]) == (0.01, 0.3)  # W&B itself has lost the old ones
    drift = page.values["lineage/drift/002"]
    assert sides(drift, "learning_rate") == (0.1, 0.01, 0.1, 0.01)
    assert sides(drift, "grad_clip") == (1, 0.3, 1, 0.3)
    first, second = page.values["lineage/segments/001"], page.values["lineage/segments/002"]
    assert first["config"] != second["config"]
    assert page.values["lineage/segments/002/start"]["parent_step"] == 5
    starts = [p for p in points(page.history) if p in ((1, 0), (6, 1))]
    assert starts == [(1, 0), (6, 1)]
    assert page.tags == ["mine", "lineage:broken"]
    assert page.summary["lineage/status"] == "broken"
    assert page.pinned == ["lineage/verdict"]
    assert len(backend.alerts) == 1
    parent, child = backend.artifact("step-5"), backend.artifact("step-9")
    assert backend.uses == [parent.id]
    assert json.loads(child.given["metadata"])["parents"] == [
        json.loads(parent.given["metadata"])["checkpoint"]
    ]
    assert page.values["lineage/anchor"]["root"] in {r.payload.root for r in only(root).of("anchor")}
    assert any(name.startswith("r1/lineage/journal/") for name in backend.files)


def test_a_short_segment_still_shows_where_its_regime_began(home: Path) -> None:
    """Where all of a segment's records reach the page during its last row, the regime's first point counts."""
    run, loop = start_wandb(id="r1", config=FIRST), Loop()
    with attach(loop, home / "runs", run=run) as rec:
        train(loop, rec, 5, lambda step, loss: run.log({"loss": loss}, step=step), slow=False)
        rec.checkpoint(loop.save(home / "ck"), step=5)
    assert points(finished(run).history)[0] == (1, 0)
