"""The life of an incident is read from its records, whoever wrote them and in which order they came."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import schemas
from lineage.judge import incident_findings
from lineage.judge.cause import NotAdmissible, proof
from lineage.judge.incident_life import ORDER, lives

from .builders import History, uid

INCIDENT = uid(900)


def opened(h: History, **fields: Any) -> schemas.Record:
    return h.add(schemas.Incident(uid=INCIDENT, title="loss is NaN", first_bad_step=7, **fields), 1, step=7)


def test_an_incident_reaches_its_states_in_any_order_and_keeps_them() -> None:
    """Evidence was held before anybody wrote down that it was contained: both are reached, each with who and when."""
    h = History()
    opened(h)
    (life,) = lives(h.records)
    h.add(life.adds("evidence_held"), 1)
    (life,) = lives(h.records)
    h.add(life.adds("contained", note="job 12 cancelled", by="ann"), 1)
    (life,) = lives(h.records)
    assert set(life.milestones) == {"open", "evidence_held", "contained"}
    assert (life.milestones["contained"].by, life.milestones["contained"].text) == ("ann", "job 12 cancelled")
    assert (life.status, life.latest.status) == ("evidence_held", "evidence_held")
    assert life.milestones["contained"].at > life.milestones["evidence_held"].at


def test_two_writers_that_knew_nothing_of_each_other_both_count() -> None:
    """Records made from an older state take nothing back: a note after the end leaves it closed."""
    h = History()
    opened(h)
    (old,) = lives(h.records)
    h.add(old.adds("closed", note="was a false alarm", by="bo"), 1)
    h.add(old.adds(note="still looking", owner="ann", by="ann"), 1)
    (life,) = lives(h.records)
    assert not life.is_open
    assert life.latest.owner == "ann"
    assert [n.text for n in life.notes] == ["was a false alarm", "still looking"]


def test_messages_and_links_add_up_once_each() -> None:
    h = History()
    opened(h, messages=[schemas.Message(to="ops", text="stop")], links=["https://t/1"])
    (life,) = lives(h.records)
    h.add(
        life.adds(messages=[schemas.Message(to="eval", text="wait")], links=["https://t/1", "https://t/2"]), 1
    )
    (life,) = lives(h.records)
    h.add(
        life.latest.model_copy(update={"status": "evidence_held"}), 1
    )  # as a tool that copies the whole record
    (life,) = lives(h.records)
    assert [(m.to, m.text) for m in life.messages] == [("ops", "stop"), ("eval", "wait")]
    assert life.links == ["https://t/1", "https://t/2"]
    assert life.status == "evidence_held"


def test_what_an_earlier_record_tells_stays_where_a_later_one_is_silent() -> None:
    h = History()
    opened(h, owner="ann", last_good_checkpoint=uid(50))
    h.add(schemas.Incident(uid=INCIDENT, title="loss is NaN"), 1)
    (life,) = lives(h.records)
    assert (life.latest.owner, life.latest.first_bad_step, life.latest.last_good_checkpoint) == (
        "ann",
        7,
        uid(50),
    )


def test_opened_again_it_has_a_new_life() -> None:
    h = History()
    opened(h)
    (life,) = lives(h.records)
    h.add(life.adds("closed", note="done"), 1)
    h.add(schemas.Incident(uid=INCIDENT, title="again", reached="open"), 1)
    (life,) = lives(h.records)
    assert life.is_open
    assert set(life.milestones) == {"open"}


def replay(n: int, **fields: Any) -> schemas.Replay:
    held = {
        "uid": uid(n),
        "bundle": "sha256:00",
        "first_bad_step": 7,
        "first_bad_rank": 0,
        "world_size": 1,
        "device": "cpu",
        "result": "reproduced",
        "reason": "the loss is NaN again",
        "start": {"source": "bundle", "text": "state in the bundle"},
    }
    return schemas.Replay.model_validate({**held, **fields})


FP32 = {"name": "fp32", "in_effect": "yes", "text": "all in float32"}


def shown(h: History, **changed: Any) -> None:
    h.add(replay(901), 1)
    fields = {"changes": [FP32], "control": uid(901), "flips": True, "result": "not_reproduced"}
    h.add(replay(902, **{**fields, **changed}), 1)


def test_a_replay_in_which_one_condition_flips_the_symptom_proves_a_cause() -> None:
    h = History()
    shown(h)
    found = proof(h.records, uid(902))
    assert (found.condition, found.control, found.flips) == ("fp32", uid(901), True)
    opened(h)
    cause = schemas.RootCause(
        uid=uid(903), incident=INCIDENT, family="numerics", text="fp16 overflows", proof=found, by="ann"
    )
    h.add(cause, 1)
    (life,) = lives(h.records)
    assert life.status == "diagnosed"
    assert life.milestones["diagnosed"].text == "fp16 overflows"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"flips": False}, "makes the symptom come or go is no"),
        ({"flips": None}, "cannot be told"),
        ({"confounded": True, "changes": [FP32, FP32]}, "exactly one condition"),
        ({"changes": []}, "nothing was changed"),
        ({"changes": [{**FP32, "in_effect": "not_shown"}]}, "in effect is not shown"),
        ({"control": None}, "held against no replay"),
        ({"control": uid(902)}, "has changes of its own"),
    ],
)
def test_any_other_replay_proves_none_and_says_why(changed: dict[str, Any], why: str) -> None:
    h = History()
    shown(h, **changed)
    with pytest.raises(NotAdmissible, match=why):
        proof(h.records, uid(902))


def test_a_replay_that_is_not_on_record_proves_nothing() -> None:
    with pytest.raises(NotAdmissible, match="no replay of this ledger is"):
        proof([], "it ran after the restart")


@pytest.mark.parametrize(
    "given",
    [
        {"rests_on": "it ran after restart"},
        {"flips": False},
        {"confounded": True},
        {"in_effect": "not_shown"},
        {"replay": "it ran after restart"},
        {"control": None},
        {"restart": uid(1)},
    ],
)
def test_by_schema_no_cause_rests_on_anything_else(given: dict[str, Any]) -> None:
    """There is no value, and no field, in which a restart could stand as the proof."""
    whole = {"replay": uid(1), "control": uid(2), "condition": "fp32", "in_effect": "yes", "flips": True}
    schemas.CauseProof.model_validate(whole)
    with pytest.raises(ValidationError):
        schemas.CauseProof.model_validate({**whole, **given})
    with pytest.raises(ValidationError):
        schemas.RootCause.model_validate({"uid": uid(3), "incident": uid(4), "family": "data", "text": "x"})


def test_exceptions_with_their_reasons_are_found_by_an_audit() -> None:
    h = History()
    opened(h)
    (life,) = lives(h.records)
    h.add(life.adds("recovered", missing=["loss above its band"], override="paper due", by="ann"), 1)
    h.add(life.adds("closed", note="x", missing=["rank files: not kept"], override="disk full"), 1)
    found = {f.code: f.text for _, f in incident_findings.findings(h.records)}
    assert set(found) == {"LIN-I002", "LIN-I003"}
    assert "loss above its band" in found["LIN-I002"]
    assert found["LIN-I002"].endswith("(ann): paper due")
    assert "disk full" in found["LIN-I003"]


def test_a_restart_before_anything_was_kept_is_found_and_one_after_it_is_not() -> None:
    h = History()
    h.segment(1)
    opened(h)
    h.segment(2, parent=50, at=5)
    (found,) = [f for _, f in incident_findings.findings(h.records)]
    assert found.code == "LIN-I004"
    assert "nothing of it has been kept since" in found.text
    kept = History()
    kept.segment(1)
    opened(kept)
    held = schemas.Preserved(
        what="rank files",
        source="x",
        location="e",
        root="sha256:00",
        files=1,
        bytes=1,
        method="copy",
        verified=True,
    )
    kept.add(held, 1)
    kept.segment(2, parent=50, at=5)
    assert incident_findings.findings(kept.records) == []


def test_the_order_of_the_states_is_the_order_of_the_schema() -> None:
    assert ORDER == ("open", "contained", "evidence_held", "diagnosed", "recovered", "closed")
