"""Counters, peaks, norms and groups against what they should be: what is told, and above all what is not."""

from __future__ import annotations

import pytest

import schemas
from lineage.capture.names import patterns
from lineage.judge import asked_peak, counters, membership, norm_ranks, scheduled
from lineage.judge.asked_peak import Course
from lineage.judge.cells import Point
from lineage.judge.counters import Counted, Reading, Save
from lineage.judge.scheduled import Apart

from .builders import config


def codes(found: list[schemas.Finding]) -> list[str]:
    return [f.code for f in found]


# -- the step counter

FOLLOWS = [Reading(s, s, 10.0 + s) for s in (1, 11, 21)]


def test_a_counter_that_follows_and_saves_of_their_step_are_not_told() -> None:
    assert counters.findings(Counted(FOLLOWS, [Save(15, 15), Save(21, 21), Save(25, 25)])) == []


@pytest.mark.parametrize(("step", "counter", "off"), [(15, 16, 1), (15, 14, -1), (21, 20, -1)])
def test_a_save_of_another_step_is_told_with_the_difference(step: int, counter: int, off: int) -> None:
    (found,) = counters.findings(Counted(FOLLOWS, [Save(step, counter)]))
    assert (found.code, found.values["off"].plain()) == ("LIN-C022", off)


def test_skipped_updates_are_counted_out() -> None:
    readings = [Reading(1, 1, 1.0), Reading(11, 9, 2.0)]
    assert counters.findings(Counted(readings, [Save(15, 13)], idle=frozenset({4, 7}))) == []


def test_a_counter_that_never_went_one_by_one_tells_nothing_of_a_save() -> None:
    """Two optimizer steps in each step of the loop."""
    assert (
        counters.findings(Counted([Reading(s, 2 * s, float(s)) for s in (1, 11, 21)], [Save(15, 30)])) == []
    )


def test_a_run_that_continues_with_a_counter_of_its_own_offset_is_not_told() -> None:
    """The optimizer was new at step 100."""
    readings = [Reading(s, s - 100, float(s)) for s in (101, 111, 121)]
    assert counters.findings(Counted(readings, [Save(121, 21)])) == []


def test_a_save_far_from_any_reading_is_not_judged() -> None:
    assert counters.findings(Counted(FOLLOWS, [Save(500, 450)])) == []


def test_a_counter_that_stands_still_while_weights_move_is_told() -> None:
    (found,) = counters.findings(Counted([Reading(s, 0, 1.0 + s) for s in (1, 11, 21)]))
    assert (found.code, found.values["updates"].plain()) == ("LIN-C021", 20)


@pytest.mark.parametrize("why", ["weights stand still too", "all skipped"])
def test_a_counter_that_rightly_stands_still_is_not_told(why: str) -> None:
    norm = 1.0 if why == "weights stand still too" else 2.0
    idle = frozenset(range(2, 22)) if why == "all skipped" else frozenset()
    readings = [Reading(1, 5, 1.0), Reading(11, 5, norm), Reading(21, 5, norm)]
    assert counters.findings(Counted(readings, idle=idle)) == []


# -- the peak


def course(rates: list[float], **more: object) -> Course:
    return Course(list(enumerate(rates, 1)), **more)  # type: ignore[arg-type]


FALLING = [1e-4, 2e-4, 1.9e-4, 1.5e-4]


@pytest.mark.parametrize("asked", [4e-4, 1e-4])
def test_a_peak_that_is_passed_and_was_not_asked_for_is_told(asked: float) -> None:
    (found,) = asked_peak.findings(config(learning_rate=asked), course(FALLING))
    assert found.code == "LIN-D005"
    assert found.values["ratio"].plain() == pytest.approx(2e-4 / asked)


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        (2e-4, course(FALLING)),
        (2.05e-4, course(FALLING)),  # a warm-up in steps misses its peak by a little
        (4e-4, course([1e-4, 2e-4])),  # it may still rise
        (4e-4, course([1e-4, 2e-4], ahead={10: [4e-4], 20: [3e-4]})),  # it will
        (4e-4, course(FALLING, from_start=False)),  # what was before is not known
        (4e-4, course(FALLING, others=[4e-4])),  # another group has it
        (4e-4, course([1e-4] * 19)),  # too few to take it for constant
        (4e-4, course([])),
    ],
)
def test_a_peak_that_is_asked_for_or_still_open_is_not_told(asked: float, made: Course) -> None:
    assert asked_peak.findings(config(learning_rate=asked), made) == []


def test_a_constant_rate_that_is_another_one_is_told_after_a_while() -> None:
    assert codes(asked_peak.findings(config(lr=4e-4), course([1e-4] * 20))) == ["LIN-D005"]


def test_a_peak_of_an_earlier_config_is_not_held_against_this_one() -> None:
    """It was 1e-3 before the change, and 4e-4 is asked for now, in the middle of the decay."""
    later = Course([(11, 3e-4), (12, 2e-4)], before=[(1, 1e-3), (10, 3e-4)])
    assert asked_peak.findings(config(learning_rate=4e-4), later) == []


def test_without_a_rate_in_the_config_nothing_is_told() -> None:
    assert asked_peak.findings(config(batch_size=4), course(FALLING)) == []
    assert asked_peak.findings(None, course(FALLING)) == []


# -- norms over ranks


def norms(by_step: dict[int, list[float]], limit: float | None = None) -> list[schemas.Finding]:
    points = [Point("s", r, s, "grad_norm", v) for s, row in by_step.items() for r, v in enumerate(row)]
    points += [Point("s", 0, s, "clip_threshold", limit) for s in by_step if limit is not None]
    return norm_ranks.findings(points)


def test_norms_of_shards_are_told_with_that_of_the_whole_and_what_clipping_left() -> None:
    """The numbers of the report: 27.44 in all, 1.020 after each shard was clipped to 1."""
    (found,) = norms({s: [27.44, 0.2] for s in range(1, 4)}, limit=1.0)
    assert found.code == "LIN-R020"
    assert found.values["norm_of_whole"].plain() == pytest.approx(27.44, abs=1e-3)
    assert found.values["after_clipping"].plain() == pytest.approx(1.02, abs=1e-3)


@pytest.mark.parametrize(
    "by_step",
    [
        {s: [1.0, 1.0] for s in range(1, 9)},
        {s: [1.0, 1.0 + 1e-5] for s in range(1, 9)},  # another order of sums
        {1: [1.0, 2.0], 2: [1.0, 2.0]},  # too few
        {s: [1.0, 2.0 if s < 4 else 1.0] for s in range(1, 20)},  # for a while only
        {s: [1.0, float("nan")] for s in range(1, 9)},
        {s: [1.0] for s in range(1, 9)},
    ],
)
def test_norms_that_are_one_or_too_few_are_not_told(by_step: dict[int, list[float]]) -> None:
    assert norms(by_step) == []


# -- the scheduler's own optimizer


def test_rates_that_are_apart_are_told_after_three_updates_or_at_the_end() -> None:
    apart = [Apart(s, 1e-3 - s * 1e-4, 1e-3) for s in (1, 2, 3)]
    assert scheduled.finding(apart[:2]) is None
    assert scheduled.finding([], ended=True) is None
    for found in (scheduled.finding(apart), scheduled.finding(apart[:1], ended=True)):
        assert found is not None
        assert found.code == "LIN-C020"


# -- who is in which group


def groups(*names: list[str]) -> schemas.Scalar:
    parts = [f"{len(n)} tensors, {len(n)} values ({sum(map(len, n)):08x}: {patterns(n)})" for n in names]
    return schemas.Scalar.of([*parts, "none frozen"])


LAYERS = [f"layers.{i}.norm.weight" for i in range(4)]


def test_layers_of_one_kind_are_one_pattern() -> None:
    assert patterns([*LAYERS, "head.weight"]) == "head.weight, layers.*.norm.weight x4"


def test_who_moved_is_told_with_number_groups_and_decay() -> None:
    before = groups(["head.weight"], LAYERS)
    after = groups(["head.weight", *LAYERS[:2]], LAYERS[2:])
    decay = [schemas.Scalar.of([0.1, 0.0])] * 2
    assert membership.moved(before, after, decay) == (
        "2 of layers.*.norm.weight from group 1 to group 0 (weight decay 0 -> 0.1)"
    )


def test_a_side_without_names_is_compared_by_its_counts() -> None:
    named, bare = groups(["a"], ["b"]), schemas.Scalar.of(["1 tensors, 1 values"] * 2 + ["none frozen"])
    assert membership.equal(named, bare)
    assert not membership.equal(named, schemas.Scalar.of(["1 tensors, 2 values"] * 2 + ["none frozen"]))
    assert membership.moved(named, bare, [None, None]) is None


def test_a_parameter_that_came_and_one_that_left_are_told() -> None:
    text = membership.moved(groups(["a", "b"]), groups(["a", "c"]), [None, None])
    assert text == "b left group 0; c new in group 0"
