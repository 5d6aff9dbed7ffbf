from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas import Checkpoint, CheckpointMark
from trackers import TrackerUnavailable

from . import builders as b
from .conftest import Case, needs_models
from .servers import Faulty


def inputs(case: Case) -> list[str]:
    return [m.model_id for m in case.client.get_run(case.run_id).inputs.model_inputs]


@needs_models
def test_a_complete_checkpoint_is_a_ready_logged_model_without_weights_and_a_pending_one_is_not_yet(
    case: Case,
) -> None:
    made = b.checkpoint(2000, parents=[b.uid()])
    assert case.show(made.model_copy(update={"status": "pending", "manifest": None})) is None
    assert case.models() == []
    case.show(made)
    (model,) = (m for m in case.models())
    m: Any = model
    assert (m.name, str(m.status), m.model_type) == ("ckpt-step-2000", "READY", "checkpoint")
    assert m.tags["lineage/uid"] == made.uid
    assert m.tags["lineage/manifest"] == b.SHA
    assert m.tags["lineage/parents"] == made.parents[0]
    assert m.params["samples"] == "128000"
    assert m.params["path"] == "/ckpt/step-2000"
    assert case.outputs() == [(m.model_id, 2000)]
    found = case.client.search_logged_models([case.experiment], f"tags.`lineage/uid` = '{made.uid}'")
    assert [f.model_id for f in found] == [m.model_id]


@needs_models
def test_a_resumed_run_has_the_model_of_another_run_of_the_experiment_as_its_input(
    case: Case, tmp_path: Path
) -> None:
    parent = b.checkpoint(2000)
    case.show(parent)
    child = Case.__new__(Case)
    child.__dict__.update(case.__dict__)
    child.run_id = case.client.create_run(case.experiment).info.run_id
    child.tracker, child.segment = child.attach(), b.uid()
    resume = b.record(b.segment(child.segment, parent=parent.uid, parent_step=2000), segment=child.segment)
    for _ in range(2):
        child.tracker.show(resume, child.page)
    model: Any = case.models()[0]
    assert inputs(child) == [model.model_id]
    tag = json.loads(child.tags()["lineage/segment/002"])
    assert tag["parent_model"] == model.model_id


@needs_models
def test_a_run_resumed_under_its_own_id_names_its_model_and_keeps_it_as_an_output_with_its_step(
    case: Case,
) -> None:
    parent, resumed = b.checkpoint(2000), b.uid()
    case.show(parent)
    case.page.number(resumed)
    case.show(b.segment(resumed, parent=parent.uid, parent_step=2000), segment=resumed)
    model: Any = case.models()[0]
    assert json.loads(case.tags()["lineage/segment/002"])["parent_model"] == model.model_id
    assert (case.outputs(), inputs(case)) == ([(model.model_id, 2000)], [])


@needs_models
def test_a_parent_that_the_tracker_does_not_know_is_named_and_no_edge_is_invented(case: Case) -> None:
    parent = b.uid()
    case.show(b.segment(case.segment, parent=parent))
    assert inputs(case) == []
    assert json.loads(case.tags()["lineage/segment/001"])["parent_checkpoint"] == parent


@needs_models
def test_a_merged_state_names_both_parents_and_takes_the_foreign_one_as_input(case: Case) -> None:
    first = b.checkpoint(100)
    case.show(first)
    other = Case.__new__(Case)
    other.__dict__.update(case.__dict__)
    other.run_id = case.client.create_run(case.experiment).info.run_id
    other.tracker = other.attach()
    own = b.checkpoint(150)
    other.show(own)
    other.show(b.checkpoint(151, parents=[own.uid, first.uid], transformation="merge"))
    ids = {m.name: m.model_id for m in case.models()}  # type: ignore[attr-defined]
    assert inputs(other) == [ids["ckpt-step-100"]]


def quarantined(made: Checkpoint, mark: str = "quarantined", **more: str) -> CheckpointMark:
    return CheckpointMark(checkpoint=made.uid, mark=mark, why="saved after step 90", **more)


@needs_models
def test_a_quarantine_can_be_searched_for_on_the_model_and_is_a_line_of_the_run(case: Case) -> None:
    good, bad, worse = (b.checkpoint(step) for step in (50, 100, 1200))
    for made in (good, bad, worse):
        case.show(made)
    for made in (bad, worse):
        case.show(quarantined(made))
    found = case.client.search_logged_models([case.experiment], "tags.`lineage/quarantined` = 'true'")
    assert {f.name for f in found} == {"ckpt-step-100", "ckpt-step-1200"}
    assert {f.tags["lineage/quarantined_why"] for f in found} == {"saved after step 90"}
    assert case.tags()["lineage/quarantined"] == "do not resume from the checkpoints of step 100, step 1,200"
    told = json.loads(case.tags()[f"lineage/mark/{bad.uid}/quarantined"])
    assert (told["step"], told["why"]) == (100, "saved after step 90")


@needs_models
def test_a_lifted_quarantine_is_said_as_such_and_can_come_back(case: Case) -> None:
    made = b.checkpoint(100)
    case.show(made)
    for mark, on_model, line in (
        ("quarantined", "true", "do not resume from the checkpoints of step 100"),
        ("quarantine_lifted", "lifted", "none: each quarantine was taken back"),
        ("quarantined", "true", "do not resume from the checkpoints of step 100"),
    ):
        case.show(quarantined(made, mark))
        model: Any = case.models()[0]
        assert model.tags["lineage/quarantined"] == on_model
        assert case.tags()["lineage/quarantined"] == line


def test_an_older_mark_that_is_shown_late_changes_nothing(case: Case) -> None:
    made = b.checkpoint(100)
    case.show(made)
    old, new = (b.record(quarantined(made), segment=case.segment) for _ in range(2))
    case.tracker.show(new, case.page)
    before = case.tags()
    case.tracker.show(old, case.page)
    assert case.tags() == before


def test_what_a_person_gave_as_a_reason_stays_in_the_ledger_unless_text_is_shared(case: Case) -> None:
    made = b.checkpoint(100)
    case.show(made)
    case.show(quarantined(made, by="person"))
    name = f"lineage/mark/{made.uid}/quarantined"
    assert json.loads(case.tags()[name])["why"] == "the reason is in the ledger: lineage show"
    case.page.share = frozenset({"text"})
    case.show(quarantined(made, by="person"))
    assert json.loads(case.tags()[name])["why"] == "saved after step 90"


def test_a_mark_of_a_checkpoint_whose_record_is_not_known_names_its_uid(case: Case) -> None:
    made = b.checkpoint(100)
    case.show(quarantined(made))
    assert case.tags()["lineage/quarantined"] == f"do not resume from the checkpoints of {made.uid}"


def test_an_incomplete_checkpoint_is_a_tag_that_says_what_is_missing(case: Case) -> None:
    case.show(b.checkpoint(100, status="incomplete", missing=["optimizer_state", "rng"]))
    assert case.models() == []
    assert json.loads(case.tags()["lineage/checkpoint/100"])["missing"] == "optimizer_state, rng"


def test_an_mlflow_without_logged_models_gets_tags_instead(served: Case, faulty: Faulty) -> None:
    faulty.fail("no_models", "logged-models")
    tracker = served.attach(faulty.uri)
    made, fork = b.checkpoint(100), b.checkpoint(100)
    for payload in (made, fork, made):
        tracker.show(b.record(payload, segment=served.segment), served.page)
    tracker.show(b.record(b.segment(served.segment, parent=made.uid), segment=served.segment), served.page)
    tags = served.tags()
    assert json.loads(tags["lineage/checkpoint/100"])["uid"] == made.uid
    assert json.loads(tags[f"lineage/checkpoint/100-{fork.uid}"])["uid"] == fork.uid
    assert served.models() == []


@needs_models
@pytest.mark.parametrize(
    ("where", "expected"),
    [("logged-models", 4), ("runs/outputs", 2)],  # the second finds the edge and asks no more
)
def test_an_answer_that_gets_lost_halfway_leaves_one_model_and_one_edge(
    served: Case, faulty: Faulty, where: str, expected: int
) -> None:
    tracker = served.attach(faulty.uri)
    made = b.record(b.checkpoint(100), segment=served.segment)
    faulty.fail("lost", where, times=3)
    tries = 0
    while tries < 6:
        tries += 1
        try:
            tracker.show(made, served.page)
            break
        except TrackerUnavailable:
            continue
    assert tries == expected
    assert [m.name for m in served.models()] == ["ckpt-step-100"]  # type: ignore[attr-defined]
    assert len(served.outputs()) == 1
    assert str(served.models()[0].status) == "READY"  # type: ignore[attr-defined]
