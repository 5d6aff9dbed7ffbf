"""The decision how to go on: what it rests on, what it does to validity, and what it costs."""

from __future__ import annotations

import math

import pytest

import schemas
from lineage.judge import graph, recovery, validity
from lineage.judge.quarantined import quarantine
from lineage.judge.recovery import Asked, Price, Work

from .builders import History, uid

CELL = schemas.Cell(
    segment=uid(1), rank=0, step=7, signal="loss", abnormal="non_finite", value=math.nan, text="NaN"
)


def history() -> History:
    h = History()
    h.segment(1)
    h.checkpoint(49, 1, 3, path="/ck/3")
    h.checkpoint(50, 1, 5, path="/ck/5")
    h.checkpoint(51, 1, 9, path="/ck/9")
    return h


def point(
    h: History, checkpoint: str | None = None, good: str | None = uid(50)
) -> schemas.RestartPoint | None:
    g = graph.build(h.records)
    bad = schemas.FirstBad(cell=CELL, last_good_checkpoint=good)
    return recovery.restart_point(
        g, quarantine(h.records, graph=g, bads={uid(1): bad}), bad, checkpoint, uid(1)
    )


def test_the_restart_point_is_the_last_good_checkpoint_without_a_doubt() -> None:
    found = point(history())
    assert found is not None
    assert (found.step, found.path, found.doubts) == (5, "/ck/5", [])


def test_a_checkpoint_from_after_the_first_bad_step_is_doubted() -> None:
    found = point(history(), uid(51))
    assert found is not None
    assert "it is quarantined: saved at or after step 7" in found.doubts[0]


def test_one_that_is_incomplete_deleted_or_lacks_components_is_doubted() -> None:
    h = history()
    torn = schemas.Checkpoint(uid=uid(52), step=6, status="incomplete", missing=["rng"], path="/ck/6")
    h.add(torn, 1, step=6)
    h.add(schemas.CheckpointMark(checkpoint=uid(52), mark="deleted", why="rotation"), 1)
    found = point(h, uid(52))
    assert found is not None
    assert len(found.doubts) == 3


def test_where_no_last_good_one_is_named_the_newest_sound_one_before_it_is_taken() -> None:
    found = point(history(), good=None)
    assert found is not None
    assert found.step == 5


def test_a_run_that_saved_nothing_sound_has_no_restart_point() -> None:
    h = History()
    h.segment(1)
    assert point(h, good=None) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lr=1e-4 because it was too high", Asked("lr", "1e-4", "it was too high")),
        (
            "grad_clip = 0.3 because the norm spiked; hypothesis: one shard; smallest: 0.5 did not do",
            Asked("grad_clip", "0.3", "the norm spiked", "one shard", "0.5 did not do"),
        ),
        ("data_mix=web:1 because a; b: c", Asked("data_mix", "web:1", "a; b: c")),
    ],
)
def test_a_mitigation_is_read_with_its_reason(text: str, found: Asked) -> None:
    assert recovery.parse(text) == found


@pytest.mark.parametrize(
    "text", ["lr=1e-4", "lr=1e-4 because ", "lr because it was too high", "=3 because x"]
)
def test_a_mitigation_without_a_change_or_a_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="because why"):
        recovery.parse(text)


def change(concept: str, before: object, after: str) -> schemas.Change:
    return recovery.change_of(Asked(concept, after, "x"), schemas.Scalar.of(before))


def test_the_effect_of_a_mitigation_is_that_of_the_validity_policy() -> None:
    """The same that a drift of this change would get after the restart: no second opinion."""
    c = change("learning_rate", 1e-3, "1e-4")
    told = {e.claim: e.status for e in recovery.effects(c, 5, uid(1))}
    drift = schemas.Drift(from_step=6, changes=[c], confounded=False)
    after = {k: t.status for k, t in validity.tallies_of(drift, uid(1)).items() if t.links}
    assert told == {k: s for k, s in after.items() if s != "holds"}
    assert told["loss_curve"] == "broken"
    assert "data_exposure" not in told


def test_what_the_catalogue_does_not_know_is_a_caveat_and_never_nothing() -> None:
    told = {e.claim: e.status for e in recovery.effects(change("my own knob", 1, "2"), 5, uid(1))}
    assert told["loss_curve"] == "caveat"


def test_an_operational_change_leaves_every_claim_as_it_is() -> None:
    assert recovery.effects(change("eval_interval", 100, "50"), 5, uid(1)) == []


def test_claims_afterwards_are_the_worse_of_the_restart_point_and_the_changes() -> None:
    h = history()
    now = validity.verdict(h.records, checkpoint=uid(50))
    held = {c.claim: c.status for c in now.claims}
    after = {
        c.claim: c.status
        for c in recovery.claims_after(now, [change("learning_rate", 1e-3, "1e-4")], 5, uid(1))
    }
    assert after["loss_curve"] == "broken"
    assert {k: v for k, v in after.items() if k == "throughput"} == {"throughput": held["throughput"]}
    assert {c.claim: c.status for c in recovery.claims_after(now, [], 5, uid(1))} == held


def test_two_changes_of_a_kind_that_results_depend_on_are_confounded() -> None:
    lr, clip, save = (
        change("learning_rate", 1e-3, "1e-4"),
        change("grad_clip", 1.0, "0.3"),
        change("eval_interval", 100, "50"),
    )
    assert recovery.confounded([lr, clip])
    assert not recovery.confounded([lr, save])


def test_the_cost_is_told_with_each_formula_and_in_money_and_energy() -> None:
    """512 devices, 2 s a step, 900 steps to make again, 450 of them to the first bad one: by hand."""
    work = Work(devices=512, restart=1000, last=1900, bad=1450, times=[2.0, 1.9, 2.1])
    found = recovery.cost(work, Price(2.5, "USD", 0.7))
    assert found.step_time == 2.0
    assert found.device_hours_again == pytest.approx(900 * 2 * 512 / 3600)
    assert found.device_hours_failing == pytest.approx(450 * 2 * 512 / 3600)
    assert found.waiting_per_hour == 512
    assert found.break_even_hours == pytest.approx(450 * 2 / 3600)
    text = "\n".join(found.formula)
    assert (
        "900 steps x 2 s x 512 devices / 3600 = 256 device-hours x 2.5 = 640.00 USD; x 0.7 kW = 179 kWh"
        in text
    )
    assert "each hour of waiting: 512 devices x 1 h = 512 device-hours x 2.5 = 1,280.00 USD" in text
    assert "waiting 0.25 h costs as much as one resume that breaks at the same step" in text


def test_without_the_time_of_a_step_no_hours_are_made_up() -> None:
    found = recovery.cost(Work(8, 100, 200, 150), Price())
    assert (found.step_time, found.device_hours_again, found.break_even_hours) == (None, None, None)
    assert found.waiting_per_hour == 8
    assert "no hours can be told" in found.formula[0]


def test_what_is_known_to_go_wrong_is_said_before_it_is_done() -> None:
    asked = [Asked("learning_rate", "1e-4", "safer"), Asked("grad_clip", "0.3", "x", "one shard")]
    changes = [change("learning_rate", 1e-3, "1e-4"), change("grad_clip", 1.0, "0.3")]
    told = recovery.habits(asked, changes, {})
    assert [t.partition(" ")[0] for t in told] == ["several", "a", "a", "learning_rate:"]
    after_replays = recovery.habits(asked[:1], changes[:1], {"replays": 2, "one_change": 1})
    assert after_replays == ["learning_rate: no hypothesis is stated, so nothing can speak against it"]
    assert recovery.habits([], [], {}) == []
