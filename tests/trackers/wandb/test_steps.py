"""Our rows never cost the user one of theirs, and are not lost themselves."""

from __future__ import annotations

from typing import Any

import pytest

from trackers.wandb_.adapter import WandbTracker

from . import builders as b
from .conftest import finished


def column(history: list[dict[str, Any]], key: str) -> list[Any]:
    return [row[key] for row in history if key in row]


def points(history: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(r["lineage/step"], r["lineage/regime"]) for r in history if "lineage/regime" in r]


def test_a_row_that_the_user_builds_up_with_step_survives_our_point(start, page):
    run = start()
    tracker = WandbTracker(run)
    run.log({"a": 1}, step=5)
    tracker.show(b.record(b.regime(1, 5)), page)
    run.log({"b": 2}, step=5)
    run.log({"a": 3}, step=6)
    log = finished(run)
    (row,) = [r for r in log.history if r["_step"] == 5]
    assert (row["a"], row["b"]) == (1, 2)
    assert points(log.history) == [(5, 1)]
    assert column(log.history, "a") == [1, 3]


def test_the_steps_of_plain_logging_stay_what_they_would_be_without_us(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(0, 1)), page)
    for n in range(3):
        run.log({"loss": n})
        tracker.show(b.record(b.regime(n + 1, 10 * (n + 1))), page)
    log = finished(run)
    assert [(r["_step"], r["loss"]) for r in log.history if "loss" in r] == [(0, 0), (1, 1), (2, 2)]
    assert points(log.history) == [(1, 0), (10, 1), (20, 2), (30, 3)]


def test_a_point_in_a_row_that_nobody_closes_is_written_at_finish(start, page):
    run = start()
    run.log({"loss": 1})
    WandbTracker(run).show(b.record(b.regime(1, 7)), page)
    log = finished(run)
    assert points(log.history) == [(7, 1)]


@pytest.mark.parametrize("steps", [True, False])
def test_several_points_wait_for_rows_of_their_own(start, page, steps):
    run = start()
    tracker = WandbTracker(run)
    for index, step in enumerate((1, 10, 20)):
        tracker.show(b.record(b.regime(index, step)), page)
    for n in range(1, 6):
        run.log({"loss": n}, **({"step": n} if steps else {}))
        tracker.show(b.record(b.checkpoint(1, status="pending")), page)
    tracker.close()
    log = finished(run)
    assert points(log.history) == [(1, 0), (10, 1), (20, 2)]
    assert column(log.history, "loss") == [1, 2, 3, 4, 5]


def test_closing_writes_the_newest_waiting_point(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(0, 1)), page)
    tracker.show(b.record(b.regime(1, 10)), page)
    tracker.close()
    log = finished(run)
    assert points(log.history) == [(10, 1)]
    assert log.config["lineage/regime/001"]["from_step"] == 1


def test_points_go_backwards_with_a_rollback_while_the_tracker_drops_the_user_s_old_step(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(0, 1)), page)
    for step in (50, 100):
        run.log({"loss": step}, step=step)
    tracker.show(b.record(b.regime(1, 100)), page)
    run.log({"loss": 51}, step=51)  # after a rollback: W&B drops it, whatever we do
    run.log({"loss": 101}, step=101)
    tracker.show(b.record(b.regime(2, 51), segment=b.SECOND_SEGMENT), page)
    log = finished(run)
    assert points(log.history) == [(1, 0), (100, 1), (51, 2)]
    assert column(log.history, "loss") == [50, 100, 101]
    assert log.config["lineage/regime/002"]["from_step"] == 51


def test_our_step_axis_holds_against_a_catch_all_of_the_user_s(start, page):
    run = start()
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    run.log({"train/global_step": 4, "loss": 1.0})
    WandbTracker(run).show(b.record(b.regime(1, 5)), page)
    log = finished(run)
    assert log.metrics["lineage/regime"]["step_metric"] == "lineage/step"
    assert points(log.history) == [(5, 1)]


def test_a_checkpoint_carries_the_line_of_its_regime_on(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(3, 1)), page)
    run.log({"loss": 1})
    checkpoint = b.record(b.checkpoint(40))
    tracker.show(checkpoint, page)
    run.log({"loss": 2})
    tracker.show(checkpoint, page)
    run.log({"loss": 3})
    assert points(finished(run).history) == [(1, 3), (40, 3)]


def test_an_html_panel_leaves_the_open_row_open(start, tmp_path):
    run = start()
    (tmp_path / "report.html").write_text("<p>x</p>")
    run.log({"a": 1}, step=5)
    WandbTracker(run).publish(tmp_path / "report.html", "report.html")
    run.log({"b": 2}, step=5)
    (row,) = [r for r in finished(run).history if r["_step"] == 5]
    assert (row["a"], row["b"]) == (1, 2)
    assert "lineage/report" in row


def test_a_sole_writer_commits_its_points(start, page):
    run = start()
    tracker = WandbTracker(run, sole_writer=True)
    tracker.show(b.record(b.regime(0, 1)), page)
    tracker.show(b.record(b.regime(1, 10)), page)
    assert points(finished(run).history) == [(1, 0), (10, 1)]
