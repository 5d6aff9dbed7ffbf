"""The lineage graph: paths, branches, and graphs that are damaged or very long."""

from __future__ import annotations

import schemas
from lineage.judge.graph import Stretch, build

from .builders import History, uid


def test_a_thousand_restarts_are_walked() -> None:
    """A path has no depth at which it fails."""
    h = History()
    h.segment(1, steps=1)
    for n in range(2, 1_502):
        h.checkpoint(10_000 + n, n - 1, n - 1)
        h.segment(n, parent=10_000 + n, at=n - 1, steps=1)
    path = build(h.records).path_to_segment(uid(1_501))
    assert [s.segment for s in path] == [uid(n) for n in range(1, 1_502)]


def test_a_ring_of_parents_ends() -> None:
    """Two segments that name each other's checkpoints, and one that names its own: each is walked once."""
    h = History()
    h.segment(1, parent=20, at=5)
    h.checkpoint(10, 1, 8)
    h.segment(2, parent=10, at=8)
    h.checkpoint(20, 2, 5)
    h.segment(3, parent=30, at=3)
    h.checkpoint(30, 3, 6)
    graph = build(h.records)
    assert {s.segment for s in graph.path_to_segment(uid(2))} == {uid(1), uid(2)}
    assert [s.segment for s in graph.path_to_segment(uid(3))] == [uid(3)]


def test_a_segment_is_on_a_path_once_however_many_of_its_states_lead_there() -> None:
    """A state made of two checkpoints of one segment rests on it up to the later one."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(10, 1, 10)
    h.checkpoint(20, 1, 20)
    h.segment(2, parent=10, at=10)
    h.checkpoint(50, 2, 15, [10, 20])
    assert build(h.records).path_to(uid(50)) == [Stretch(uid(1), 0, 20), Stretch(uid(2), 10, 15)]


def test_a_tail_on_which_a_later_segment_stands_is_not_abandoned() -> None:
    """An experiment from step 20, and the run itself going on from step 30."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(20, 1, 20)
    h.checkpoint(30, 1, 30)
    h.segment(2, parent=20, at=20)
    h.segment(3, parent=30, at=30)
    graph = build(h.records)
    assert graph.abandoned() == {}
    assert graph.tips() == [uid(2), uid(3)]
    assert [s.segment for s in graph.surviving()] == [uid(1), uid(3)]


def test_a_fork_leaves_nothing_behind() -> None:
    """Another run began from step 20; the run itself went on to step 30 and ends there."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(20, 1, 20)
    fork = History("f", 200_000)
    fork.segment(2, parent=20, at=20, start="fork")
    graph = build([*h.records, *fork.records])
    assert graph.abandoned() == {}
    assert graph.tips() == [uid(1), uid(2)]
    assert (graph.number(uid(1)), graph.number(uid(2))) == (1, 1)


def test_what_only_a_sidecar_tells_is_a_gap_in_the_path() -> None:
    """Between the known ancestor and the segment lies something that is not at hand."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(20, 1, 20)
    h.segment(9, parent=77, at=40)
    path = build(h.records, ancestors={uid(77): [uid(66), uid(20)]}).path_to_segment(uid(9))
    assert path == [Stretch(uid(1), 0, 20), Stretch("", 20, None), Stretch(uid(9), 40, None)]


def test_a_checkpoint_that_another_rank_alone_saved_is_what_that_rank_said_last() -> None:
    """Pending at the save, complete once digested; rank 0's word stands above that of the others."""
    h = History()
    h.segment(1, steps=30)
    for rank, status in ((1, "pending"), (1, "complete"), (0, "incomplete"), (1, "pending")):
        h.add(schemas.Checkpoint(uid=uid(10), step=10, status=status), 1, step=10, rank=rank)
        if (rank, status) == (1, "complete"):
            assert build(h.records).nodes[uid(10)].checkpoint.status == "complete"
    assert build(h.records).nodes[uid(10)].checkpoint.status == "incomplete"
