"""What survives of a run and what was abandoned, in the words that stand on a tracker's page."""

from __future__ import annotations

from lineage.judge import branches
from lineage.judge.graph import build

from .builders import History, uid


def told(h: History, **pages: str) -> str:
    """The words, with pages by the number of the segment."""
    return branches.words(build(h.records), "r", {uid(int(n[1:])): p for n, p in pages.items()})


def test_a_run_that_goes_on_from_its_last_state_on_one_page_says_nothing() -> None:
    h = History()
    h.segment(1, steps=10)
    h.checkpoint(20, 1, 10)
    h.segment(2, parent=20, at=10)
    assert told(h) == ""


def test_a_rollback_leaves_the_tail_and_a_second_try_leaves_the_whole_first_one() -> None:
    h = History()
    h.segment(1, steps=10)
    h.checkpoint(20, 1, 6)
    h.segment(2, parent=20, at=6, steps=3)
    h.segment(3, parent=20, at=6, steps=1)
    assert told(h) == (
        "This run stands on segment 1 to step 6, then segment 3 from step 7. "
        "Abandoned: steps 7 to 10 of segment 1; steps 7 to 9 of segment 2"
    )


def test_a_segment_that_left_a_single_step_is_named_with_its_page() -> None:
    h = History()
    h.segment(1, steps=7)
    h.checkpoint(20, 1, 6)
    h.segment(2, parent=20, at=6)
    assert told(h, p1="W&B run r1") == (
        "This run stands on segment 1 (W&B run r1) to step 6, then segment 2 from step 7. "
        "Abandoned: step 7 of segment 1 (W&B run r1)"
    )


def test_segments_on_other_pages_are_told_of_also_where_nothing_was_left() -> None:
    h = History()
    h.segment(1, steps=10)
    h.checkpoint(20, 1, 10)
    h.segment(2, parent=20, at=10)
    assert told(h, p1="MLflow run a") == (
        "This run stands on segment 1 (MLflow run a) to step 10, then segment 2 from step 11"
    )


def test_a_fork_abandons_nothing_of_the_run_that_it_left() -> None:
    h, other = History(), History("fork", 200_000)
    h.segment(1, steps=10)
    h.checkpoint(20, 1, 6)
    other.segment(50, parent=20, at=6, start="fork")
    g = build([*h.records, *other.records])
    assert [branches.words(g, run, {}) for run in ("r", "fork")] == ["", ""]


def test_a_campaign_of_many_restarts_stays_readable() -> None:
    """The newest parts are named, the others counted."""
    h = History()
    h.segment(1, steps=10)
    for n in range(2, 60):
        h.checkpoint(1000 + n, n - 1, 5 * (n - 1))
        h.segment(n, parent=1000 + n, at=5 * (n - 1), steps=10)
    words = told(h)
    assert words.startswith(
        "This run stands on 53 earlier segments, then segment 54 from step 266 to step 270, "
    )
    assert "Abandoned: 52 earlier parts; steps 266 to 270 of segment 53; " in words
    assert len(words) < 900
