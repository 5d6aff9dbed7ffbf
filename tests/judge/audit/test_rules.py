"""The rules of the audit: each finds what it must, says nothing next to it, and names records and a remedy."""

from __future__ import annotations

import pytest

import schemas
from lineage.judge.audit import RULES, AuditFinding, Found, audit
from tests.judge.builders import uid

from .build import Case, change, first_bad, healthy
from .cases import (
    CASES,
    at_once,
    closed,
    evaluated,
    gone,
    logbook,
    lower_rate,
    mitigation,
    recovered,
    said_before,
    skipped,
    verdicts,
)

BY_CODE = {r.code: r for r in RULES}


def found(code: str, case: Case) -> list[AuditFinding]:
    return BY_CODE[code].findings(case.audited)


def test_every_rule_has_a_case_and_a_code_of_its_own() -> None:
    assert set(CASES) == set(BY_CODE)
    assert len(BY_CODE) == len(RULES)
    assert all(code in schemas.CODES for code in BY_CODE)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_what_it_must_and_nothing_next_to_it(code: str) -> None:
    speaks, silent = CASES[code]
    assert found(code, speaks())
    assert not found(code, silent()), [f.text for f in found(code, silent())]


@pytest.mark.parametrize("code", CASES)
def test_a_finding_has_a_severity_a_remedy_and_what_it_rests_on(code: str) -> None:
    for f in found(code, CASES[code][0]()):
        assert f.severity in ("fault", "warning", "note")
        assert len(f.remedy) > 20
        assert "{" not in f.remedy
        assert f.title == schemas.CODES[code]
        assert f.records or code in ("LIN-U012", "LIN-U040", "LIN-U041")


def test_a_healthy_run_that_was_resumed_has_no_finding() -> None:
    """Nothing but the records of two segments, sealed and anchored."""
    assert not audit(healthy().restarted().audited)


def test_state_that_was_not_restored_is_one_change_among_others() -> None:
    assert not found("LIN-U002", at_once("optimizer_state", "optimizer_step"))
    assert found("LIN-U002", at_once("optimizer_state", "optimizer_step", "dropout"))


def test_several_changes_at_a_restart_that_followed_nothing_bad_are_a_note() -> None:
    case = healthy().restarted(2, change("learning_rate"), change("dropout"))
    assert [f.severity for f in found("LIN-U002", case)] == ["note"]
    assert [f.severity for f in found("LIN-U002", at_once("learning_rate", "dropout"))] == ["warning"]


def test_a_higher_rate_is_no_opening_move_of_that_kind() -> None:
    assert not found("LIN-U003", lower_rate(after=2.0))


def test_a_spike_that_is_not_answered_yet_does_not_hide_how_the_others_were() -> None:
    """The third one has just struck: that nothing was done about it says nothing of the first two."""
    case = skipped("batch_skip")
    case.bads[uid(3)] = first_bad(3)
    (f,) = found("LIN-U006", case)
    assert f.text.startswith("2 spikes were answered")


def test_a_run_that_was_begun_anew_was_restarted_too() -> None:
    """From nothing, under the same id: what of the broken segment was not kept by then may be overwritten."""
    case = Case()
    case.history.segment(2)
    (f,) = found("LIN-U001", case)
    assert "nothing of it is kept to this day" in f.text
    kept = Case()
    kept.keep()
    kept.history.segment(2)
    assert not found("LIN-U001", kept)


@pytest.mark.parametrize(
    ("before", "after", "lower"),
    [
        ("0.1 at step 20 (LinearLR())", "0.05 at step 20 (LinearLR())", True),
        ("5e-05 at step 20 (LinearLR())", "0.1 at step 20 (LinearLR())", False),
        ("LinearLR(a)", "LinearLR(b)", False),
    ],
)
def test_a_rate_that_only_the_scheduler_shows_lower_is_that_move_too(
    before: str, after: str, lower: bool
) -> None:
    """No config key asks for it: the schedule's own words say what it gives."""
    case = Case().restarted(2, change("lr_schedule", before, after))
    assert bool(found("LIN-U003", case)) == lower


def test_rules_are_told_in_whole_sentences_without_marks_of_the_code() -> None:
    for r in RULES:
        assert '"' not in r.says.replace("'", ""), r.code
        assert r.says.endswith("."), r.code


def test_spikes_answered_otherwise_are_not_said_to_be_blamed_on_samples() -> None:
    assert not found("LIN-U006", skipped("learning_rate"))


def test_a_recovery_whose_comparison_reached_nothing_rests_on_nothing() -> None:
    assert "no value of it reached a horizon" in found("LIN-U007", recovered("not_reached"))[0].text
    assert "held against nothing" in found("LIN-U007", recovered())[0].text


def test_a_mitigation_of_which_nothing_is_on_record_is_a_warning_and_a_denied_one_a_fault() -> None:
    assert [f.severity for f in found("LIN-U010", mitigation("no"))] == ["fault"]
    assert [f.severity for f in found("LIN-U010", mitigation("not_shown"))] == ["warning"]
    assert [f.severity for f in found("LIN-U010", mitigation())] == ["warning"]


def test_a_value_before_that_was_not_in_effect_is_named_with_both() -> None:
    (f,) = found("LIN-U011", said_before(2.0))
    assert "says that the value before was 2; 1 was in effect" in f.text
    assert not found("LIN-U011", said_before(1.0))


def test_a_logbook_that_a_machine_contradicts_is_named_and_the_machine_stands() -> None:
    (f,) = found("LIN-U011", logbook(0.1))
    assert "the machine's value stands" in f.text
    assert len(f.records) == 2
    assert not found("LIN-U011", logbook(0.5))


def test_a_verdict_under_another_policy_is_said_not_to_be_known() -> None:
    case = verdicts("holds", "holds")
    case.extra["policy"] = "sha256:" + "9" * 64
    (f,) = found("LIN-U012", case)
    assert f.severity == "note"
    assert "is not shown" in f.text


def test_a_last_good_checkpoint_that_vanished_is_a_fault() -> None:
    case = gone("/ck/10")
    assert [f.severity for f in found("LIN-U020", case)] == ["warning"]
    case.bads = {uid(1): first_bad(1, last_good_checkpoint=uid(50))}
    assert [f.severity for f in found("LIN-U020", case)] == ["fault"]


def test_a_lifted_quarantine_takes_the_finding_of_its_evaluation_away() -> None:
    case = evaluated(16)
    case.add(schemas.CheckpointMark(checkpoint=uid(51), mark="quarantined", why="after the NaN"))
    assert "is quarantined" in found("LIN-U022", case)[0].text
    case.add(
        schemas.CheckpointMark(checkpoint=uid(51), mark="quarantine_lifted", why="it is the other branch")
    )
    assert not found("LIN-U022", case)


def test_a_cause_that_is_on_record_needs_no_word() -> None:
    case = closed(None)
    proof = {
        "replay": uid(80),
        "control": uid(81),
        "condition": "fp32",
        "in_effect": "yes",
        "flips": True,
    }
    case.add(
        schemas.RootCause(
            uid=uid(90),
            incident=uid(70),
            family="numerics",
            text="float16",
            proof=schemas.CauseProof.model_validate(proof),
        )
    )
    assert not found("LIN-U032", case)


def test_findings_of_other_checks_stand_beside_under_their_own_codes_once() -> None:
    case = healthy()
    other = schemas.Finding(
        code="LIN-R001",
        check="replica-agreement/1",
        severity="fault",
        subject="replicas",
        text="rank 2 is odd",
    )
    case.extra["findings"] = [Found("rec-1", 1, 40, other), Found("rec-2", 1, 44, other)]
    (f,) = audit(case.audited)
    assert (f.code, f.severity, f.records, f.step) == ("LIN-R001", "fault", ("rec-1",), 40)


def test_the_worst_comes_first() -> None:
    case = Case().restarted(2, change("learning_rate", 1.0, 0.5), change("grad_clip"))
    case.extra["damage"] = ["a.jsonl line 3: chain broken"]
    severities = [f.severity for f in audit(case.audited)]
    assert severities[0] == "fault"
    assert severities == sorted(severities, key=schemas.severity_place)
    assert len(set(severities)) == 3
