"""Ranks of one step judged against each other."""

from __future__ import annotations

import math
import random

import pytest

from lineage.judge.detect_ranks import RANKS, odd_ranks
from lineage.judge.firstbad import Point, RankSeen, Seen, cells, first_bad
from lineage.judge.graph import build

from .builders import History, uid


def norms(size: int, r: random.Random, sigma: float = 0.12) -> dict[int, float]:
    """Local gradient norms of the ranks at one step."""
    return {i: 2.0 * math.exp(r.gauss(0.0, sigma)) for i in range(size)}


@pytest.mark.parametrize("size", [3, 4, 8, 64, 512])
def test_ranks_that_differ_as_batches_do_are_not_odd(size: int) -> None:
    """Nor does the number of ranks make some of them odd."""
    r = random.Random(size)
    assert not any(odd_ranks("grad_norm_local", norms(size, r)) for _ in range(20_000 // size))


@pytest.mark.parametrize("size", [8, 64, 512])
def test_the_first_step_can_be_judged(size: int) -> None:
    """One rank at ten times the others, without any history."""
    values = norms(size, random.Random(0))
    (found,) = odd_ranks("grad_norm_local", {**values, 5: 20.0})
    assert found.ranks == (5,)
    assert found.abnormal == "out_of_range"
    assert found.value == 20.0
    assert found.median == pytest.approx(2.0, rel=0.15)
    assert found.of == size
    assert found.detector == RANKS["grad_norm_local"].parameters()


def test_several_odd_ranks_do_not_hide_each_other() -> None:
    """Up to a half of the ranks can be off without moving the median much."""
    values = norms(16, random.Random(0))
    (found,) = odd_ranks("grad_norm_local", {**values, 3: 50.0, 9: 60.0, 12: 400.0})
    assert found.ranks == (12, 9, 3)


def test_non_finite_ranks_are_named_beside_finite_ones() -> None:
    """Where all ranks are non-finite, they do not differ, and nothing is said here."""
    values = norms(8, random.Random(0))
    (found,) = odd_ranks("loss", {**values, 2: math.nan, 6: math.inf})
    assert (found.abnormal, found.ranks) == ("non_finite", (2, 6))
    assert odd_ranks("loss", dict.fromkeys(range(8), math.nan)) == []


def test_two_ranks_cannot_tell_which_of_them_is_odd() -> None:
    """Nothing is said, rather than a guess."""
    assert odd_ranks("grad_norm_local", {0: 1.0, 1: 1000.0}) == []


def test_a_reduced_norm_is_the_same_on_all_ranks_and_not_compared() -> None:
    """Only signals that a rank has of its own are."""
    assert odd_ranks("grad_norm", {0: 1.0, 1: 1.0, 2: 1.0, 3: 1e6}) == []


def test_equal_ranks_have_a_floor() -> None:
    """Replicas that agree to the last bit must not make a last digit odd."""
    assert odd_ranks("loss", {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0, 4: 2.1}) == []


def points(bad: dict[int, float]) -> list[Point]:
    """Four ranks over twenty steps; some of them have another value at the last."""
    r = random.Random(0)
    return [
        Point(uid(1), rank, step, "grad_norm_local", bad.get(rank, v) if step == 20 else v)
        for step in range(1, 21)
        for rank, v in norms(4, r).items()
    ]


def test_the_first_bad_cell_is_set_beside_the_other_ranks_of_its_step() -> None:
    """One rank alone is named; where all are bad, none stands out, and that is said too."""
    history = History()
    history.segment(1, steps=20)
    graph = build(history.records)
    said = []
    for bad in ({2: 90.0}, dict.fromkeys(range(4), 90.0)):
        values = points(bad)
        at = {p.rank: p.value for p in values if p.step == 20}
        seen = Seen(
            {r: RankSeen(1, 20, frozenset(["grad_norm_local"])) for r in range(4)}, 4, lambda cell, at=at: at
        )
        found = first_bad(graph, uid(1), cells(values), seen)
        assert found.cell is not None
        assert found.cell.step == 20
        said.append(found.spread[0])
    assert said == [
        "step 20: rank 2 unlike the median of 4 ranks (norm-ranks/1)",
        "step 20: no rank stands out from the other 3 (norm-ranks/1)",
    ]
