"""Quarantine by the records alone: which checkpoints, why, who resumed from one, and what was taken back."""

from __future__ import annotations

from typing import Any

import schemas
from lineage.judge.firstbad import first_bad
from lineage.judge.graph import build
from lineage.judge.quarantined import Quarantine, findings, quarantine

from .builders import History, uid


def cell(segment: int, step: int) -> schemas.FirstBad:
    """A first bad cell."""
    return schemas.FirstBad(
        cell=schemas.Cell(
            segment=uid(segment),
            rank=3,
            step=step,
            signal="loss",
            abnormal="non_finite",
            value=float("nan"),
            text="loss is NaN",
        )
    )


def alarm(step: int, abnormal: Any = "non_finite") -> schemas.Alarm:
    """An alarm's onset."""
    return schemas.Alarm(
        code="LIN-A001",
        phase="onset",
        signal="loss",
        scope="rank",
        abnormal=abnormal,
        value=float("nan"),
        text="loss is NaN",
    )


def mark(n: int, mark: Any, why: str = "by hand", **more: Any) -> schemas.CheckpointMark:
    return schemas.CheckpointMark(checkpoint=uid(n), mark=mark, why=why, **more)


def trunk() -> History:
    """Segment 1 with checkpoints 10, 20 and 30 at those steps."""
    h = History()
    h.segment(1, steps=30)
    for n in (10, 20, 30):
        h.checkpoint(n, 1, n)
    return h


def bad(found: Quarantine) -> set[str]:
    return set(found.bad)


def uids(*numbers: int) -> set[str]:
    return {uid(n) for n in numbers}


def codes(h: History, **more: Any) -> list[tuple[str, str]]:
    """(segment, code) of all findings."""
    return [(segment, f.code) for segment, f in findings(h.records, **more)]


def test_where_nothing_is_bad_nothing_is_quarantined() -> None:
    found = quarantine(trunk().records)
    assert (found.bad, found.lifted, found.unmarked) == ({}, {}, [])
    assert codes(trunk()) == []


def test_a_checkpoint_of_the_first_bad_step_holds_the_state_after_it_and_the_one_before_does_not() -> None:
    h = trunk()
    named = h.add(cell(1, 20), 1, step=30)
    found = quarantine(h.records)
    assert bad(found) == uids(20, 30)
    assert found.bad[uid(20)].why == (
        "saved at or after step 20, where rank 3 shows: loss is NaN (first bad cell)"
    )
    assert found.bad[uid(20)].evidence == (named.id,)
    h = trunk()
    h.add(cell(1, 21), 1, step=30)
    assert bad(quarantine(h.records)) == uids(30)


def test_all_that_descends_from_it_is_quarantined_over_any_number_of_resumes_and_grafts() -> None:
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.segment(2, parent=30, at=30)
    h.checkpoint(40, 2, 40, parents=(30,))
    h.segment(3, parent=40, at=40)
    h.checkpoint(50, 3, 50)
    h.segment(4, parent=10, at=10)  # another branch, from before it
    h.checkpoint(15, 4, 15)
    h.checkpoint(16, 4, 16, parents=(15, 50))  # a merge with a bad one
    found = quarantine(h.records)
    assert bad(found) == uids(30, 40, 50, 16)
    why = found.bad[uid(50)].why
    assert why.startswith(
        f"it descends from the quarantined checkpoint of step 30 ({uid(30)}): saved at or after"
    )


def test_an_alarm_counts_until_the_first_bad_cell_is_named_and_a_slow_rise_never() -> None:
    h = trunk()
    h.add(alarm(15, "slow_rise"), 1, step=15)
    assert bad(quarantine(h.records)) == set()
    h.add(alarm(20), 1, step=20)
    found = quarantine(h.records)
    assert bad(found) == uids(20, 30)
    assert "the first bad cell is not named yet" in found.bad[uid(20)].why
    h.add(cell(1, 25), 1, step=30)
    assert bad(quarantine(h.records)) == uids(30)


def test_what_was_found_later_counts_where_nothing_was_named() -> None:
    h = trunk()
    assert bad(quarantine(h.records, bads={uid(1): cell(1, 11)})) == uids(20, 30)
    h.add(cell(1, 30), 1, step=30)
    assert bad(quarantine(h.records, bads={uid(1): cell(1, 11)})) == uids(30), (
        "what is on record counts first"
    )


def test_a_mark_by_hand_counts_and_its_descendants_do() -> None:
    h = trunk()
    h.add(mark(20, "quarantined", "wrong data", by="person"), 1)
    h.segment(2, parent=20, at=20)
    h.checkpoint(40, 2, 40)
    found = quarantine(h.records)
    assert bad(found) == uids(20, 40)
    assert found.bad[uid(20)].why == "wrong data"
    assert found.bad[uid(40)].why.endswith(": for a reason that a person gave")


def test_a_mark_of_a_checkpoint_that_another_ledger_holds_is_enough() -> None:
    h = History()
    h.add(mark(99, "quarantined", "as the sidecar says"), 2)
    h.segment(2, parent=99, at=9)
    h.checkpoint(40, 2, 40)
    assert bad(quarantine(h.records)) == uids(99, 40)
    assert (uid(2), "LIN-C006") in codes(h)


def test_unmarked_ones_are_a_finding_until_they_are_marked() -> None:
    h = trunk()
    h.add(cell(1, 15), 1, step=30)
    [(segment, f)] = findings(h.records)
    assert (segment, f.code, f.severity, set(f.names)) == (uid(1), "LIN-C031", "warning", uids(20, 30))
    assert "the checkpoints of step 20, 30 carry no mark" in f.text
    for n in (20, 30):
        h.add(mark(n, "quarantined", "rule"), 1)
    assert codes(h) == []
    assert quarantine(h.records).unmarked == []


def test_the_place_in_an_incident_is_not_the_mark() -> None:
    """`first_bad` alone is what older ledgers have: it warns, and the mark is still due."""
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "first_bad"), 1)
    assert [q.checkpoint for q in quarantine(h.records).unmarked] == [uid(30)]


def test_a_resume_from_one_that_was_marked_then_is_told_from_one_that_was_found_later() -> None:
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "quarantined", "rule"), 1)
    h.segment(2, parent=30, at=30)
    [(segment, f)] = [x for x in findings(h.records) if x[1].code == "LIN-C006"]
    assert (segment, f.severity, f.names) == (uid(2), "fault", [uid(30)])
    assert "it was marked so then" in f.text
    assert f.values["known"].plain() is True
    assert f.remedy is not None
    assert f"step 20 ({uid(20)})" in f.remedy, "the newest one before it that is not quarantined"

    h = trunk()
    h.segment(2, parent=30, at=30)
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "quarantined", "rule"), 1)
    [(_, f)] = [x for x in findings(h.records) if x[1].code == "LIN-C006"]
    assert "that was found after the resume" in f.text
    assert f.values["known"].plain() is False


def test_what_a_person_said_is_no_part_of_a_finding() -> None:
    """Findings go to the tracker."""
    h = trunk()
    h.add(mark(20, "quarantined", "SECRET reason", by="person"), 1)
    h.segment(2, parent=20, at=20)
    [(_, f)] = [x for x in findings(h.records) if x[1].code == "LIN-C006"]
    assert "SECRET" not in f.model_dump_json()
    assert "stands with the mark in the ledger" in f.text


def test_a_lift_frees_a_checkpoint_and_what_descends_from_it_and_is_a_finding() -> None:
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "quarantined", "rule"), 1)
    h.segment(2, parent=30, at=30)
    h.checkpoint(40, 2, 40)
    lift = h.add(mark(30, "quarantine_lifted", "the log was wrong", by="person"), 1)
    found = quarantine(h.records)
    assert bad(found) == set()
    assert found.lifted[uid(30)].record == lift.id
    [(segment, f)] = findings(h.records)
    assert (segment, f.code, f.severity) == (uid(1), "LIN-C030", "note")
    assert "of step 30 was taken back: the log was wrong" in f.text


def test_a_first_bad_cell_that_is_named_after_a_lift_counts_again() -> None:
    """Something else was found: the old reason for the lift does not cover it."""
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "quarantine_lifted"), 1)
    assert bad(quarantine(h.records)) == set()
    h.add(cell(1, 15), 1, step=30)
    assert bad(quarantine(h.records)) == uids(20, 30)


def test_a_mark_after_a_lift_counts_again() -> None:
    h = trunk()
    for what in ("quarantined", "quarantine_lifted", "quarantined"):
        h.add(mark(30, what), 1)
    assert bad(quarantine(h.records)) == uids(30)


def test_two_ledgers_are_judged_together() -> None:
    """A fork's own ledger does not hold its parent: with the other one at hand, it is told without any mark."""
    first, fork = trunk(), History("fork", first=200_000)
    first.add(cell(1, 25), 1, step=30)
    fork.segment(7, parent=30, at=30, start="fork")
    fork.checkpoint(70, 7, 40)
    assert bad(quarantine(fork.records)) == set()
    assert bad(quarantine([*fork.records, *first.records])) == uids(30, 70)


def test_a_last_good_checkpoint_is_never_a_quarantined_one() -> None:
    """A segment goes on from a bad state and becomes bad itself: its own last good one lies before both."""
    h = trunk()
    h.add(cell(1, 25), 1, step=30)
    h.add(mark(30, "quarantined", "rule"), 1)
    h.segment(2, parent=30, at=30)
    again = cell(2, 40).cell
    assert again is not None
    found = first_bad(build(h.records), uid(2), [again])
    assert found.last_good_checkpoint == uid(20)
    h.add(mark(30, "quarantine_lifted", "it was whole"), 1)
    assert first_bad(build(h.records), uid(2), [again]).last_good_checkpoint == uid(30)


def test_the_remedy_names_the_last_good_checkpoint_and_not_one_whose_state_is_in_doubt() -> None:
    h = trunk()
    h.add(cell(1, 21).model_copy(update={"last_good_checkpoint": uid(10)}), 1, step=30)
    h.segment(2, parent=30, at=30)
    [(_, f)] = [x for x in findings(h.records) if x[1].code == "LIN-C006"]
    assert f"step 10 ({uid(10)})" in (f.remedy or "")
