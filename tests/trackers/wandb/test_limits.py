"""Values and names beyond what W&B takes, or takes to be something else: all are shown, or said to be shortened."""

from __future__ import annotations

import schemas
from trackers.wandb_.adapter import WandbTracker
from trackers.wandb_.checkpoints import LONGEST_NAME, _name

from . import builders as b
from .conftest import finished


def unknown(key: str, before: object, after: object) -> schemas.Change:
    """A change of a key that no concept is known for."""
    return schemas.Change(
        concept="unclassified",
        cls="unclassified",
        title=key,
        keys=[key],
        requested_before=b.scalar(before),
        requested_after=b.scalar(after),
        text=f"{key} {before} -> {after}",
    )


def test_every_unclassified_change_is_shown_also_of_keys_that_w_b_would_take_for_one(start, page):
    """W&B takes a dot in a config key for nesting, so none is written."""
    run = start()
    changes = [unknown("a.b", 1, 2), unknown("a/b", 3, 4), *(unknown(f"k{n}", n, n + 1) for n in range(500))]
    WandbTracker(run).show(b.record(b.drift(unclassified=changes)), page)
    shown = finished(run).config["lineage/drift/001"]["unclassified"]
    assert len(shown) == 502
    assert [shown[k]["requested_after"] for k in ("a/b", "a/b/2", "k499")] == [2, 4, 500]


def test_a_long_value_says_that_it_was_shortened_and_how_long_it_is(start, page):
    run = start()
    WandbTracker(run).show(b.record(b.drift(b.change("template", "short", "日本 " * 4000))), page)
    shown = finished(run).config["lineage/drift/001"]["template"]
    assert shown["requested_before"] == "short"
    assert "12,000 characters" in shown["requested_after"]


def test_metrics_whose_last_value_no_chart_shows_are_named_at_the_end_of_a_segment(start, page):
    run = start()
    tracker = WandbTracker(run)
    end = schemas.SegmentEnd(reason="finished", last_step=2)
    run.log({"loss": 1.0, "words": "NaN is a word"})
    assert tracker.show(b.record(end), page) is None
    run.log({"loss": float("nan"), "ppl": float("inf"), "ok": 1.0})
    tracker.show(b.record(end), page)
    note = finished(run).summary["lineage/notes/LIN-T003"]
    assert note == "the last value of loss, ppl is not finite: charts leave it out"


def test_no_two_runs_have_checkpoints_of_one_artifact_name():
    ids = ["plain-7", "a/b", "a_b", "ü", "é", "w" * 200 + "1", "w" * 200 + "2"]
    names = [_name(i) for i in ids]
    assert len(set(names)) == len(ids)
    assert max(map(len, names)) <= LONGEST_NAME
    assert names[0] == "checkpoint-plain-7"


def test_ten_thousand_metrics_of_the_user_s_are_kept_beside_ours(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(0, 1)), page)
    run.log({f"schicht {n}/größe": float(n) for n in range(10_000)}, step=1)
    tracker.show(b.record(b.verdict(1, loss_curve="broken")), page)
    log = finished(run)
    (row,) = [r for r in log.history if "schicht 9999/größe" in r]
    assert len([k for k in row if k.startswith("schicht")]) == 10_000
    assert [r["lineage/regime"] for r in log.history if "lineage/regime" in r] == [0]
    assert log.summary["lineage/status"] == "broken"
