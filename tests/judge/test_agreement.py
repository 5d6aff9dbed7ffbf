"""Ranks beside each other, from rows alone: state, settings, times and data order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.judge import (
    agreement,
    agreement_findings,
    rank_sets,
    replica_cells,
    settings_ranks,
    slow_rank,
    swapped_ranks,
)
from lineage.judge.agreement import State
from lineage.judge.cells import Point
from lineage.judge.swapped_ranks import Batch

SEGMENT = "01900000-0000-7000-8000-000000000001"


def states(
    held: Mapping[int, Sequence[int | None]], groups: tuple[str, ...] = ("g",), kind: str = "weight"
) -> list[State]:
    """rank -> what it holds at steps 1, 2, ...; None where it wrote nothing."""
    return [
        State(rank, step, kind, "w", "whole", groups, (value, value))
        for rank, values in held.items()
        for step, value in enumerate(values, 1)
        if value is not None
    ]


def test_the_odd_rank_the_majority_and_the_last_agreement_are_named() -> None:
    found = agreement.compare(states({0: [1, 2, 3], 1: [1, 2, 9], 2: [1, 2, 3]}), {"g": [0, 1, 2]}).found
    assert [(d.odd, d.agreed, d.step, d.classes, d.declared) for d in found] == [
        ((1,), 2, 3, ((0, 2), (1,)), True)
    ]


def test_of_two_ranks_none_is_called_odd() -> None:
    compared = agreement.compare(states({0: [1, 2], 1: [1, 3]}), {"g": [0, 1]})
    assert [d.odd for d in compared.found] == [()]
    (said,) = agreement_findings.findings(compared)
    assert said.code == "LIN-R002"
    assert "which of the two is odd cannot be told" in said.text


def test_ranks_of_other_groups_are_not_compared_as_replicas() -> None:
    pairs = [*states({0: [1, 2], 1: [1, 2]}, ("a",)), *states({2: [5, 6], 3: [5, 6]}, ("b",))]
    compared = agreement.compare(pairs, {"a": [0, 1], "b": [2, 3]})
    assert not compared.found
    assert compared.own == []


def test_a_shard_is_compared_with_the_same_shard_alone() -> None:
    rows = [
        State(r, 1, "weight", "w", f"S(0) {r % 2 + 1} of 2", (f"g{r % 2}",), (r % 2, 0)) for r in range(4)
    ]
    compared = agreement.compare(rows, {"g0": [0, 2], "g1": [1, 3]})
    assert compared.tensors == 2
    assert not compared.found


def test_what_is_not_declared_is_told_only_after_ranks_were_seen_to_agree() -> None:
    changed = agreement.compare(states({0: [1, 2], 1: [1, 3], 2: [1, 2]}, ()), {})
    assert [(d.odd, d.declared) for d in changed.found] == [((1,), False)]
    experts = agreement.compare(states({0: [1, 2], 1: [5, 6], 2: [8, 9]}, ()), {})
    assert not experts.found
    assert experts.own == ["weight w"]
    one_of_three = agreement.compare(states({0: [1, 2], 1: [5, 6], 2: [1, 2]}, ()), {})
    assert [d.odd for d in one_of_three.found] == [(1,)]


def test_a_silent_rank_is_missing_and_does_not_disagree() -> None:
    compared = agreement.compare(states({0: [1, 2], 1: [1, None]}), {"g": [0, 1]}, world=3)
    assert not compared.found
    assert compared.missing == {1: (2,), 2: (1, 2)}


def test_ranks_that_agree_again_are_told_so() -> None:
    (d,) = agreement.compare(states({0: [1, 2, 3], 1: [1, 7, 3]}), {"g": [0, 1]}).found
    assert (d.step, d.until) == (2, 3)


@pytest.mark.parametrize(
    ("kinds", "alike", "holds"),
    [
        (["weight"], ["moment1", "moment2"], agreement.WEIGHTS),
        (["weight"], [], agreement.BARE),  # frozen, an average of weights, or SGD
        (["moment1", "weight"], ["moment2"], agreement.FIRST),
        (["moment2", "weight"], ["moment1"], agreement.SECOND),
        (["moment1", "moment2", "weight"], ["state:max_exp_avg_sq"], agreement.GRADIENT),
        (["moment1", "weight"], [], agreement.ALL),  # SGD with momentum
        (["state:square_avg", "weight"], [], agreement.ALL),  # RMSprop
        (["buffer"], [], agreement.BUFFER),
        (["state:max_exp_avg_sq", "weight"], ["moment1", "moment2"], agreement.OTHER),
    ],
)
def test_what_differs_tells_where_the_difference_came_in(
    kinds: list[str], alike: list[str], holds: str
) -> None:
    rows = [s for kind in kinds for s in states({0: [1, 2], 1: [1, 3], 2: [1, 2]}, kind=kind)]
    rows += [s for kind in alike for s in states({0: [1, 2], 1: [1, 2], 2: [1, 2]}, kind=kind)]
    compared = agreement.compare(rows, {"g": [0, 1, 2]})
    (pattern,) = agreement.patterns(compared.found)
    assert pattern.holds == holds
    assert pattern.tensors == ["w"]
    (cell,) = replica_cells.cells(SEGMENT, compared.found)
    lies = next(
        (k for k in kinds if holds not in (agreement.WEIGHTS, agreement.BARE) and k != "weight"), "weight"
    )
    assert cell.text.startswith(replica_cells.WORDS.get(lies, lies.removeprefix("state:")))


def test_momentum_alone_is_not_told_apart_from_the_gradient_that_moved_it() -> None:
    rows = [s for kind in ("moment1", "weight") for s in states({0: [1, 2], 1: [1, 3], 2: [1, 2]}, kind=kind)]
    (said,) = agreement_findings.findings(agreement.compare(rows, {"g": [0, 1, 2]}))
    assert "(first moment): in that state, or in the gradients that were applied" in said.text
    assert "second moment" not in said.text


def test_ranks_that_part_from_a_value_which_no_update_moved_were_never_replicas() -> None:
    stages = states({0: [1, 2], 1: [1, 3], 2: [1, 4]}, ())  # norms of ones while a warm-up starts at 0
    moments = states({0: [5, 6], 1: [7, 8], 2: [3, 4]}, (), "moment1")
    compared = agreement.compare([*stages, *moments], {})
    assert not compared.found
    assert compared.own == ["moment1 w", "weight w"]


def test_undeclared_replicas_that_part_are_told_where_an_update_was_seen_to_be_shared() -> None:
    parted = {0: [1, 1, 2], 1: [1, 1, 3]}
    shared = states({0: [5, 5, 6], 1: [5, 5, 7]}, (), "moment1")
    assert {d.kind for d in agreement.compare([*states(parted, ()), *shared], {}).found} == {"weight"}
    zeros = states({0: [0, 0, 6], 1: [0, 0, 7]}, (), "moment1")  # experts that no token reached
    assert not agreement.compare([*states(parted, ()), *zeros], {}).found
    moved = states({0: [1, 2, 3], 1: [1, 2, 4]}, ())
    assert [d.agreed for d in agreement.compare(moved, {}).found] == [2]


def test_nearly_all_alike_at_first_is_told_only_once_an_update_was_shared() -> None:
    stages = states({0: [1, 2], 1: [1, 3], 2: [9, 8]}, ())  # a norm on two stages, another layer on the third
    frozen = states({0: [1, 1], 1: [1, 1], 2: [9, 9]}, ())
    experts = states({0: [0, 2], 1: [0, 3], 2: [7, 8]}, (), "moment1")  # of which one was reached
    for rows in (stages, frozen, experts):
        compared = agreement.compare(rows, {})
        assert not compared.found
        assert len(compared.own) == 1
    buffer = agreement.compare(states({0: [1, 1], 1: [1, 1], 2: [9, 9]}, (), "buffer"), {})
    assert [d.odd for d in buffer.found] == [(2,)]
    shared = states({r: [5, 6] for r in range(3)}, (), "moment1")  # averaged, from another start
    started = agreement.compare([*states({0: [1], 1: [1], 2: [9]}, ()), *shared], {})
    assert [(d.kind, d.odd) for d in started.found] == [("weight", (2,))]


def test_a_constant_that_changes_on_one_of_two_ranks_is_told() -> None:
    (d,) = agreement.compare(states({0: [1, 1], 1: [1, 9]}, (), "buffer"), {}).found
    assert (d.step, d.agreed, d.declared) == (2, 1, False)


def test_ranks_agree_again_only_where_the_odd_one_was_compared() -> None:
    gone: dict[int, list[int | None]] = {0: [1, 2, 3], 1: [1, 7, None], 2: [1, 2, 3]}
    (d,) = agreement.compare(states(gone), {"g": [0, 1, 2]}).found
    assert (d.odd, d.until) == ((1,), None)


def test_the_last_agreement_is_one_that_the_odd_rank_took_part_in() -> None:
    away: dict[int, list[int | None]] = {0: [1, 2, 3], 1: [1, None, 9], 2: [1, 2, 3]}
    (d,) = agreement.compare(states(away), {"g": [0, 1, 2]}).found
    assert (d.odd, d.agreed, d.step) == ((1,), 1, 3)


def points(signal: str, held: Mapping[int, Sequence[float | None]]) -> list[Point]:
    """rank -> its values at steps 1, 2, ..."""
    return [
        Point(SEGMENT, rank, step, signal, value)
        for rank, values in held.items()
        for step, value in enumerate(values, 1)
        if value is not None
    ]


def test_a_rate_that_one_rank_has_unlike_the_others_is_named_with_its_step() -> None:
    rows = points("lr", {0: [0.1, 0.2, 0.3], 1: [0.1, 0.2, 0.3], 2: [0.1, 0.5, 0.5]})
    (u,) = settings_ranks.compare(rows)
    assert (u.signal, u.step, u.classes) == ("lr", 2, ((0.2, (0, 1)), (0.5, (2,))))


def test_a_counter_of_one_tensor_is_named_with_the_step_at_which_it_was_read_before() -> None:
    greatest = points("optimizer_step_max", {0: [1, None, None, 4], 1: [1, None, None, 7]})
    least = points("optimizer_step_min", {0: [1, None, None, 4], 1: [1, None, None, 4]})
    (said,) = settings_ranks.findings([*least, *greatest])
    assert (said.subject, said.severity) == ("optimizer_step_max", "fault")
    assert "from step 4 (read before at step 1, and alike)" in said.text


def test_counters_that_all_moved_alike_are_said_once() -> None:
    rows = [
        p for s in ("optimizer_step_min", "optimizer_step_max") for p in points(s, {0: [1, 2], 1: [1, 9]})
    ]
    assert [u.signal for u in settings_ranks.compare(rows)] == ["optimizer_step_min"]


def test_a_value_of_a_group_stands_until_the_next_one() -> None:
    rows = points("lr of group 0", {0: [0.1, None, 0.2], 1: [0.1, None, 0.2]}) + points(
        "loss", {0: [1.0] * 3, 1: [1.0] * 3}
    )
    assert settings_ranks.compare(rows) == []


def test_a_step_that_a_rank_has_not_recorded_is_no_difference() -> None:
    rows = points("clip_threshold", {0: [1.0, 1.0, 1.0], 1: [1.0]})
    assert settings_ranks.compare(rows) == []


def times(slow: Sequence[float]) -> list[Point]:
    """Four ranks at 0.1 s a step, rank 2 longer by so much before its first gradient."""
    held = {r: [0.03 + (extra if r == 2 else 0.0) for extra in slow] for r in range(4)}
    return [
        *points("time_to_gradient", held),
        *points("time_step", {r: [0.1 + extra for extra in slow] for r in range(4)}),
        *points("time_between", {r: [0.002] * len(slow) for r in range(4)}),
    ]


def test_a_slow_rank_is_named_from_where_it_begins() -> None:
    (s,) = slow_rank.find(times([0.0] * 20 + [0.2] * 15))
    assert (s.rank, s.signal, s.step, s.until) == (2, "time_to_gradient", 21, 35)
    assert math.isclose(s.excess, 0.2)


def test_a_few_slow_steps_name_no_rank() -> None:
    assert slow_rank.find(times(([0.0] * 9 + [0.5]) * 5)) == []


def order(ranks: Mapping[int, str]) -> list[Batch]:
    """rank -> one letter per step."""
    return [Batch(r, s, 0, f"{x}{s}") for r, letters in ranks.items() for s, x in enumerate(letters, 1)]


def test_ranks_that_swap_their_data_are_named_from_the_step_on() -> None:
    here, there = order({0: "aabb", 1: "bbaa", 2: "cccc"}), order({0: "aaaa", 1: "bbbb", 2: "cccc"})
    found = swapped_ranks.find(here, there)
    assert [(t.rank, t.of, t.step) for t in found] == [(0, 1, 3), (1, 0, 3)]


def test_one_batch_in_common_is_no_swap() -> None:
    assert swapped_ranks.find(order({0: "ab", 1: "cd"}), order({0: "ax", 1: "yb"})) == []


@given(st.sets(st.integers(0, 3000), max_size=60))
def test_sets_of_ranks_read_back_as_written(found: set[int]) -> None:
    assert set(rank_sets.parse(rank_sets.text(found))) == found
