"""Ranks that read the same: one shard, some steps apart, in part, and not at all."""

from __future__ import annotations

from collections.abc import Callable

from lineage.judge.batches_ranks import Read, judge


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
    (found,) = judge([r for rank in range(4) for r in reads(rank, own(rank // 2))])
    assert (found.code, found.severity) == ("LIN-B004", "warning")
    assert found.text == "ranks 0, 1; ranks 2, 3 read the same samples in the same order, at the same steps"
    assert found.values["groups"].value == 2
    assert found.names[0] == "0-1-0"


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


def test_short_samples_are_not_compared() -> None:
    """Sequences of a few tokens are alike by chance."""
    short = [Read(rank, s, 0, "x", 3) for rank in range(2) for s in range(1, 20)]
    assert judge(short) == []
