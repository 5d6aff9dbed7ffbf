"""Events beside a bad step: within a window, its node first, and an hour that is not known is not told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import schemas
from lineage.judge.events_near import ELSEWHERE, LABEL, WINDOW, near, unsure
from lineage.judge.events_run import Placed, Steps

AT = datetime(2026, 11, 29, 16, 0, 0, tzinfo=UTC)


def placed(seconds: float, node: str = "n-1", ranks: tuple[int, ...] = (3,), **more: Any) -> Placed:
    """An event so many seconds after the bad step, on a node."""
    fields: dict[str, Any] = {
        "key": "sha256:00",
        "when": AT + timedelta(seconds=seconds),
        "zone": "stated",
        "nodes": [node],
        "category": "ecc",
        "severity": "fault",
        "text": "an error",
        "source": schemas.EventSource(format="kernel"),
        **more,
    }
    return Placed(schemas.Event(**fields), "record", segment="s", number=1, ranks=ranks, by="node")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, True), (-600, True), (600, True), (-601, False), (601, False), (86_400, False)]
)
def test_what_lies_within_the_window_is_told_and_nothing_else(seconds: float, told: bool) -> None:
    assert timedelta(minutes=10) == WINDOW
    assert bool(near([placed(seconds)], "s", 3, "n-1", AT)) == told


def test_an_event_that_lasted_over_the_step_is_near_however_early_it_began() -> None:
    long = placed(-7_200, until=AT + timedelta(seconds=5))
    (found,) = near([long], "s", 3, "n-1", AT)
    assert found.seconds == 0.0


def test_its_node_comes_first_then_faults_of_other_nodes_and_each_says_that_it_is_no_cause() -> None:
    """A note of another node is left out; a note of its own node is told."""
    events = [
        placed(1, node="n-2", ranks=(9,)),
        placed(2, severity="note"),
        placed(3, node="n-2", ranks=(9,), severity="note"),
        placed(-50),
    ]
    found = near(events, "s", 3, "n-1", AT)
    assert [(n.label, n.seconds) for n in found] == [(LABEL, -50.0), (LABEL, 2.0), (ELSEWHERE, 1.0)]
    assert all("not shown to be the cause" in n.text() for n in found)


def test_an_event_whose_zone_is_not_stated_is_counted_and_not_told_as_of_that_time() -> None:
    events = [
        placed(0, zone="assumed"),
        placed(3_600 * 13, zone="assumed"),
        placed(3_600 * 15, zone="assumed"),
    ]
    assert near(events, "s", 3, "n-1", AT) == []
    assert unsure(events, AT) == 2


def test_nothing_is_near_a_step_whose_time_is_not_known() -> None:
    assert near([placed(0)], "s", 3, "n-1", None) == []
    assert unsure([placed(0, zone="assumed")], None) == 0


def test_an_event_of_no_node_is_near_by_its_rank_in_that_segment_only() -> None:
    """Rank 3 of another segment is another process."""
    here = placed(0, nodes=[])
    other = replace(here, segment="t")
    assert [n.label for n in near([here, other], "s", 3, "n-1", AT)] == [LABEL, ELSEWHERE]


def test_steps_around_a_time_are_the_last_recorded_before_it_and_the_first_after() -> None:
    steps = Steps([1, 2, 3], [AT, AT + timedelta(seconds=10), AT + timedelta(seconds=20)])
    second = timedelta(seconds=1)
    assert steps.around(AT - second, AT - second) == (None, 1)
    assert steps.around(AT + second, AT + second) == (1, 2)
    assert steps.around(AT + second, AT + 11 * second) == (1, 3)
    assert steps.around(AT + 99 * second, AT + 99 * second) == (3, None)
