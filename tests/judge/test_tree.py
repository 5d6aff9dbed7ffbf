"""The lineage as a tree: what stands flat, what is nested, what is folded, what is referred to."""

from __future__ import annotations

from typing import Any

import schemas
from lineage.judge import ancestry, joined, tree
from lineage.judge.tree import Fold, Item, Part, Root, Tail, Turn
from lineage.judge.validity import verdict

from .builders import History, uid
from .test_pairs import changed, live, past, unchanged


def forest(*ledgers: History, every: bool = False, **more: Any) -> list[Root]:
    world = joined.join([h.records for h in ledgers], **more)
    return tree.forest(world, every=every, twins=ancestry.twins(world))


def parts(roots: list[Root]) -> dict[int, Part]:
    """Every segment of one run by its number, wherever it stands; a segment that stood twice would fail."""
    out: dict[int, Part] = {}
    lines = [r.line for r in roots]
    while lines:
        for p in lines.pop().parts:
            assert p.number not in out
            out[p.number] = p
            lines += [b for i in p.items if isinstance(i, Item) for b in i.under]
    return out


def items(part: Part) -> dict[int, Item]:
    return {i.step: i for i in part.items if isinstance(i, Item)}


def three() -> History:
    """Segment 1 left at 20 of 30; segment 2 from there and left whole; segment 3 goes on."""
    h = past()
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.checkpoint(21, 2, 25, [20])
    h.segment(3, parent=20, at=20)
    h.drift(3, changed(21, grad_clip=0.3))
    h.checkpoint(31, 3, 30, [20])
    return h


def test_the_surviving_line_is_flat_and_side_branches_hang_from_their_checkpoint() -> None:
    """Segments 1 and 3 are one line; segment 2 stands under step 20; the tail of segment 1 is marked."""
    roots = forest(three())
    assert [[p.number for p in r.line.parts] for r in roots] == [[1, 3]]
    one, three_ = roots[0].line.parts
    (side,) = items(one)[20].under
    assert [p.number for p in side.parts] == [2]
    assert [i for i in one.items if isinstance(i, Tail)] == [Tail(20, 30)]
    assert (one.state, side.parts[0].state, three_.state) == ("abandoned", "tip", "newest")
    assert three_.came is not None
    assert (three_.came.step, three_.came.number) == (20, 1)


def test_each_state_has_its_mark_of_validity() -> None:
    """Step 20 holds but for the change of step 5 in its own past; the changed branch is broken, the other not."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(20, 1, 20)
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.segment(3, parent=20, at=20)
    h.drift(3, changed(21, grad_clip=0.3))
    h.checkpoint(31, 3, 30, [20])
    found = parts(forest(h))
    assert items(found[1])[20].verdict == "holds"
    assert (found[2].verdict, found[3].verdict) == ("holds", "broken")
    assert items(found[3])[30].verdict == "broken"


def test_the_mark_of_a_state_is_its_verdict() -> None:
    """Judged stretch by stretch, and yet the same as a verdict of each state by itself."""
    h = three()
    h.segment(4, parent=31, at=30, steps=0)
    h.checkpoint(50, 3, 28, [31, 21], transformation="graft")
    h.segment(5, start="unknown", at=7)
    h.segment(6, parent=777, at=3)
    for version in ("1.0", "1.1"):
        found = schemas.Evaluation(checkpoint=uid(31), evaluator="x", evaluator_version=version, results={})
        h.add(found, 3, step=30)
    cell = schemas.Cell(
        segment=uid(2), rank=0, step=24, signal="loss", abnormal="out_of_range", value=9.0, text="loss is 9"
    )
    bad = {uid(2): schemas.FirstBad(cell=cell)}
    for records in (h.records, h.records[:-2]):
        world = joined.join([records], bad=bad)
        shown = parts(tree.forest(world, every=True))
        assert len(shown) == 6
        for p in shown.values():
            assert p.verdict == verdict(records, segment=p.uid, bad=bad, graph=world.graph).status, p.number
            for i in items(p).values():
                assert i.verdict == verdict(records, checkpoint=i.uid, bad=bad, graph=world.graph).status, (
                    i.uid
                )


def test_long_chains_are_folded_and_unfolded() -> None:
    """Of 47 saves the marked one and the newest stay in sight."""
    h = History()
    h.segment(1, steps=47_000)
    for n in range(1, 48):
        h.checkpoint(100 + n, 1, n * 1000, [99 + n] if n > 1 else [])
    h.add(
        schemas.CheckpointMark(checkpoint=uid(120), mark="last_good", why="before the spike"), 1, step=20_500
    )
    (part,) = forest(h)[0].line.parts
    folds = [i for i in part.items if isinstance(i, Fold)]
    assert [(len(f.steps), f.steps[0], f.steps[-1]) for f in folds] == [
        (19, 1000, 19_000),
        (26, 21_000, 46_000),
    ]
    assert {s: i.marks for s, i in items(part).items()} == {20_000: ("last_good",), 47_000: ()}
    (whole,) = forest(h, every=True)[0].line.parts
    assert len(items(whole)) == 47


def test_a_fold_never_joins_states_of_different_validity() -> None:
    """Saves before and after a non-finite loss are told apart."""
    h = History()
    h.segment(1, steps=60)
    for n in range(1, 7):
        h.checkpoint(100 + n, 1, n * 10)
    cell = schemas.Cell(
        segment=uid(1),
        rank=3,
        step=35,
        signal="loss",
        abnormal="non_finite",
        value=float("nan"),
        text="loss is NaN",
    )
    (part,) = forest(h, bad={uid(1): schemas.FirstBad(cell=cell)})[0].line.parts
    assert part.bad == "rank 3, step 35: loss is NaN"
    folds = [i for i in part.items if isinstance(i, Fold)]
    assert [(f.steps, f.verdict) for f in folds] == [((10, 20, 30), "holds"), ((40, 50), "broken")]


def test_a_state_of_several_parents_stands_once_and_its_parents_refer_to_it() -> None:
    """A graft from two branches."""
    h = three()
    h.segment(4, parent=31, at=30)
    h.drift(4, unchanged(31, parent=31))
    h.checkpoint(50, 4, 40, [31, 21], transformation="graft")
    found = parts(forest(h))
    made = items(found[4])[40]
    assert made.transformation == "graft"
    assert [(r.step, r.number) for r in made.parents] == [(30, 3), (25, 2)]
    assert [(r.uid, r.number) for r in items(found[2])[25].goes_into] == [(uid(50), 4)]
    assert items(found[3])[30].goes_into == ()  # it is what the segment began from, and stands on the line


def test_changes_of_regime_stand_where_they_happened() -> None:
    """At the step from which they hold, before the save of that step."""
    h = History()
    h.segment(1, steps=30)
    regime = schemas.Regime(id="sha256:01", index=0, from_step=1, values={})
    h.add(regime, 1, step=1)
    h.add(
        regime.model_copy(
            update={"id": "sha256:02", "index": 1, "from_step": 20, "because": ["clip 1 -> 0.3"]}
        ),
        1,
    )
    for n, step in ((10, 10), (20, 20), (30, 30)):
        h.checkpoint(n, 1, step)
    (part,) = forest(h, every=True)[0].line.parts
    assert part.regime == 0
    assert [i.step if isinstance(i, Item | Turn) else None for i in part.items] == [10, 20, 20, 30]
    assert part.items[1] == Turn(20, 1, ("clip 1 -> 0.3",))
    assert [i.regime for i in part.items if isinstance(i, Item)] == [0, 1, 1]


def test_a_fork_hangs_from_its_checkpoint_in_the_other_ledger() -> None:
    """Both runs in one tree where both ledgers are there; alone, the fork names what it does not show."""
    fork = History("f", 200_000)
    fork.segment(6, parent=20, at=20, start="fork")
    fork.drift(6, unchanged(21))
    (root,) = forest(past(), fork)
    (line,) = items(root.line.parts[0])[20].under
    assert [(p.run, p.number, p.start) for p in line.parts] == [("f", 1, "fork")]
    assert root.line.parts[0].state == "newest"
    (alone,) = forest(fork)
    came = alone.line.parts[0].came
    assert came is not None
    assert (came.uid, came.number, came.step) == (uid(20), 0, 20)


def test_checkpoints_of_two_ledgers_that_hold_one_state_say_so() -> None:
    """Twins by content, at one step."""
    one, two = History("one", 100_000), History("two", 200_000)
    one.segment(1, steps=30)
    one.checkpoint(10, 1, 20, live=live(7))
    two.segment(2, steps=30)
    two.checkpoint(60, 2, 20, live=live(7))
    a, b = (items(r.line.parts[0])[20] for r in forest(one, two))
    assert [(r.run, r.step) for r in a.same_as] == [("two", 20)]
    assert [(r.run, r.step) for r in b.same_as] == [("one", 20)]


def test_a_ring_of_parents_is_shown_all_the_same() -> None:
    """No segment is left out because its beginning is wrong."""
    h = History()
    h.segment(1, parent=20, at=5)
    h.checkpoint(10, 1, 8)
    h.segment(2, parent=10, at=8)
    h.checkpoint(20, 2, 5)
    assert set(parts(forest(h))) == {1, 2}


def test_side_branches_of_side_branches_are_shown_whole() -> None:
    """Nesting ends at a depth that a person can read; what lies deeper stands on its own, and refers back."""
    h = History()
    h.segment(1, steps=9)
    h.checkpoint(10_001, 1, 1)
    depth = 3 * tree.DEEPEST
    for n in range(2, depth):
        h.segment(n, parent=10_000 + n - 1, at=n - 1, steps=9)
        h.checkpoint(10_000 + n, n, n)
    for n in reversed(
        range(2, depth)
    ):  # later, the run went on from each of them once more, the deepest first
        h.segment(1000 - n, parent=10_000 + n - 1, at=n - 1, steps=9)
    roots = forest(h)
    assert len(parts(roots)) == 2 * depth - 3
    assert len(roots) > 1
    assert all(r.line.parts[0].came is not None for r in roots[1:])
