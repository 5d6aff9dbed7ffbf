"""The class of a symptom: where and when it shows, with numbers, and `unknown` where the ledger cannot tell."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import schemas
from lineage.judge import evaluations
from lineage.judge.cells import Point
from lineage.judge.firstbad import RankSeen, Seen, first_bad
from lineage.judge.graph import Graph, build
from lineage.judge.recurring import recurring
from lineage.judge.symptom_checks import CHECKS
from lineage.judge.symptoms import RESTART, TITLES

from .builders import History, uid
from .test_firstbad_tensors import cell, of, seen


def classes(found: schemas.FirstBad) -> list[str]:
    return [s.cls for s in found.symptoms]


def placed(ranks: int) -> Seen:
    """Ranks on nodes of four, each on a device of its own."""
    found = seen(ranks)
    places = {
        r: schemas.Place(node=f"n{r // 4}", local_rank=r % 4, device=f"GPU-{r}", pid=r + 1)
        for r in range(ranks)
    }
    return dataclasses.replace(
        found, ranks={r: dataclasses.replace(s, place=places[r]) for r, s in found.ranks.items()}
    )


def test_every_class_has_checks_each_with_its_source() -> None:
    names = set(get_args(schemas.Symptom.model_fields["cls"].annotation))
    assert names == set(CHECKS) == set(TITLES)
    assert all(c.source and len(c.text) > 40 for checks in CHECKS.values() for c in checks)


def test_one_rank_is_told_with_how_many_are_in_range_and_where_it_ran() -> None:
    found = of(cell("loss", 20, rank=5), seen=placed(8))
    (symptom,) = found.symptoms
    assert symptom.cls == "one_rank"
    assert "7 of 8 ranks" in symptom.reason
    assert symptom.evidence == ["on node n1, device GPU-5 (1 of its 4 ranks)"]
    assert found.place is not None
    assert (found.place.node, found.place.device) == ("n1", "GPU-5")


def test_some_ranks_are_told_with_the_node_they_share() -> None:
    found = of(*(cell("loss", 20, rank=r) for r in (4, 5, 6, 7)), seen=placed(12))
    assert classes(found) == ["some_ranks"]
    assert found.symptoms[0].evidence == ["on node n1 (all of its 4 ranks)"]
    assert [t.rank for t in found.ties] == [5, 6, 7]


def test_all_ranks_before_the_reduction_is_global() -> None:
    found = of(*(cell("loss", 20, rank=r) for r in range(4)))
    assert classes(found) == ["global"]
    assert "on all 4 ranks that recorded it" in found.symptoms[0].reason


def test_what_the_ledger_cannot_tell_is_unknown_with_what_is_missing() -> None:
    """Only one of four ranks recorded; only the reduced gradient is there; nothing is known of the ranks."""
    alone = Seen({0: RankSeen(1, 40, frozenset(["loss"]))}, 4)
    found = of(cell("loss", 20), seen=alone)
    assert classes(found) == ["unknown"]
    assert "only rank 0 of 4" in found.symptoms[0].reason
    assert found.gaps == ["ranks 1-3 left nothing in this ledger: no journal and no values"]
    reduced = of(*(cell("grad_norm", 20, rank=r) for r in range(4)), seen=seen(4, "grad_norm"))
    assert classes(reduced) == ["unknown"]
    assert "before the reduction nothing is recorded" in reduced.symptoms[0].reason
    assert classes(first_bad(Graph(), uid(1), [cell("loss", 20)])) == ["unknown"]


def test_one_tensor_is_where_it_begins_and_all_of_them_is_none() -> None:
    """A single gradient; one that later ones follow; all of them, which a broken loss does."""
    gradients = [cell("gradient", 20, tensor=f"b.{i}.w", layer=f"b.{i}", order=i) for i in range(5)]
    assert classes(of(gradients[3])) == ["one_rank", "one_tensor"]
    follows = of(*gradients[2:])
    assert classes(follows) == ["one_rank", "one_tensor"]
    assert "the 2 gradients before it are finite" in follows.symptoms[1].reason
    assert classes(of(*gradients)) == ["one_rank"]


def test_soon_after_a_restart_is_told_with_the_parent_and_not_later() -> None:
    h = History()
    h.segment(1, steps=100)
    h.checkpoint(10, 1, 100)
    h.segment(2, parent=10, at=100, steps=100)
    graph = build(h.records)

    def at(step: int) -> schemas.FirstBad:
        return first_bad(graph, uid(2), [cell("loss", step, segment=uid(2))], seen(1, last=200))

    found = at(103)
    assert classes(found) == ["global", "after_restart"]
    assert found.symptoms[1].reason.startswith(
        "3 updates into segment 2, which is a resume from the checkpoint at step 100"
    )
    assert found.last_good_checkpoint == uid(10)
    assert classes(at(100 + RESTART)) == ["global", "after_restart"]
    assert classes(at(101 + RESTART)) == ["global"]
    fresh = first_bad(graph, uid(1), [cell("loss", 3)], seen(1, last=200))
    assert classes(fresh) == ["global"]


def test_in_evaluation_only_is_told_where_training_is_recorded_and_shows_nothing() -> None:
    values = [Point(uid(1), 0, s, "eval/loss", 3.0 if s < 90 else 9.0) for s in range(10, 100, 10)]
    values += [Point(uid(1), 0, 50, "val/accuracy", math.nan), Point(uid(1), 0, 50, "train/other", math.nan)]
    found = [c for c in evaluations.cells(values) if "other" not in c.signal]
    assert [(c.step, c.signal, c.abnormal) for c in found] == [
        (50, "evaluation:val/accuracy", "non_finite"),
        (90, "evaluation:eval/loss", "out_of_range"),
    ]
    only = of(*found)
    assert classes(only) == ["evaluation_only"]
    assert only.cell is not None
    assert only.cell.step == 50
    training = of(*found, cell("loss", 70))
    assert training.cell is not None
    assert (training.cell.signal, training.cell.step) == ("loss", 70)
    assert training.spread[0].startswith(
        "step 50: evaluation val/accuracy is NaN, before anything of training"
    )
    assert classes(of(found[0], seen=seen(1, ""))) == ["unknown"]


def test_a_device_is_known_again_under_another_rank_after_a_restart() -> None:
    """Ranks are numbered anew, devices are not: the second first bad cell names the first one's rank."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(10, 1, 10)
    h.segment(2, parent=10, at=10, steps=30)
    graph = build(h.records)
    before = placed(8)
    moved = dataclasses.replace(
        before, ranks={7 - r: dataclasses.replace(s, place=s.place) for r, s in before.ranks.items()}
    )
    bads = {
        uid(1): first_bad(graph, uid(1), [cell("loss", 20, rank=5)], before),
        uid(2): first_bad(graph, uid(2), [cell("loss", 35, rank=2, segment=uid(2))], moved),
    }
    both = recurring(graph, bads, {uid(1): before.ranks, uid(2): moved.ranks})
    assert (
        both[uid(2)].symptoms[0].evidence[-1]
        == "the same device had the first bad cell of segment 1, as rank 5"
    )
    one = recurring(graph, {uid(2): bads[uid(2)]}, {uid(1): before.ranks, uid(2): moved.ranks})
    assert (
        one[uid(2)].symptoms[0].evidence[-1]
        == "ranks were numbered anew: this device was rank 5 in segment 1"
    )
