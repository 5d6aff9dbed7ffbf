"""Where an entry stands in its run, and what is odd about it."""

from __future__ import annotations

import pytest

from lineage.judge import placing

from ..judge.reported_builders import entry


def test_an_entry_without_step_or_restart_stands_at_the_head_of_its_run() -> None:
    """A lower bound: by then the run had come at least that far."""
    placed = placing.place(
        [
            entry("lr", 1, 2),
            entry("grad_clip", 1.0, 0.3, step=900),
            entry("data_mix", "a", "b"),
            entry("rollback", restart=500),
            entry("optimizer", "a", "b"),
        ]
    )
    assert [(e.placed_at, e.placed_by) for e in placed] == [
        (None, "nothing"),
        (900, "step"),
        (900, "neighbours"),
        (500, "restart"),
        (500, "neighbours"),
    ]


def test_a_step_that_goes_back_without_a_restart_is_said() -> None:
    """A typing error, or a restart that nobody wrote down."""
    placed = placing.place([entry("lr", 1, 2, step=32_000), entry("lr", 2, 3, step=23_100)])
    assert placed[1].problems == [
        "step 23100 stands after step 32000 in the source, and no restart to or before it is named"
    ]
    with_restart = placing.place(
        [entry("lr", 1, 2, step=32_000), entry("lr", 2, 3, step=23_100, restart=23_100)]
    )
    assert with_restart[1].problems == []


def test_a_date_that_goes_back_is_said_at_the_precision_that_both_have() -> None:
    """A month is not before a day of that month."""
    odd = placing.place([entry("lr", 1, 2, date="2021-12-03"), entry("lr", 2, 3, date="2021-11-30")])
    fine = placing.place([entry("lr", 1, 2, date="2021-12-03"), entry("lr", 2, 3, date="2021-12")])
    assert odd[1].problems == ["dated 2021-11-30, and stands after an entry dated 2021-12-03"]
    assert fine[1].problems == []


def test_skip_ranges_are_checked_against_the_restart() -> None:
    """The range of the entry itself is named."""
    (placed,) = placing.place([entry("batch_skip", "none", "16651-19500", restart=16_651)])
    assert "begins at or before the restart from 16651" in placed.problems[0]


@pytest.mark.parametrize("restart", [20_000, 2001])
def test_a_restart_from_a_state_after_its_own_step_places_nothing(restart: int) -> None:
    """20000 where 2000 was meant, and a state one step too late: the entry stands at its step, and it is said."""
    placed = placing.place([entry("grad_clip", 1.0, 0.5, step=2000, restart=restart), entry("lr", 1, 2)])
    first, second = placed
    assert (first.placed_at, first.placed_by, first.restart_from) == (2000, "step", None)
    assert first.extra["restart_from_as_written"].plain() == restart
    assert f"restarts from {restart}, which is after its own step 2000" in first.problems[0]
    assert (second.placed_at, second.placed_by) == (2000, "neighbours")


def test_a_restart_from_the_step_itself_is_as_it_should_be() -> None:
    """State and step are the same count."""
    (placed,) = placing.place([entry("grad_clip", 1.0, 0.5, step=2000, restart=2000)])
    assert (placed.restart_from, placed.problems) == (2000, [])


def test_ranges_are_checked_against_the_restart_as_it_is_written() -> None:
    """Overlap and the update that the state has already, both."""
    (placed,) = placing.place(
        [entry("batch_skip", None, "11001-11200 + 11100-11300", step=11_000, restart=11_001)]
    )
    assert [p for p in placed.problems if p.startswith("the range")] == [
        "the ranges 11001-11200 and 11100-11300 overlap by 101",
        "the range 11001-11200 begins at or before the restart from 11001: 1 of its updates are already in that state",
    ]


def test_a_contradiction_is_said_beside_the_human_entry() -> None:
    """The machine's value stands, and the reader sees both."""
    human = entry("global_batch", 1536, 2048, step=4000)
    machine = entry("global_batch_size", 1536, 1792, step=4000, authority="machine", source="launch.json")
    placed = placing.place([human, machine])
    assert placed[0].problems == ["launch.json says otherwise: 1536 -> 1792; the machine's value stands"]
    assert placed[1].problems == []
