"""Ranks that read the same: one shard, some steps apart, in part, and not at all."""

from __future__ import annotations

import random
from collections.abc import Callable

from lineage.capture.config import capture
from lineage.judge.batches_ranks import Read, judge
from lineage.ledger.reading import group


def reads(rank: int, key: Callable[[int, int], str], steps: int = 16, batch: int = 4) -> list[Read]:
    return [Read(rank, s, i, key(s, i), 32) for s in range(1, steps + 1) for i in range(batch)]


def own(rank: int) -> Callable[[int, int], str]:
    return lambda s, i: f"{rank}-{s}-{i}"


def test_ranks_with_shards_of_their_own_are_silent() -> None:
    """Also where a few samples are in common by chance."""
    assert judge([r for rank in range(4) for r in reads(rank, own(rank))]) == []
    once = reads(0, own(0)) + reads(1, lambda s, i: "0-3-2" if (s, i) == (5, 1) else f"1-{s}-{i}")
    assert judge(once) == []


def test_ranks_on_one_shard_are_found_in_groups() -> None:
    """Two pairs of two ranks, as a world size that is wrong by half makes them."""
    (found,) = judge([r for rank in range(4) for r in reads(rank, own(rank // 2))], group=1)
    assert (found.code, found.severity) == ("LIN-B004", "warning")
    assert found.text == "ranks 0, 1; ranks 2, 3 read the same samples in the same order, at the same steps"
    assert found.values["groups"].value == 2
    assert found.names[0] == "0-1-0"


def test_ranks_of_one_replica_are_meant_to_read_the_same() -> None:
    """Told where groups are larger than a replica, a note where the size of one is not known."""
    pairs = [r for rank in range(4) for r in reads(rank, own(rank // 2))]
    assert judge(pairs, group=2) == []
    assert judge(pairs, group=4) == []
    assert [f.severity for f in judge(pairs)] == ["note"]
    alike = [r for rank in range(4) for r in reads(rank, own(0))]
    assert [f.severity for f in judge(alike, group=2)] == ["warning"]
    assert [f.severity for f in judge(alike)] == ["warning"]
    assert judge(alike, group=4) == []


def test_the_size_of_a_replica_is_the_product_of_what_the_config_asks_for() -> None:
    """Tensor times pipeline parallel, by any framework's keys; a config that names none tells nothing."""
    asked = capture({"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2, "lr": 0.1})
    assert group(asked, None) == 8
    assert group(capture({"lr": 0.1}), None) is None


def test_ranks_on_one_shard_some_steps_apart() -> None:
    """Rank 1 reads what rank 0 had three steps before."""
    (found,) = judge(reads(0, own(0)) + reads(1, lambda s, i: f"0-{s - 3}-{i}"))
    assert (found.code, found.values["lag"].value) == ("LIN-B004", 3)
    assert "up to 3 steps apart" in found.text


def test_an_overlap_in_part_is_told_with_its_share() -> None:
    """Half of rank 1's samples are rank 0's, in another order."""
    (found,) = judge(
        reads(0, own(0)) + reads(1, lambda s, i: f"0-{s * 7 % 16 + 1}-{i}" if i < 2 else f"1-{s}-{i}")
    )
    assert (found.code, found.count) == ("LIN-B003", 32)
    assert found.values["share"].value == 0.5


def test_a_pass_that_ends_deals_samples_to_other_ranks_and_is_no_overlap() -> None:
    """Two ranks share out 40 samples anew in each pass of five steps: what both have in common came in two passes.

    Also where the steps that are looked at hold only the end of one pass and the beginning of the next.
    """
    for seed in range(40):
        dealt = random.Random(seed)
        for samples, upto in ((40, 8), (200, 40), (800, 130)):
            found, order = [], []
            for step in range(1, upto + 1):
                order = order if len(order) >= 8 else dealt.sample(range(samples), samples)
                taken, order = order[:8], order[8:]
                found += [Read(n % 2, step, n, str(x), 32) for n, x in enumerate(taken)]
            assert judge([r for r in found if r.step > upto - 32]) == [], (seed, samples)


def test_short_samples_are_not_compared() -> None:
    """Sequences of a few tokens are alike by chance."""
    short = [Read(rank, s, 0, "x", 3) for rank in range(2) for s in range(1, 20)]
    assert judge(short) == []
