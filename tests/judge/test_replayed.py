"""The judgement of replays: a clean one acquits no batch, and what cannot be told is not told."""

from __future__ import annotations

import math
from typing import Any

import pytest

import schemas
from lineage.judge import replayed
from lineage.judge.replayed import Made, Symptom
from lineage.judge.replayed_rules import CONTROL, RULES, SINGLE

NAN = Symptom("loss", "non_finite", math.nan)
HIGH = Symptom("loss", "out_of_range", 9.0, 2.0, 2.5)
BROKEN, FINE = Made({"loss": math.nan}), Made({"loss": 2.0})
ADMITTED = {"data", "numerics", "optimizer", "distributed", "hardware", "code"}


def start(between: int | None = 0, equal: bool | None = True) -> schemas.ReplayStart:
    weights = schemas.ReplayDistance(component="weights", equal=equal)
    return schemas.ReplayStart(source="checkpoint", updates_between=between, components=[weights], text="")


def change(name: str, in_effect: Any = "yes") -> schemas.ReplayChange:
    return schemas.ReplayChange(name=name, in_effect=in_effect, text="as told")


def control(result: Any) -> schemas.Replay:
    return schemas.Replay(
        uid="0197a3c4-0001-7000-8000-000000000001",
        bundle="sha256:00",
        first_bad_step=1,
        first_bad_rank=0,
        world_size=1,
        device="cpu",
        result=result,
        reason="",
        start=start(),
    )


@pytest.mark.parametrize(
    ("symptom", "runs", "begun", "result"),
    [
        (NAN, [BROKEN], start(), "reproduced"),
        (NAN, [BROKEN, BROKEN], start(), "reproduced"),
        (NAN, [Made({"loss": math.inf})], start(), "reproduced"),
        (NAN, [FINE], start(), "not_reproduced"),
        (NAN, [BROKEN, FINE], start(), "inconclusive"),
        (NAN, [FINE], start(between=3), "inconclusive"),
        (NAN, [FINE], start(between=None), "inconclusive"),
        (NAN, [FINE], start(equal=False), "inconclusive"),
        (NAN, [FINE], start(equal=None), "not_reproduced"),
        (NAN, [BROKEN], start(between=3), "reproduced"),
        (NAN, [Made({}, error="RuntimeError: no")], start(), "inconclusive"),
        (NAN, [Made({"loss": math.nan}, error="FloatingPointError: loss")], start(), "reproduced"),
        (NAN, [Made({"loss": 2.0}, error="RuntimeError", not_finite="LogBackward0")], start(), "reproduced"),
        (NAN, [Made({"grad_norm": 1.0})], start(), "inconclusive"),
        (NAN, [], start(), "inconclusive"),
        (HIGH, [Made({"loss": 2.6})], start(), "reproduced"),
        (HIGH, [Made({"loss": 2.4})], start(), "not_reproduced"),
        (HIGH, [BROKEN], start(), "reproduced"),
    ],
)
def test_a_result_needs_the_recorded_start_and_every_run_alike(
    symptom: Symptom, runs: list[Made], begun: schemas.ReplayStart, result: str
) -> None:
    """What shows, shows from any start; what does not show, tells nothing from another one."""
    assert replayed.judge(symptom, runs, begun).result == result


def test_a_change_without_effect_is_inconclusive() -> None:
    """Asked for is not done."""
    judged = replayed.judge(NAN, [FINE], start(), [change("fp32", "no")])
    assert judged.result == "inconclusive"
    assert "fp32 changed nothing" in judged.reason


def test_what_keeps_a_clean_replay_from_being_the_step_is_the_reason() -> None:
    """A batch that was written over, updates that came out otherwise."""
    judged = replayed.judge(NAN, [FINE], start(), problems=["micro-batch 0 is not what was fed"])
    assert judged.result == "inconclusive"
    assert "micro-batch 0 is not what was fed" in judged.reason


def test_a_clean_single_device_replay_lowers_data_and_raises_what_one_device_leaves_out() -> None:
    """Distributed, precision, topology and timing; and it says that it does not acquit the batch."""
    judged = replayed.judge(NAN, [FINE], start())
    found = replayed.effects(judged, start(), [SINGLE])
    assert {(e.family, e.direction) for e in found if e.family == "data"} == {("data", "lowers")}
    raised = {(e.family, e.aspect) for e in found if e.direction == "raises"}
    assert {("distributed", "topology"), ("numerics", "precision"), ("hardware", "timing")} <= raised
    assert replayed.NOT_ACQUITTED in replayed.limits(judged, start(), [SINGLE], [])


def test_no_clean_replay_acquits_the_batch_or_says_more_than_lower() -> None:
    """Whatever differs: a rule raises or lowers, with a reason and a source."""
    judged = replayed.judge(NAN, [FINE], start())
    for given in ([], [SINGLE], ["other-device"], [SINGLE, "other-device", "other-torch"]):
        assert any("does not acquit" in text for text in replayed.limits(judged, start(), given, []))
    for rule in RULES:
        assert rule.source
        for effect in rule.effects:
            assert effect.direction in ("raises", "lowers")
            assert effect.family in ADMITTED
            assert effect.text
    assert len({r.id for r in RULES}) == len(RULES)


def test_from_another_start_nothing_is_said_of_arithmetic() -> None:
    """The batch still shows it; precision, kernels and timing are left alone."""
    judged = replayed.judge(NAN, [BROKEN], start(between=4))
    assert judged.result == "reproduced"
    clean = replayed.Judged("not_reproduced", "", 0)
    for e in replayed.effects(clean, start(between=4), [SINGLE]):
        assert (e.family, e.direction) == ("data", "lowers")
    assert any("says nothing of arithmetic" in t for t in replayed.limits(judged, start(between=4), [], []))


@pytest.mark.parametrize(
    ("before", "after", "flipped", "told"),
    [
        ("reproduced", "not_reproduced", True, True),
        ("reproduced", "reproduced", False, True),
        ("not_reproduced", "not_reproduced", False, False),
        ("not_reproduced", "reproduced", True, False),
        ("inconclusive", "not_reproduced", None, False),
        ("reproduced", "inconclusive", None, False),
    ],
)
def test_a_change_tells_something_only_where_the_control_shows_the_symptom(
    before: str, after: Any, flipped: bool | None, told: bool
) -> None:
    """Else nothing was there to go away."""
    assert replayed.flips(control(before), after) is flipped
    found = replayed.effects(replayed.Judged(after, "", 0), start(), [], [change("fp32")], flipped)
    assert bool(found) is told


def test_several_changes_are_confounded_and_tell_nothing() -> None:
    """Also where the symptom goes away."""
    changes = [change("fp32"), change("no-compile")]
    judged = replayed.judge(NAN, [FINE], start(), changes)
    assert replayed.effects(judged, start(), [], changes, True) == []
    assert any("no effect can be traced to one" in t for t in replayed.limits(judged, start(), [], changes))


def test_without_a_control_a_change_tells_nothing() -> None:
    """There is nothing to hold it against."""
    assert replayed.flips(None, "not_reproduced") is None


def test_every_condition_has_rules_for_what_it_can_tell() -> None:
    """The control and each change."""
    pytest.importorskip("torch")
    from lineage.replay.conditions import CONDITIONS

    assert {r.condition for r in RULES} == {CONTROL, *CONDITIONS}
