"""Which checkpoints must not be deleted, by the records alone. Real loops: tests/recorder/test_protection.py."""

from __future__ import annotations

from typing import Any

import schemas
from lineage.judge.protected import protected

from .builders import History, uid
from .test_quarantined import alarm, cell, mark, trunk


def incident(**fields: Any) -> schemas.Incident:
    return schemas.Incident(**{"uid": uid(500), "title": "loss is NaN", **fields})


def held(h: History, **more: Any) -> dict[int, str]:
    """Number of the checkpoint -> why."""
    return {int(u[-6:]): why for u, why in protected(h.records, **more).why.items()}


def test_without_incident_alarm_or_mark_nothing_is_held() -> None:
    assert held(trunk()) == {}


def test_an_alarm_holds_both_sides_of_it_and_one_whose_state_cannot_be_in_doubt() -> None:
    """A NaN in the loss may come from weights that went bad two updates before."""
    h = trunk()
    h.checkpoint(19, 1, 19)
    h.add(alarm(20), 1, step=20)
    found = held(h)
    assert set(found) == {10, 19, 20}
    assert "not in doubt" in found[10]


def test_a_slow_rise_holds_nothing() -> None:
    h = trunk()
    h.add(alarm(20, "slow_rise"), 1, step=20)
    assert held(h) == {}


def test_ranks_that_differ_hold_too() -> None:
    h = trunk()
    h.add(alarm(20, "differs").model_copy(update={"signal": "replicas"}), 1, step=20)
    assert set(held(h)) == {10, 20}


def test_once_it_is_named_and_closed_an_alarm_holds_no_more_and_a_later_one_does() -> None:
    h = trunk()
    h.add(alarm(15), 1, step=15)
    h.add(cell(1, 15), 1, step=30)
    opened = incident(first_bad_step=15, last_good_checkpoint=uid(10))
    h.add(opened, 1)
    assert set(held(h)) == {10, 20}
    h.add(opened.model_copy(update={"status": "closed"}), 1)
    assert held(h) == {}
    h.add(alarm(25), 1, step=25)
    assert set(held(h)) == {20, 30}


def test_evidence_that_is_held_does_not_close_an_incident() -> None:
    h = trunk()
    h.add(incident(first_bad_step=15, last_good_checkpoint=uid(10), status="evidence_held"), 1)
    assert set(held(h)) == {10, 20}


def test_the_branch_that_is_meant_is_the_incidents_own() -> None:
    h = trunk()
    h.segment(2, parent=10, at=10)
    h.checkpoint(12, 2, 12)
    h.checkpoint(16, 2, 16)
    h.add(incident(first_bad_step=14), 2)
    assert set(held(h)) == {12, 16}


def test_a_save_that_is_under_way_is_wanted_by_its_step() -> None:
    h = trunk()
    h.add(schemas.Checkpoint(uid=uid(35), step=35, status="pending"), 1, step=35)
    h.add(incident(first_bad_step=38), 1)
    found = protected(h.records)
    assert list(found.pending) == [35]
    assert {int(u[-6:]) for u in found.why} == {30}


def test_a_save_that_stayed_under_way_in_an_older_segment_is_not_waited_for() -> None:
    h = trunk()
    h.add(schemas.Checkpoint(uid=uid(35), step=35, status="pending"), 1, step=35)
    h.segment(2, parent=30, at=30)
    h.add(incident(first_bad_step=38), 2)
    assert protected(h.records).pending == {}


def test_what_is_held_by_hand_stays_so_until_it_is_released() -> None:
    h = trunk()
    h.add(mark(20, "held", "for the paper"), 1)
    assert held(h) == {20: "it is held by hand: for the paper"}
    h.add(mark(20, "released"), 1)
    assert held(h) == {}


def test_a_release_does_not_free_what_an_open_incident_needs() -> None:
    h = trunk()
    h.add(incident(first_bad_step=15, last_good_checkpoint=uid(10)), 1)
    h.add(mark(10, "released"), 1)
    assert set(held(h)) == {10, 20}


def test_a_release_after_a_false_alarm_frees_what_it_held() -> None:
    h = trunk()
    h.add(alarm(20), 1, step=20)
    for n in (10, 20):
        h.add(mark(n, "released"), 1)
    assert held(h) == {}


def test_what_was_preserved_by_a_move_is_held_and_what_was_copied_only_while_no_copy_is_there() -> None:
    h = trunk()
    for n, method in ((10, "moved"), (20, "copy")):
        kept = h.add(
            schemas.Preserved(
                what="checkpoint",
                source="/x",
                location=f"evidence/{n}",
                root="sha256:00",
                files=1,
                bytes=1,
                method=method,
                verified=True,
            ),
            1,
        )
        h.add(mark(n, "preserved", evidence=[kept.id]), 1)
    assert set(held(h)) == {10, 20}
    assert set(held(h, stored=lambda location: True)) == {10}
