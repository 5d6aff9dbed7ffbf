"""Comparing two states along the lineage: a shared past is shared, and only what came after it decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemas
from lineage.judge import drift as d
from lineage.judge import joined, pairs
from lineage.judge.joined import World

from .builders import (
    CODE,
    History,
    config,
    effective,
    environment,
    restore,
    side,
    statuses,
    uid,
)


def changed(from_step: int, *, parent: int = 20, moment: Any = "resume", **live: Any) -> schemas.Drift:
    """A boundary at which live values differ, everything else shown to be equal."""
    found = d.drift(
        side(),
        side(live=effective(**live)),
        from_step=from_step,
        restore=restore(uid(parent)),
        parent=uid(parent),
    )
    return found.model_copy(
        update={"moment": moment, "not_shown": {} if moment == "in_run" else found.not_shown}
    )


def unchanged(from_step: int, parent: int = 20) -> schemas.Drift:
    """Nothing differs, and all of it is shown."""
    return changed(from_step, parent=parent)


def past(run: str = "r", first: int = 100_000) -> History:
    """Segment 1 to step 30 with a change of clipping in its course at step 5, checkpoints 10 and 20."""
    h = History(run, first)
    h.segment(1, steps=30)
    h.drift(1, changed(5, moment="in_run", grad_clip=0.5))
    h.checkpoint(10, 1, 10)
    h.checkpoint(20, 1, 20, [10])
    return h


def forked() -> History:
    """From checkpoint 20: segment 2 goes on as it was, segment 3 with another learning rate."""
    h = past()
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.checkpoint(21, 2, 30, [20])
    h.segment(3, parent=20, at=20)
    h.drift(3, changed(21, learning_rate=1e-4))
    h.checkpoint(31, 3, 30, [20])
    return h


def world(*ledgers: History, **more: Any) -> World:
    return joined.join([h.records for h in ledgers], **more)


def compare(w: World, a: Mapping[str, str], b: Mapping[str, str]) -> pairs.Comparison:
    return pairs.compare(w, joined.branch(w, **a), joined.branch(w, **b))


def segment(n: int) -> dict[str, str]:
    return {"segment": uid(n)}


def checkpoint(n: int) -> dict[str, str]:
    return {"checkpoint": uid(n)}


def ancestor(found: pairs.Comparison) -> tuple[str | None, int, str]:
    assert found.ancestor is not None
    a = found.ancestor
    return a.checkpoint, a.step, a.by


def claims(found: pairs.Comparison) -> dict[str, str]:
    return statuses(found.verdict)


def steps(found: pairs.Comparison) -> set[tuple[str, int, str]]:
    """(side, step, concept) of every change that decides."""
    return {(link.side, link.link.step, link.link.concept) for link in found.decisive}


def test_a_change_before_the_fork_is_shared_and_decides_nothing() -> None:
    """Both branches of one ledger carry the clipping of step 5; neither changed anything since step 20."""
    h = past()
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.segment(3, parent=20, at=20)
    h.drift(3, unchanged(21))
    found = compare(world(h), segment(2), segment(3))
    assert ancestor(found) == (uid(20), 20, "uid")
    assert set(claims(found).values()) == {"holds"}
    assert steps(found) == set()


def test_only_what_one_branch_changed_since_the_fork_decides() -> None:
    """The learning rate of segment 3, from either side of the comparison."""
    w = world(forked())
    for a, b, where in ((segment(2), segment(3), "b"), (segment(3), segment(2), "a")):
        found = compare(w, a, b)
        assert claims(found)["loss_curve"] == "broken"
        assert steps(found) == {(where, 21, "learning_rate")}
        assert found.verdict.since_step == 21


def test_a_fork_in_another_ledger_shares_its_past_with_its_parent() -> None:
    """The parent checkpoint is found by its uid in the other ledger, so what lies before it is not held against it."""
    fork = History("f", 200_000)
    fork.segment(6, parent=20, at=20, start="fork")
    fork.drift(6, unchanged(21))
    found = compare(world(past(), fork), segment(6), segment(1))
    assert ancestor(found) == (uid(20), 20, "uid")
    assert set(claims(found).values()) == {"holds"}
    assert (found.verdict.reference, found.verdict.subject) == ("run:f", "run:r")


def test_without_the_parents_ledger_a_forks_past_is_not_shown() -> None:
    """The same fork beside a stranger: nothing says what led to its first state."""
    fork = History("f", 200_000)
    fork.segment(6, parent=20, at=20, start="fork")
    fork.drift(6, unchanged(21))
    other = History("o", 300_000)
    other.segment(7)
    found = compare(world(fork, other), segment(6), segment(7))
    assert found.ancestor is None
    assert set(claims(found).values()) == {"not_shown"}
    assert any(m.concept == "parent" and m.side == "a" for m in found.missing["loss_curve"])


def test_what_the_shared_past_does_not_show_is_not_missed() -> None:
    """Both rest on a checkpoint whose own origin nobody named; since then all is shown."""
    h = History()
    h.segment(1, start="unknown", at=500)
    h.checkpoint(20, 1, 510)
    h.segment(2, parent=20, at=510)
    h.drift(2, unchanged(511))
    h.segment(3, parent=20, at=510)
    h.drift(3, unchanged(511))
    assert set(claims(compare(world(h), segment(2), segment(3))).values()) == {"holds"}


def test_runs_without_a_common_ancestor_are_compared_from_their_starts() -> None:
    """Equal starts hold; a start under another learning rate breaks, and both sides' later changes count."""
    a, b, c = History("a", 100_000), History("b", 200_000), History("c", 300_000)
    for h, n in ((a, 1), (b, 2), (c, 3)):
        h.segment(n)
    c.records = [r for r in c.records if r.kind != "effective"]
    c.add(effective(learning_rate=1e-4), 3, step=1)
    assert set(claims(compare(world(a, b), segment(1), segment(2))).values()) == {"holds"}
    other = compare(world(a, c), segment(1), segment(3))
    assert other.ancestor is None
    assert steps(other) == {("between", 1, "learning_rate")}
    b.drift(2, changed(4, moment="in_run", grad_clip=0.1))
    assert steps(compare(world(a, b), segment(1), segment(2))) == {("b", 4, "grad_clip")}


def test_an_ancestor_that_only_a_sidecar_names_is_found() -> None:
    """The ledger between them is gone; the sidecar of the later run names the checkpoint of the earlier one.

    What happened in the lost ledger is not shown, and what lies before the ancestor still decides nothing.
    """
    late = History("late", 300_000)
    late.segment(8, parent=25, at=25, start="fork")
    late.drift(8, unchanged(26, parent=25))
    late.checkpoint(80, 8, 30, [25])
    w = world(past(), late, ancestors={uid(25): [uid(20), uid(10)]})
    found = compare(w, checkpoint(80), segment(1))
    assert ancestor(found) == (uid(20), 20, "sidecar")
    assert set(claims(found).values()) == {"not_shown"}
    assert {m.concept for m in found.missing["loss_curve"]} == {"ledger"}
    assert steps(found) == set()


def test_a_checkpoint_whose_ledger_is_gone_is_known_by_its_sidecar() -> None:
    """Its parent stands in a ledger that is there: the ancestor is found, and its own stretch is not shown."""
    lost = History("lost", 300_000)
    lost.segment(9, parent=20, at=20)
    lost.checkpoint(90, 9, 30, [20])
    sidecar = schemas.Sidecar(
        run="lost",
        segment=lost.records[0].payload,
        checkpoint=lost.records[-1].payload,
        ancestors=[uid(20), uid(10)],
        config=config(learning_rate=1e-3),
        effective=effective("save"),
        code=CODE,
        environment=environment(torch="2.13"),
    )
    w = world(past(), sidecars=[(sidecar, "lost/step-30/lineage.json")])
    found = compare(w, checkpoint(90), segment(1))
    assert ancestor(found) == (uid(20), 20, "uid")
    assert claims(found)["loss_curve"] == "not_shown"
    assert found.a.side.value("grad_clip") is not None


def test_two_branches_that_made_the_same_change_at_the_same_step_stay_comparable() -> None:
    """The change is named as alike, and decides nothing; nor is either branch confounded by it."""
    h = past()
    for n in (2, 3):
        h.segment(n, parent=20, at=20)
        h.drift(n, changed(21, learning_rate=1e-4, grad_clip=0.1))
    found = compare(world(h), segment(2), segment(3))
    assert set(claims(found).values()) == {"holds"}
    assert {(x.a.concept, x.a.step) for x in found.alike} == {("learning_rate", 21), ("grad_clip", 21)}
    assert not found.verdict.confounded


def test_the_same_change_at_another_step_or_to_another_value_is_a_difference() -> None:
    """Between the two steps the branches ran under different conditions."""
    for other in (changed(24, moment="in_run", learning_rate=1e-4), changed(21, learning_rate=2e-4)):
        h = past()
        h.segment(2, parent=20, at=20)
        h.drift(2, changed(21, learning_rate=1e-4))
        h.segment(3, parent=20, at=20)
        if other.moment == "in_run":
            h.drift(3, unchanged(21))
        h.drift(3, other)
        found = compare(world(h), segment(2), segment(3))
        assert claims(found)["loss_curve"] == "broken"
        assert {s for s, _, _ in steps(found)} == {"a", "b"}


def test_what_is_left_of_two_changes_when_one_is_alike_is_not_confounded() -> None:
    """Both dropped the clip; only one lowered the rate: the rate alone parts them."""
    h = past()
    h.segment(2, parent=20, at=20)
    h.drift(2, changed(21, grad_clip=0.1))
    h.segment(3, parent=20, at=20)
    h.drift(3, changed(21, grad_clip=0.1, learning_rate=1e-4))
    found = compare(world(h), segment(2), segment(3))
    assert steps(found) == {("b", 21, "learning_rate")}
    assert not found.verdict.confounded


def dropped(h: History, n: int, live: str, status: str = "differs") -> None:
    """A segment whose optimizer state was restored to something else, with the digest of what it became."""
    h.segment(n, parent=20, at=20)
    back = schemas.Restore(
        checkpoint=uid(20),
        components=[
            c
            if c.component != "optimizer_state"
            else c.model_copy(
                update={"status": status, "saved": "x:00", "live": live, "text": "not as saved"}
            )
            for c in restore(uid(20)).components
        ],
    )
    h.add(back, n, step=20)
    h.drift(n, d.drift(side(), side(), from_step=21, restore=back, parent=uid(20)))


def test_a_state_restored_to_something_else_is_alike_only_where_the_digests_are() -> None:
    """The same words on both sides do not show the same state."""
    for live, expected in (("x:01", "holds"), ("x:02", "broken")):
        h = past()
        dropped(h, 2, "x:01")
        dropped(h, 3, live)
        assert claims(compare(world(h), segment(2), segment(3)))["loss_curve"] == expected


def test_what_another_rank_did_not_restore_is_alike_only_where_its_digests_are() -> None:
    """Rank 1's random numbers, restored to the same other state on both sides, or not."""
    for became, expected in (("x:01", "holds"), ("x:02", "broken"), (None, "broken")):
        h = past()
        for n, live_ in ((2, "x:01"), (3, became)):
            h.segment(n, parent=20, at=20)
            h.drift(n, unchanged(21))
            back = [
                c.model_copy(update={"live": live_}) if c.component == "rng" else c
                for c in restore(uid(20), rng="differs").components
            ]
            h.add(restore(uid(20)), n, step=20, rank=0)
            h.add(schemas.Restore(checkpoint=uid(20), components=back), n, step=20, rank=1)
        assert claims(compare(world(h), segment(2), segment(3)))["bitwise"] == expected


def test_uncommitted_code_is_alike_only_where_its_diff_is() -> None:
    """Two dirty trees of one revision bear one name, and may differ."""
    for digest, expected in (("sha256:01", "holds"), ("sha256:02", "broken")):
        h = past()
        for n, diff in ((2, "sha256:01"), (3, digest)):
            code = schemas.CodeState(repository=True, revision="a" * 40, dirty=True, diff=diff, diff_bytes=9)
            h.segment(n, parent=20, at=20)
            h.add(code, n, step=20)
            h.drift(n, d.drift(side(), side(code=code), from_step=21, restore=restore(uid(20))))
        assert claims(compare(world(h), segment(2), segment(3)))["loss_curve"] == expected


def test_an_abandoned_tail_is_compared_by_what_it_did_after_the_fork() -> None:
    """The NaN at step 25 of the tail counts; one at step 15, before the fork, is everybody's."""
    h = past()
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))

    def nan(step: int) -> dict[str, schemas.FirstBad]:
        cell = schemas.Cell(
            segment=uid(1),
            rank=0,
            step=step,
            signal="loss",
            abnormal="non_finite",
            value=float("nan"),
            text="NaN",
        )
        return {uid(1): schemas.FirstBad(cell=cell)}

    after = compare(world(h, bad=nan(25)), segment(1), segment(2))
    assert claims(after)["loss_curve"] == "broken"
    assert steps(after) == {("a", 25, "weights")}
    assert set(claims(compare(world(h, bad=nan(15)), segment(1), segment(2))).values()) == {"holds"}


def test_a_state_of_several_parents_differs_from_one_of_them_by_the_others() -> None:
    """A merge of the faithful and the changed branch carries the change; beside the changed branch it adds nothing."""
    h = forked()
    h.segment(5, parent=21, at=30)
    h.drift(5, unchanged(31, parent=21))
    h.checkpoint(50, 5, 30, [21, 31], transformation="merge")
    w = world(h)
    against_faithful = compare(w, checkpoint(50), checkpoint(21))
    assert ancestor(against_faithful) == (uid(21), 30, "uid")
    assert steps(against_faithful) == {("a", 21, "learning_rate")}
    against_changed = compare(w, checkpoint(50), checkpoint(31))
    assert ancestor(against_changed) == (uid(31), 30, "uid")
    assert steps(against_changed) == set()


def test_a_checkpoint_and_its_own_descendant_differ_by_what_came_between() -> None:
    """The earlier one is the common ancestor itself."""
    w = world(forked())
    assert set(claims(compare(w, checkpoint(20), checkpoint(21))).values()) == {"holds"}
    found = compare(w, checkpoint(10), checkpoint(31))
    assert ancestor(found) == (uid(10), 10, "uid")
    assert steps(found) == {("b", 21, "learning_rate")}
    alone = compare(w, checkpoint(31), checkpoint(31))
    assert set(claims(alone).values()) == {"holds"}
    assert "the same state" in alone.verdict.claims[0].reason


DIGESTS = ("weights", "optimizer_state", "optimizer_step", "lr_scheduler", "rng", "loader_position")


def live(n: int) -> list[schemas.ComponentDigest]:
    """The digests of a whole state, by number."""
    return [schemas.ComponentDigest(component=c, digest=f"x:{n:02d}") for c in DIGESTS]


def twins(step_b: int = 20, a: int = 7, b: int = 7) -> tuple[History, History]:
    """Two ledgers that know nothing of each other, each with a checkpoint of the whole state."""
    one, two = History("one", 100_000), History("two", 200_000)
    one.segment(1, steps=30)
    one.drift(1, changed(5, moment="in_run", grad_clip=0.5))
    one.checkpoint(20, 1, 20, live=live(a))
    two.segment(2, steps=30)
    two.drift(2, changed(5, moment="in_run", grad_clip=0.5))
    two.checkpoint(60, 2, step_b, live=live(b))
    return one, two


def test_equal_content_at_one_step_is_a_common_ancestor() -> None:
    """Digest by digest the same state: what lies before it decides nothing, the conditions at it do."""
    found = compare(world(*twins()), segment(1), segment(2))
    assert ancestor(found) == (uid(20), 20, "content")
    assert set(claims(found).values()) == {"holds"}
    one, two = twins()
    two.drift(2, changed(15, moment="in_run", grad_clip=0.1))
    found = compare(world(one, two), segment(1), segment(2))
    assert ancestor(found) == (uid(20), 20, "content")
    assert steps(found) == {("between", 21, "grad_clip")}


def test_equal_content_at_different_steps_is_no_ancestor() -> None:
    """It is a finding, never a merge; nor is a state of which a part differs or is not digested."""
    assert compare(world(*twins(step_b=22)), segment(1), segment(2)).ancestor is None
    assert compare(world(*twins(b=8)), segment(1), segment(2)).ancestor is None
    one, two = twins()
    two.records[-1].payload.live.pop()
    assert compare(world(one, two), segment(1), segment(2)).ancestor is None


def test_states_of_one_step_with_other_weights_reproduce_nothing_whatever_the_conditions_say() -> None:
    """Digests decide over conditions: bitwise reproduction is broken, the loss curve is not."""
    h = past()
    for n in (2, 3):
        h.segment(n, parent=20, at=20)
        h.drift(n, unchanged(21))
        h.checkpoint(100 + n, n, 30, [20], live=live(n))
    found = compare(world(h), segment(2), segment(3))
    assert (claims(found)["bitwise"], claims(found)["loss_curve"]) == ("broken", "holds")
    assert steps(found) == {("between", 30, "weights")}
    assert found.decisive[0].link.code == "LIN-D009"


def test_throughput_is_judged_from_the_starts_where_the_past_is_only_equal_by_content() -> None:
    """Two processes on other devices reached one state: that says nothing of their speed."""
    one, two = twins()
    two.records = [r for r in two.records if r.kind != "environment"]
    gpu = environment(torch="2.13").model_copy(update={"devices": [schemas.Device(name="H100")]})
    two.add(gpu, 2, step=0)
    assert claims(compare(world(one, two), segment(1), segment(2)))["throughput"] != "holds"


def test_evaluations_compare_where_both_sides_have_one_way_in_common() -> None:
    """Version 1.0 of one side against 1.1 of the other breaks; once 1.1 was run on both, it holds."""
    h = forked()

    def evaluated(n: int, where: int, version: str) -> None:
        found = schemas.Evaluation(
            checkpoint=uid(n), evaluator="mmlu", evaluator_version=version, results={"acc": 0.5}
        )
        h.add(found, where, step=30)

    evaluated(21, 2, "1.0")
    evaluated(31, 3, "1.1")
    assert claims(compare(world(h), checkpoint(21), checkpoint(31)))["evaluation"] == "broken"
    evaluated(21, 2, "1.1")
    assert claims(compare(world(h), checkpoint(21), checkpoint(31)))["evaluation"] == "holds"


def test_damage_of_either_ledger_is_never_holds() -> None:
    """The record that would have broken a claim may be the damaged one."""
    w = world(forked(), damage=["a.jsonl line 7: line is not JSON"])
    assert set(claims(compare(w, segment(2), checkpoint(20))).values()) == {"not_shown"}


def test_a_branch_that_is_compared_with_its_fork_point_by_a_segment_without_a_step_is_not_shown() -> None:
    """It died before its first step was compared."""
    h = past()
    h.segment(2, parent=20, at=20, steps=0)
    assert claims(compare(world(h), segment(2), checkpoint(20)))["loss_curve"] == "not_shown"


def test_a_difference_that_no_claim_rests_on_decides_nothing() -> None:
    """A caveat decides a claim that has one, and stands beside a claim that is broken or not shown."""

    def link(concept: str, effect: schemas.Status) -> schemas.ChainLink:
        return schemas.ChainLink(code="LIN-D003", concept=concept, step=21, effect=effect, text=concept)

    def claim(name: str, status: schemas.Status, *chain: schemas.ChainLink) -> schemas.ClaimVerdict:
        return schemas.ClaimVerdict(claim=name, status=status, reason="because", chain=list(chain))

    workers, unknown = link("loader_workers", "caveat"), link("unclassified", "caveat")
    rate = link("learning_rate", "broken")
    found = [pairs.Decisive("between", k) for k in (workers, unknown, rate)]

    def told(*claims: schemas.ClaimVerdict) -> list[list[str]]:
        return [[d.link.concept for d in part] for part in pairs.deciding(found, claims)]

    missing = claim("bitwise", "not_shown", workers, unknown)
    assert told(missing) == [[], ["loader_workers", "unclassified", "learning_rate"]]
    assert told(claim("bitwise", "caveat", workers)) == [
        ["loader_workers"],
        ["unclassified", "learning_rate"],
    ]
    broken = claim("loss_curve", "broken", rate, unknown)
    assert told(missing, broken) == [["learning_rate"], ["loader_workers", "unclassified"]]
