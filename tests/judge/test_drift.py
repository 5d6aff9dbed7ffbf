"""Drift: what differs, requested beside effective."""

from __future__ import annotations

import pytest

import schemas
from lineage.judge import drift as d
from lineage.judge import validity

from .builders import LIVE, config, effective, environment, restore, side, uid


def find(found: schemas.Drift, concept: str) -> schemas.Change:
    """The one change of a concept."""
    changes = [c for c in found.changes if c.concept == concept]
    assert len(changes) == 1, [c.concept for c in found.changes]
    return changes[0]


def test_equal_sides_have_no_drift() -> None:
    """Nothing differs, nothing is not shown."""
    found = d.drift(side(), side(), from_step=11, restore=restore(uid(1)))
    assert (found.changes, found.unclassified, found.not_shown, found.confounded) == ([], [], {}, False)


def test_requested_and_effective_stand_beside_each_other() -> None:
    """A changed value that is in effect is one change with all four values."""
    found = d.drift(
        side(config(lr=1e-3)),
        side(config(lr=3e-4), effective(learning_rate=3e-4)),
        from_step=11,
        restore=restore(uid(1)),
    )
    change = find(found, "learning_rate")
    assert change.requested_before == schemas.Scalar.of(1e-3)
    assert change.requested_after == schemas.Scalar.of(3e-4)
    assert change.effective_before == schemas.Scalar.of(1e-3)
    assert change.effective_after == schemas.Scalar.of(3e-4)
    assert found.undeclared == ["learning_rate"]


def test_a_request_that_the_optimizer_does_not_follow_is_told_as_not_in_effect() -> None:
    """load_state_dict takes the old learning rate from the checkpoint: requested is not effective."""
    found = d.drift(side(config(lr=1e-3)), side(config(lr=1e-4)), from_step=11, restore=restore(uid(1)))
    change = find(found, "learning_rate")
    assert d.requested_only(change)
    assert not d.alters(change)
    assert "not in effect" in change.text
    assert found.undeclared == []


def test_a_live_change_that_nobody_asked_for_is_found() -> None:
    """Undeclared drift counts too."""
    found = d.drift(side(), side(live=effective(weight_decay=0.0)), from_step=11, restore=restore(uid(1)))
    assert find(found, "weight_decay").requested_before is None
    assert "no config key asks for" in find(found, "weight_decay").text


@pytest.mark.parametrize(
    ("before", "after"), [(1e-4, "0.0001"), (1, 1.0), (True, "true"), (None, "none"), ([1, 2], [1.0, 2])]
)
def test_values_that_mean_the_same_are_no_change(before: object, after: object) -> None:
    """Trackers turn numbers into text and floats into integers."""
    assert d.drift(side(config(lr=before)), side(config(lr=after)), from_step=1).changes == []


def test_nan_and_the_string_nan_differ_from_numbers_only() -> None:
    """NaN equals NaN; a masked value is never shown to be equal."""
    nan = config(eps=float("nan"))
    assert d.drift(side(nan), side(nan), from_step=1).changes == []
    hidden = config(eps=schemas.MASKED)
    assert [c.concept for c in d.drift(side(hidden), side(hidden), from_step=1).changes] == ["eps"]


def test_unknown_keys_are_listed_apart_and_never_dropped() -> None:
    """An unclassified key is no regime change, and is not silent either."""
    found = d.drift(side(config(frobnicate=1)), side(config(frobnicate=2)), from_step=1)
    assert found.changes == []
    assert [c.keys for c in found.unclassified] == [["frobnicate"]]


@pytest.mark.parametrize(
    "key", ["save_steps", "logging_steps", "run_name", "output_dir", "resume_from_checkpoint"]
)
def test_keys_without_a_part_in_the_update_stay_silent(key: str) -> None:
    """Save interval, logging, names and paths change at every restart."""
    found = d.drift(side(config(**{key: 1})), side(config(**{key: 2})), from_step=1)
    assert (found.changes, found.unclassified) == ([], [])


def test_a_continuing_warm_up_is_silent_and_a_changed_horizon_is_found() -> None:
    """A schedule is compared by its future, not by its current value."""
    old = {10: [0.1], 11: [0.2], 20: [1.0]}
    same = d.drift(side(ahead=old), side(ahead=dict(old)), from_step=11)
    assert same.changes == []
    other = d.drift(
        side(ahead=old),
        side(ahead={10: [0.1], 11: [0.2], 20: [0.5]}, live=effective(lr_schedule="LambdaLR(b)")),
        from_step=11,
    )
    assert "1 at step 20" in find(other, "lr_schedule").text
    assert "0.5 at step 20" in find(other, "lr_schedule").text


def test_a_scaled_peak_is_another_learning_rate_and_the_same_schedule() -> None:
    """Halving the peak halves all coming rates: one change, not two."""
    found = d.drift(
        side(ahead={10: [1.0], 20: [0.5]}),
        side(ahead={10: [0.5], 20: [0.25]}, live=effective(learning_rate=5e-4)),
        from_step=11,
    )
    assert [c.concept for c in found.changes] == ["learning_rate"]


def test_clipping_that_is_no_longer_seen_is_a_change() -> None:
    """The call was watched on both sides, and on one it never came."""
    found = d.drift(side(), side(live=effective(grad_clip=None)), from_step=11)
    assert find(found, "grad_clip").effective_after == schemas.Scalar.of("no clipping seen")


def test_clipping_before_the_first_step_is_not_judged() -> None:
    """After the load, before any step, nothing can have clipped yet."""
    found = d.drift(side(), side(live=effective("after_load", grad_clip=None)), from_step=11)
    assert [c.concept for c in found.changes] == []
    assert "grad_clip" in found.not_shown


def test_two_changes_at_one_restart_are_confounded_and_one_is_not() -> None:
    """Two or more changes of class R or C: no causal claim."""
    one = d.drift(side(), side(live=effective(grad_clip=0.3)), from_step=1)
    two = d.drift(side(), side(live=effective(grad_clip=0.3, learning_rate=1.0)), from_step=1)
    assert (one.confounded, two.confounded) == (False, True)


def test_micro_batch_at_equal_global_batch_opens_no_regime() -> None:
    """48 samples in 2 or 4 parts are the same 48 samples, up to the order of sums."""
    found = d.drift(
        side(live=effective(micro_batch=24, grad_accum=2)),
        side(live=effective(micro_batch=12, grad_accum=4)),
        from_step=1,
    )
    assert {c.cls for c in found.changes} == {"B"}
    assert not found.confounded


def test_a_changed_variable_is_named_without_its_values() -> None:
    """The text of a drift goes to trackers; values of environment variables do not."""
    before, after = (
        environment().model_copy(update={"variables": v})
        for v in ({"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4"}, {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"})
    )
    change = find(d.drift(side(env=before), side(env=after), from_step=11), "software")
    assert change.text == (
        "software differs: variable NCCL_ALGO changed, variable NCCL_DEBUG set, variable OMP_NUM_THREADS unset"
    )


def test_software_hardware_and_code_are_found() -> None:
    """Packages, devices and revisions are compared too."""
    gpu = environment(torch="2.13").model_copy(update={"devices": [schemas.Device(name="H200")]})
    other = schemas.CodeState(repository=True, revision="b" * 40)
    found = d.drift(side(), side(env=environment(torch="2.14")), from_step=1)
    assert "torch 2.13 -> 2.14" in find(found, "software").text
    assert "H200" in find(d.drift(side(), side(env=gpu), from_step=1), "hardware").text
    assert "revision" in find(d.drift(side(), side(code=other), from_step=1), "code").text


def test_what_one_side_lacks_is_not_shown_with_the_reason() -> None:
    """Missing evidence is named, with what would show it."""
    found = d.drift(side(code=None), side(live=effective(data_mix=None)), from_step=1)
    assert found.not_shown["data_mix"] == "data_mix was not given"
    assert "code" in found.not_shown
    assert "weights" in found.not_shown, "no restore record: the state was not compared"


def test_components_that_were_not_restored_are_changes() -> None:
    """Optimizer state and its step counter are one fact."""
    found = d.drift(
        side(),
        side(),
        from_step=1,
        restore=restore(uid(1), optimizer_state="absent", optimizer_step="differs", rng="differs"),
    )
    assert [c.concept for c in found.changes] == ["optimizer_state", "rng"]


def test_a_declared_mitigation_answers_to_its_change_and_needs_evidence() -> None:
    """In effect only where a live value bears it out."""
    lower = schemas.Mitigation(
        uid=uid(7), concept="learning_rate", after=schemas.Scalar.of(5e-4), why="spike"
    )
    clip = schemas.Mitigation(uid=uid(8), concept="grad_clip", after=schemas.Scalar.of(0.1), why="spike")
    declared = [d.Declared(uid(70), lower), d.Declared(uid(80), clip)]
    after = side(live=effective(learning_rate=5e-4))
    found = d.drift(side(), after, from_step=1, declared=declared)
    assert find(found, "learning_rate").mitigation == uid(7)
    assert found.undeclared == []
    assert found.unproven == [uid(8)]
    assert d.effect(lower, found.changes, after)[0] == "yes"
    assert d.effect(clip, found.changes, after)[0] == "no"
    unseen = schemas.Mitigation(
        uid=uid(9), concept="data_filter", after=schemas.Scalar.of("new"), why="bad shard"
    )
    assert d.effect(unseen, found.changes, after)[0] == "not_shown"


def test_every_required_concept_is_in_the_catalogue() -> None:
    """A name that the catalogue does not know would never be judged."""
    assert set(d.REQUIRED) <= set(schemas.catalogue().concepts)
    assert set(d.REQUIRED) == set(LIVE)


def test_code_that_git_did_not_tell_in_time_is_not_shown_and_never_a_change() -> None:
    """A slow file system must not look like other code."""
    slow = schemas.CodeState(
        repository=True, note="git diff took longer than 20 s", unread=["revision", "diff"]
    )
    found = d.drift(side(), side(code=slow), from_step=1)
    assert [c.concept for c in found.changes] == []
    assert "took longer" in found.not_shown["code"]


def ran(revision: str, *, whole: bool = True, **files: str) -> schemas.CodeState:
    """Code of a repository with the files that were loaded from it."""
    loaded = {f"{k}.py": f"sha1:{v}" for k, v in files.items()}
    return schemas.CodeState(repository=True, revision=revision * 40, loaded=loaded, loaded_whole=whole)


def test_a_commit_that_touches_no_loaded_file_breaks_nothing() -> None:
    """A new README between two starts is other code by name only."""
    found = d.drift(side(code=ran("a", train="01")), side(code=ran("b", train="01")), from_step=1)
    change = find(found, "code")
    assert change.cls == "O"
    assert change.text == "code differs: revision aaaaaaaaaa -> bbbbbbbbbb; no loaded file differs"
    assert not d.alters(change)
    assert found.undeclared == []
    links = [k for t in validity.tallies_of(found, uid(1)).values() for k in t.links]
    assert links == []


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (ran("b", train="01", helper="03"), "; loaded files differ: helper.py"),
        (ran("b", train="01"), "; loaded on one side only: helper.py"),
        (ran("b", whole=False, train="01", helper="02"), ""),
        (ran("b", whole=False), ""),
    ],
)
def test_a_commit_is_a_new_regime_where_a_loaded_file_differs_or_may(
    after: schemas.CodeState, told: str
) -> None:
    """Another file, one more file, and a list that is not whole or not there."""
    before = ran("a", train="01", helper="02")
    change = find(d.drift(side(code=before), side(code=after), from_step=1), "code")
    assert change.cls == "R"
    assert d.alters(change)
    assert change.text == f"code differs: revision aaaaaaaaaa -> bbbbbbbbbb{told}"


def test_an_edited_file_without_revision_is_a_new_regime_as_with_one() -> None:
    """No repository, an uncommitted diff on a diff, an untracked file: other code ran, and it is in effect."""
    one, two = "sha256:01", "sha256:02"
    pairs = [
        [schemas.CodeState(repository=False, modules={"helper.py": x}) for x in (one, two)],
        [schemas.CodeState(repository=True, revision="a" * 40, dirty=True, diff=x) for x in (one, two)],
        [ran("a", helper="01"), ran("a", helper="02")],
    ]
    for before, after in pairs:
        found = d.drift(side(code=before), side(code=after), from_step=1)
        change = find(found, "code")
        assert (change.cls, d.alters(change)) == ("R", True)
        assert found.undeclared == ["code"]
        assert validity.tallies_of(found, uid(1))["loss_curve"].status == "broken"
