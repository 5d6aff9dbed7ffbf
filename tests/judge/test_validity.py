"""Verdicts along the lineage graph."""

from __future__ import annotations

import schemas
from lineage.judge import drift as d
from lineage.judge.graph import build
from lineage.judge.validity import verdict

from .builders import CODE, History, effective, restore, side, statuses, uid


def clip_changed(from_step: int) -> schemas.Drift:
    """One change, everything else shown to be equal."""
    return d.drift(side(), side(live=effective(grad_clip=0.3)), from_step=from_step, restore=restore(uid(10)))


def unchanged(from_step: int) -> schemas.Drift:
    """Nothing differs, and all of it is shown."""
    return d.drift(side(), side(), from_step=from_step, restore=restore(uid(10)))


def forked() -> History:
    """Segment 1 to step 30 with checkpoints at 10 and 20; segment 2 from 20 as it was; 3 from 20 with another clip."""
    h = History()
    h.segment(1, steps=30)
    h.checkpoint(10, 1, 10)
    h.checkpoint(20, 1, 20, [10])
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.checkpoint(21, 2, 30, [20])
    h.segment(3, parent=20, at=20)
    h.drift(3, clip_changed(21))
    h.checkpoint(31, 3, 30, [20])
    return h


def test_an_unbroken_run_holds() -> None:
    """Positive evidence for each concept, no boundary."""
    h = History()
    h.segment(1)
    assert set(statuses(verdict(h.records)).values()) == {"holds"}


def test_a_checkpoint_before_the_change_is_untouched_by_it() -> None:
    """The change at step 21 does not reach back."""
    assert verdict(forked().records, checkpoint=uid(20)).status == "holds"


def test_a_change_breaks_the_claims_that_rest_on_it_and_names_the_chain() -> None:
    """Loss curve and ablation break, evaluation of the checkpoint itself holds."""
    found = verdict(forked().records, checkpoint=uid(31))
    got = statuses(found)
    assert (got["loss_curve"], got["ablation"], got["bitwise"]) == ("broken", "broken", "broken")
    assert (got["evaluation"], got["data_exposure"]) == ("holds", "holds")
    link = next(c for c in found.claims if c.claim == "loss_curve").chain[0]
    assert (link.concept, link.step, link.declared, link.segment) == ("grad_clip", 21, False, uid(3))
    assert found.since_step == 21
    assert found.path == [uid(1), uid(3)]


def test_a_fork_that_did_not_take_the_change_is_untouched() -> None:
    """Branches are judged by their own path."""
    assert set(statuses(verdict(forked().records, checkpoint=uid(21))).values()) == {"holds"}


def test_a_change_travels_to_all_descendants() -> None:
    """A faithful resume of a changed branch is still changed."""
    h = forked()
    h.segment(4, parent=31, at=30)
    h.drift(4, unchanged(31))
    assert statuses(verdict(h.records, segment=uid(4)))["loss_curve"] == "broken"


def test_a_state_of_several_parents_inherits_from_all_of_them() -> None:
    """A checkpoint grafted from two branches carries the changes of both."""
    h = forked()
    h.segment(5, parent=21, at=30)
    h.drift(5, unchanged(31))
    h.checkpoint(50, 5, 40, [21, 31])
    assert statuses(verdict(h.records, checkpoint=uid(50)))["loss_curve"] == "broken"


def test_missing_evidence_is_not_shown_and_never_fine() -> None:
    """Monotonic: taking evidence away never turns a verdict into holds."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    h.segment(2, parent=10, at=10)
    h.drift(
        2,
        d.drift(side(code=None), side(code=CODE), from_step=11, restore=restore(uid(10), rng="not_recorded")),
    )
    found = verdict(h.records)
    got = statuses(found)
    assert got["loss_curve"] == "not_shown"
    assert got["bitwise"] == "not_shown"
    assert got["data_exposure"] == "holds"
    assert next(c for c in found.claims if c.claim == "bitwise").show


def test_a_resume_without_a_named_checkpoint_is_not_shown() -> None:
    """Training went on from something, and nobody said from what."""
    h = History()
    h.segment(1, start="unknown", at=500)
    found = verdict(h.records)
    assert set(statuses(found).values()) == {"not_shown"}
    assert any(c.show and "resumed_from" in c.show for c in found.claims)


def test_a_segment_that_died_before_its_first_step_was_compared_is_not_shown() -> None:
    """No drift record on a boundary: nothing was compared there."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    h.segment(2, parent=10, at=10, steps=0)
    assert statuses(verdict(h.records))["loss_curve"] == "not_shown"


def test_several_changes_leave_no_causal_claim() -> None:
    """Confounded is said on the verdict and in the ablation's reason."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    h.segment(2, parent=10, at=10)
    h.drift(
        2,
        d.drift(
            side(),
            side(live=effective(grad_clip=0.1, learning_rate=1.0)),
            from_step=11,
            restore=restore(uid(10)),
        ),
    )
    found = verdict(h.records)
    assert found.confounded
    assert "no effect can be traced" in next(c for c in found.claims if c.claim == "ablation").reason


def test_what_another_rank_did_not_restore_counts() -> None:
    """Rank 1's random numbers are part of bitwise reproduction."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    h.segment(2, parent=10, at=10)
    h.drift(2, unchanged(11))
    h.add(restore(uid(10)), 2, step=10, rank=0)
    h.add(restore(uid(10), rng="differs"), 2, step=10, rank=1)
    found = verdict(h.records)
    assert statuses(found)["bitwise"] == "broken"
    assert "rank 1" in next(c for c in found.claims if c.claim == "bitwise").reason


def test_a_non_finite_value_breaks_what_comes_after_it_and_not_before() -> None:
    """A checkpoint after the first bad step is suspect, the last good one is not."""
    h = History()
    h.segment(1, steps=20)
    h.checkpoint(10, 1, 10)
    h.checkpoint(20, 1, 20)
    cell = schemas.Cell(
        segment=uid(1),
        rank=1,
        step=15,
        signal="loss",
        abnormal="non_finite",
        value=float("nan"),
        text="loss is NaN",
    )
    bad = {uid(1): schemas.FirstBad(cell=cell)}
    assert verdict(h.records, checkpoint=uid(10), bad=bad).status == "holds"
    assert statuses(verdict(h.records, checkpoint=uid(20), bad=bad))["evaluation"] == "broken"


def test_abandoned_tails_are_known() -> None:
    """Segment 1 went on to 30 and was left after 20."""
    assert build(forked().records).abandoned() == {uid(1): 20}


def test_the_policy_is_named_by_digest() -> None:
    """A verdict says by which policy it was made."""
    h = History()
    h.segment(1)
    assert verdict(h.records).policy == schemas.catalogue().digest


def test_damage_of_the_ledger_is_never_holds() -> None:
    """The record that would have broken a claim may be the damaged one."""
    h = History()
    h.segment(1)
    found = verdict(h.records, damage=["a.jsonl line 7: line is not JSON"])
    assert set(statuses(found).values()) == {"not_shown"}
    assert "line 7" in found.claims[0].reason


def test_ranks_that_left_no_record_are_not_shown() -> None:
    """One of four ranks recorded: its word is not that of the others."""
    h = History()
    h.segment(1)
    four = h.records[0].payload.model_copy(update={"world_size": 4})
    records = [
        r if r.kind != "segment" else type(r)(**{f: getattr(r, f) for f in r.__slots__} | {"payload": four})
        for r in h.records
    ]
    got = statuses(verdict(records))
    assert (got["bitwise"], got["loss_curve"]) == ("not_shown", "not_shown")


def test_a_segment_that_starts_anew_under_the_same_run_is_not_shown() -> None:
    """It has no parent, and the run's first segment is not its own."""
    h = History()
    h.segment(1)
    h.segment(2)
    assert set(statuses(verdict(h.records, segment=uid(2))).values()) == {"not_shown"}


def test_nothing_on_record_shows_nothing() -> None:
    """An empty ledger holds no claim."""
    assert set(statuses(verdict([])).values()) == {"not_shown"}


def test_evaluations_made_in_two_ways_cannot_be_compared() -> None:
    """Another evaluator version, or other data: the claim is broken, whatever training did."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    assert (
        "no evaluation is on record"
        in next(c for c in verdict(h.records).claims if c.claim == "evaluation").reason
    )
    for version in ("1.0", "1.1"):
        h.add(
            schemas.Evaluation(
                checkpoint=uid(10), evaluator="mmlu", evaluator_version=version, results={"acc": 0.5}
            ),
            1,
            step=10,
        )
    found = next(c for c in verdict(h.records).claims if c.claim == "evaluation")
    assert found.status == "broken"
    assert "mmlu was run in 2 ways" in found.reason


def test_a_state_of_several_parents_is_as_unknown_as_the_least_known_of_them() -> None:
    """One half of it came from a segment that went on from nobody knows what."""
    h = History()
    h.segment(1)
    h.checkpoint(10, 1, 10)
    h.segment(2, start="unknown", at=500)
    h.checkpoint(20, 2, 510)
    h.segment(3, parent=10, at=10)
    h.drift(3, unchanged(11))
    h.checkpoint(30, 3, 20, [10, 20], transformation="merge")
    assert set(statuses(verdict(h.records, segment=uid(3))).values()) == {"holds"}
    found = verdict(h.records, checkpoint=uid(30))
    assert set(statuses(found).values()) == {"not_shown"}
    assert "was not named" in found.claims[0].reason
