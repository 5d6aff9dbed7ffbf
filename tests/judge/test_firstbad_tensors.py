"""The first bad cell by layer and tensor: the order of execution, what may begin something, and how it spread."""

from __future__ import annotations

import math
from typing import Any

import pytest

import schemas
from lineage.judge import cells_tensors
from lineage.judge.cells import Point, cells, searching
from lineage.judge.firstbad import RankSeen, Seen, first_bad
from lineage.judge.graph import Graph, build
from lineage.judge.layers import TensorRow
from lineage.judge.seen import unended

from .builders import History, uid


def cell(signal: str, step: int, rank: int = 0, abnormal: str = "non_finite", **more: Any) -> schemas.Cell:
    made = {
        "segment": uid(1),
        "rank": rank,
        "step": step,
        "signal": signal,
        "abnormal": abnormal,
        "value": math.nan,
    }
    return schemas.Cell.model_validate({**made, "text": f"{signal} is bad", **more})


def seen(
    ranks: int, signals: str = "loss grad_norm_local grad_norm gradient", last: int = 40, **more: Any
) -> Seen:
    return Seen({r: RankSeen(1, last, frozenset(signals.split())) for r in range(ranks)}, ranks, **more)


def of(*found: schemas.Cell, **more: Any) -> schemas.FirstBad:
    return first_bad(Graph(), uid(1), found, more.pop("seen", seen(4)), **more)


def test_within_a_step_the_order_of_execution_decides_over_all_kinds_of_cells() -> None:
    """Outputs by block, loss, gradients as they arrive, their norm, the reduced one, then what the update leaves."""
    order = [
        cell("activation", 20, tensor="blocks.1", layer="blocks.1", order=1),
        cell("activation", 20, tensor="blocks.2", layer="blocks.2", order=2),
        cell("loss", 20),
        cell("gradient", 20, tensor="head.weight", layer="head", order=0),
        cell("gradient", 20, tensor="blocks.2.w", layer="blocks.2", order=1),
        cell("grad_norm_local", 20),
        cell("grad_norm", 20),
        cell("moment1", 20, tensor="head.weight"),
        cell("weight", 20, tensor="head.weight"),
        cell("replica:head.weight", 20, tensor="head.weight", abnormal="differs"),
        cell("loss", 21),
    ]
    for i in range(len(order)):
        found = of(*reversed(order[i:])).cell
        assert found is not None
        assert (found.signal, found.tensor) == (order[i].signal, order[i].tensor)


def test_a_layer_out_of_range_begins_nothing_by_itself_and_does_where_more_follows_at_once() -> None:
    """Rules for layers flag a healthy one now and then: step 9 is such a one, steps 18 and 19 lead up to the NaN."""
    alone = cell("gradient", 9, abnormal="out_of_range", layer="blocks.3", tensor="blocks.3.w", order=4)
    assert of(alone).cell is None
    lead = [cell("gradient", s, abnormal="out_of_range", layer="blocks.3", order=4) for s in (18, 19)]
    elsewhere = cell("gradient", 19, rank=3, abnormal="out_of_range", layer="blocks.0", order=9)
    found = of(alone, *lead, elsewhere, cell("loss", 20))
    assert found.cell is not None
    assert (found.cell.step, found.cell.layer, found.last_good_step) == (18, "blocks.3", 17)


def test_a_weight_that_is_read_each_tenth_step_is_good_until_it_was_last_read() -> None:
    """The last good step is the one at which it was read and was finite, and what lies between is said."""
    rows = [TensorRow(s, "weight", "head.weight", None, 1.0, 1.0, int(s == 30), 64) for s in (10, 20, 30)]
    (bad,) = cells_tensors.broken(uid(1), 2, rows, {("weight", "head.weight"): [10, 20, 30]})
    assert (bad.step, bad.last_good, bad.tensor, bad.layer) == (30, 20, "head.weight", "head")
    found = of(bad)
    assert found.last_good_step == 20
    assert any("between step 21 and 30" in s for s in found.not_shown)


def test_a_search_for_the_loss_scale_is_no_bad_cell_and_more_than_it_may_take_is() -> None:
    """Infinite gradients in the first steps under a scaler, as the live detectors do; 21 in a row are none."""

    def points(broken: int) -> list[Point]:
        norms = [math.inf if s <= broken else 1.0 for s in range(1, 41)]
        out = [Point(uid(1), 0, s, "grad_norm_local", v) for s, v in enumerate(norms, 1)]
        return out + [Point(uid(1), 0, s, "loss_scale", 65536.0 / 2**s) for s in range(1, 41)]

    assert cells(points(3)) == []
    assert [c.step for c in cells(points(21))] == [21]
    without = [p for p in points(3) if p.signal != "loss_scale"]
    assert searching(without) == set()
    assert [c.step for c in cells(without)] == [1, 2, 3]
    row = TensorRow(2, "gradient", "head.weight", 0, 0.0, 0.0, 64, 64, 64)
    assert cells_tensors.broken(uid(1), 0, [row], searching={1, 2, 3}) == []
    assert cells_tensors.broken(uid(1), 0, [row])[0].value == math.inf


def test_from_one_rank_to_all_by_the_reduction_then_by_the_weights() -> None:
    found = of(
        cell("gradient", 20, rank=1, tensor="blocks.2.w", layer="blocks.2", order=3),
        cell("gradient", 20, rank=1, tensor="blocks.1.w", layer="blocks.1", order=4),
        cell("grad_norm_local", 20, rank=1),
        *(cell("grad_norm", 20, rank=r) for r in range(4)),
        *(cell("weight", 20, rank=r, tensor="blocks.2.w", layer="blocks.2") for r in range(4)),
        *(cell("loss", 21, rank=r) for r in range(4)),
    )
    backward, reduction, update, next_ = found.spread
    assert (
        "backward pass: from blocks.2.w on to 1 tensor after it (blocks.1.w), towards the input" in backward
    )
    assert "abnormal on all 4 ranks" in reduction
    assert "gradients of ranks 0, 2, 3 lie in their range" in reduction
    assert "after the update weights are abnormal on ranks 0-3" in update
    assert "step 21: loss abnormal on ranks 0-3" in next_
    assert found.ties == []
    assert found.later[0].startswith("step 20: ")


def test_reduced_alone_is_not_put_on_a_rank() -> None:
    """With all ranks' own gradients in range the reduction is in question; with some unread, that is said."""
    reduced = [cell("grad_norm", 20, rank=r) for r in range(4)]
    assert "none is abnormal there; the reduction itself" in of(*reduced).not_shown[0]
    half = Seen({**seen(4).ranks, 3: RankSeen(1, 40, frozenset(["grad_norm"]))}, 4)
    assert "before the reduction nothing is recorded of rank 3" in of(*reduced, seen=half).not_shown[0]


def test_what_a_divided_model_keeps_from_being_known_is_said() -> None:
    """FSDP reads shards; tensor parallel ranks mix in the forward pass; pipeline stages follow each other."""
    weight = cell("weight", 20, tensor="head.weight", last_good=19)
    assert any(
        "other shards of head.weight" in s for s in of(weight, seen=seen(4, layout=("fsdp",))).not_shown
    )
    loss = of(cell("loss", 20), seen=seen(4, layout=("pipeline", "tensor"))).not_shown
    assert any("tensor or expert parallel group" in s for s in loss)
    assert any("pipeline stages" in s for s in loss)


def test_a_layer_that_leaves_its_range_is_found_among_its_steps_with_its_largest_tensor() -> None:
    """Six layers wobble for sixty steps; one is a thousand times its norm at step 60."""
    steps = []
    for s in range(1, 61):
        norms = {f"blocks.{i}": (1 + i) * (1 + 0.05 * math.sin(7.0 * s + i)) for i in range(6)}
        if s == 60:
            norms["blocks.4"] *= 1000
        steps.append(
            cells_tensors.LayerNorms(s, "gradient", norms, {n: i for i, n in enumerate(norms)}, "{}.w".format)
        )
    (found,) = cells_tensors.out_of_range(uid(1), 0, steps)
    assert (found.step, found.layer, found.tensor, found.order) == (60, "blocks.4", "blocks.4.w", 4)
    assert "of layer blocks.4" in found.text
    assert "most of it in blocks.4.w" in found.text


def test_a_forward_pass_that_breaks_between_two_reads_of_the_state_leaves_open_whether_the_state_was_bad_before() -> (
    None
):
    """Moments that break spoil a checkpoint some steps before any loss shows it."""

    def said(signal: str, read: int | None) -> list[str]:
        known = seen(4, state_read=lambda c: read)
        return [t for t in of(cell(signal, 27), seen=known).not_shown if "weights and moments" in t]

    for signal in ("loss", "activation"):
        (text,) = said(signal, 21)
        assert "until step 26: rank 0 last read them at step 21" in text
    assert said("loss", 26) == []  # read after the step before: whatever was bad would have a row
    assert said("loss", None) == []  # never read: nothing is held against it
    assert said("gradient", 21) == []  # the loss before it was finite, so the weights were


def test_a_checkpoint_from_after_the_last_read_of_the_state_is_said_to_be_in_doubt() -> None:
    def said(*saved: int) -> str:
        history = History()
        history.segment(1, steps=40)
        for n, step in enumerate(saved, 10):
            history.checkpoint(n, 1, step)
        graph = build(history.records)
        found = first_bad(graph, uid(1), [cell("loss", 27)], seen(4, state_read=lambda c: 21))
        return next(t for t in found.not_shown if "weights and moments" in t)

    assert said(20, 24, 25).endswith(
        "; what broke may be in the checkpoint of step 25 already; the latest one that is not in doubt is that of "
        "step 24"
    )
    assert "checkpoint" not in said(20)


@pytest.mark.parametrize(
    ("signal", "read", "saved", "good"),
    [
        ("loss", 21, (20, 24, 25), 24),  # a moment that broke in update 25 shows in the loss of step 27
        ("loss", 25, (20, 24, 25), 25),  # it was read, and was as it should be
        ("loss", 21, (25,), 25),  # all are in doubt
        ("gradient", 21, (24, 25), 25),  # the forward pass of step 27 was good
    ],
)
def test_a_checkpoint_that_may_hold_what_broke_is_not_the_last_good_one(
    signal: str, read: int, saved: tuple[int, ...], good: int
) -> None:
    history = History()
    history.segment(1, steps=40)
    for n, step in enumerate(saved, 10):
        history.checkpoint(n, 1, step)
    graph = build(history.records)
    found = first_bad(graph, uid(1), [cell(signal, 27)], seen(4, state_read=lambda c: read))
    assert graph.nodes[found.last_good_checkpoint or ""].checkpoint.step == good


def test_ranks_without_an_end_are_said_with_where_each_stopped_and_those_with_one_are_not() -> None:
    def rank(last: int, ended: int | None = None, node: str = "n-1") -> RankSeen:
        place = schemas.Place(node=node, pid=1)
        return RankSeen(1, last, frozenset({"loss"}), place=place, ended=ended)

    killed = Seen({0: rank(22), 1: rank(22), 2: rank(21)}, 3)
    assert unended(killed) == [
        "no end is on record (still running, killed, or hanging); last values: rank 2 after step 21, ranks 0, 1 "
        "after step 22"
    ]
    assert unended(Seen({0: rank(22, 22), 1: rank(20)}, 2)) == [
        "no end is on record (still running, killed, or hanging); last values: rank 1 after step 20"
    ]
    assert unended(Seen({0: rank(22, 22), 1: rank(22, 22)}, 2)) == []
    assert unended(Seen({0: rank(22, node=schemas.IMPORTED)}, None)) == []  # a log has no end of a process


def test_ranks_that_had_stopped_are_not_said_to_lie_in_their_range_before_the_reduction() -> None:
    """Rank 3 has a signal of the steps before, and nothing of this one."""
    signals = frozenset({"loss", "grad_norm_local", "grad_norm"})
    known = Seen({r: RankSeen(1, 12 if r == 3 else 40, signals) for r in range(4)}, 4)
    one = [cell("grad_norm_local", 20, 1), *(cell("grad_norm", 20, r) for r in range(3))]
    (text,) = [t for t in of(*one, seen=known).spread if "reduced gradient is abnormal" in t]
    assert "on all 3 ranks that recorded it, while the gradients of ranks 0, 2 lie in their range" in text
    none = [cell("grad_norm", 20, r) for r in range(3)]
    assert any(
        "before the reduction nothing is recorded of rank 3, and the 3 others lie in their range" in t
        for t in of(*none, seen=known).not_shown
    )
