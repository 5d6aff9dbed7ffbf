"""What the pinned verdict and the advice say of quarantine, in whatever order the records come."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from trackers.wandb_.adapter import WandbTracker

from . import builders as b
from .conftest import finished

RESUMED = "**Resumed from a quarantined checkpoint**: "


def records(checkpoint: str) -> list[Any]:
    found = schemas.Finding(
        code="LIN-C006",
        check="quarantine/1",
        severity="fault",
        subject="resume",
        text="this segment resumes from the checkpoint of step 40, which is quarantined",
        names=[checkpoint],
        remedy="resume from a checkpoint from before it: step 20 (abc); all since descends from a bad state",
    )
    mark = schemas.CheckpointMark(checkpoint=checkpoint, mark="quarantined", why="saved after step 33")
    return [b.record(b.verdict(41, loss_curve="broken")), b.record(found), b.record(mark)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_verdict_finding_and_mark_give_one_pinned_text_in_any_order(
    start: Any, page: Any, order: Any
) -> None:
    run, made = start(), records(b.uid())
    tracker = WandbTracker(run)
    for n in order:
        tracker.show(made[n], page)
    log = finished(run)
    parts = log.config["lineage/verdict"].split("\n\n")
    assert parts[0].startswith("**Broken since step 41")
    assert parts[1].startswith(RESUMED)
    assert parts[2].startswith("**Quarantined**: do not resume from")
    assert parts[3].startswith("Next: `lineage diff ")
    advice = log.summary["lineage/advice"]
    assert advice.startswith("its parent is quarantined: resume from step 20 (")
    assert advice.count(" | ") == 1


def test_a_quarantine_that_was_taken_back_leaves_pinned_text_and_advice(start: Any, page: Any) -> None:
    run, uid = start(), b.uid()
    tracker = WandbTracker(run)
    for made in records(uid):
        tracker.show(made, page)
    lifted = schemas.CheckpointMark(checkpoint=uid, mark="quarantine_lifted", why="it was right")
    tracker.show(b.record(lifted), page)
    log = finished(run)
    assert "uarantined" not in log.config["lineage/verdict"]
    assert log.summary["lineage/advice"].startswith("lineage diff ")


def test_the_advice_of_a_healthy_run_is_that_nothing_needs_doing(start: Any, page: Any) -> None:
    run = start()
    WandbTracker(run).show(b.record(b.verdict(loss_curve="holds")), page)
    assert finished(run).summary["lineage/advice"].startswith("nothing needs doing")
