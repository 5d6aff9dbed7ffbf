"""Does an entry of a logbook open a new regime? Only its fields decide, and silence decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from lineage.judge import reported

from .reported_builders import FIRST, entry


def judged(*entries: schemas.Reported) -> list[schemas.ReportedJudgement]:
    """Judge entries after an unimportant first one."""
    return reported.judge([FIRST, *entries])[1:]


CASES: list[tuple[str, Any, Any, dict[str, Any], str, str]] = [
    ("learning_rate", 6e-5, "0.00006", {}, "no", "same-value"),
    ("learning_rate", "1e-4", 5e-5, {}, "yes", "value-changed"),
    ("learning_rate", None, "2/3 of the planned", {"restart": 900}, "yes", "value-set"),
    ("learning_rate", None, None, {}, "yes", "named-without-values"),
    ("grad_clip", 1.0, 0.3, {"restart": 900}, "yes", "value-changed"),
    ("gradient_norm_clip", 1.0, 0.3, {}, "yes", "value-changed"),
    ("train_loss_spike", 2.1, 3.4, {}, "no", "observed-only"),
    ("silent_data_corruption", None, "core replaced", {}, "no", "operation-only"),
    ("deepspeed_version", "0.15.1", "0.16.4", {}, "yes", "code-changed"),
    ("update_clip", "declared on", "effective off", {}, "yes", "asked-not-in-effect"),
    ("optimizer_state", "requested: reset", "effective: loaded", {}, "yes", "asked-not-in-effect"),
    ("optimizer_state", "loaded", "reset", {"restart": 5}, "yes", "state-changed"),
    ("resume_state", None, None, {}, "cannot_tell", "no-values"),
    ("rng_state", None, "re-seeded", {}, "yes", "state-changed"),
    ("loss_scale", "65536", "1024", {}, "no", "moves-by-itself"),
    ("loss_scale", "65536", "1024", {"restart": 50}, "yes", "set-at-restart"),
    ("batch_size", "ramp", "2048", {}, "no", "course-of-schedule"),
    ("batch_size", "ramp", "2048", {"restart": 40}, "yes", "value-changed"),
    ("batch_size", 512, "512 (1024 refused)", {}, "no", "same-value"),
    ("code", "no barrier", "barrier before eval", {}, "no", "operation-only"),
    ("code", "gelu in bf16", "gelu in fp32", {}, "yes", "code-changed"),
    ("dependency", "torch 2.1", "torch 2.2", {}, "yes", "code-changed"),
    ("dependency", None, None, {}, "cannot_tell", "no-values"),
    ("parallel_topology", "16 nodes", "32 nodes", {}, "yes", "layout-changed"),
    ("parallel_topology", None, None, {}, "cannot_tell", "no-values"),
    ("hardware_node", "node 17", "node 23", {}, "no", "same-hardware"),
    ("hardware_node", "V100", "A100", {}, "yes", "other-accelerator"),
    ("hardware_node", "4 spare nodes", "22 spare nodes", {}, "no", "same-hardware"),
    ("hardware_node", "64 nodes", "63 nodes", {}, "yes", "layout-changed"),
    ("sbatch.nodes", "48", "24", {}, "yes", "layout-changed"),
    ("hardware_node", "17", "23", {}, "no", "same-hardware"),
    ("checkpoint_interval", 250, 100, {}, "no", "operation-only"),
    ("eval_iters", 100, 5, {}, "no", "operation-only"),
    ("run_identity", "exp-1", "exp-2", {"restart": 7}, "no", "operation-only"),
    ("learning_rate", "requested 1e-4", "effective 0.0001", {}, "no", "same-value"),
    ("grad_clip", "declared on", "effective on", {}, "no", "same-value"),
    ("loss_scale", "dynamic", "fixed 512", {}, "yes", "value-changed"),
    ("ema", None, "0.995 (for eval only)", {}, "no", "evaluation-only"),
    ("ema", 0.999, "0.995", {}, "yes", "value-changed"),
    ("data_mix", ["web", "code"], ["code", "web"], {"restart": 40}, "no", "same-value"),
    ("data_mix", ["web", "code"], ["code", "books"], {"restart": 40}, "yes", "value-changed"),
    ("data_loader", "valid workers 2", "valid workers 0", {}, "no", "operation-only"),
    ("loss_scale", "dynamic, 65536", "dynamic, 4096", {}, "no", "moves-by-itself"),
    ("loss", 2.3, 2.2, {}, "no", "observed-only"),
    ("spare_nodes", 4, 8, {}, "no", "operation-only"),
    ("grad_accum_dtype", "bf16", "fp32", {}, "yes", "value-changed"),
    ("embedding_lr", 1e-4, 5e-5, {}, "yes", "value-changed"),
    ("NCCL_IB_TIMEOUT", 22, 24, {}, "no", "operation-only"),
    ("dependency", "wandb 0.13", "wandb 0.14", {}, "no", "operation-only"),
    ("code_change", "grad clip applied", "validation", {}, "yes", "code-changed"),
    ("code_change", "no timeout", "timeout 30 min", {}, "no", "operation-only"),
    ("code_change", "sync save", "async save", {}, "no", "operation-only"),
    ("batch_skip", None, 0, {}, "no", "nothing-set"),
    ("batch_size", "ramp 192 to 4224", "4224", {}, "no", "course-of-schedule"),
    ("hardware_node", "rack b12", "rack b13", {}, "no", "same-hardware"),
    ("hardware_node", "v5litepod-256", "v4-2048", {}, "yes", "other-accelerator"),
    ("determinism", False, True, {}, "no", "bitwise-only"),
    ("none", None, None, {}, "no", "observed-only"),
    ("rollback", "head", "5000", {"restart": 5000}, "cannot_tell", "branch-only"),
    ("scheduler", None, None, {"restart": 5000}, "cannot_tell", "ambiguous-word"),
    ("flux_capacitance", 1.2, 1.3, {}, "cannot_tell", "unknown-word"),
    ("weight_decay+adam_beta2", "wd .05, beta2 .98", "wd .1, beta2 .95", {}, "yes", "value-changed"),
    ("eval_interval, learning_rate", "1000, 1e-4", "500, 5e-5", {}, "yes", "value-changed"),
]


@pytest.mark.parametrize(("concept", "before", "after", "where", "answer", "rule"), CASES)
def test_each_kind_of_word_is_judged_by_its_own_rule(
    concept: str, before: Any, after: Any, where: dict[str, Any], answer: str, rule: str
) -> None:
    """A lever, a state, a course, code, a layout and machines each show a change in their own way."""
    (found,) = judged(entry(concept, before, after, **where))
    assert (found.regime_change, found.rule) == (answer, rule), found.reason


def test_what_a_run_began_with_is_no_change_of_it() -> None:
    """The first entry of a run, at its start and with no value before, is a setting."""
    first, later = reported.judge(
        [
            entry("batch_size", None, 512, step=0, restart=0, order=0),
            entry("batch_size", None, 1024, step=900),
        ]
    )
    assert (first.regime_change, first.rule) == ("no", "first-setting")
    assert (later.regime_change, later.rule) == ("yes", "value-set")


def test_a_micro_batch_is_judged_by_the_global_batch_beside_it() -> None:
    """Global batch on record and kept: no change; not on record: cannot tell; changed with it: a change."""
    micro = entry("micro_batch", 1, 2, date="2022-03-14")
    alone = judged(micro)[0]
    kept = judged(micro, entry("batch_size", 1024, 2048, date="2022-05-01"))[0]
    moved = judged(micro, entry("batch_size", 1024, 2048, date="2022-03-14"))[0]
    assert [j.rule for j in (alone, kept, moved)] == ["whole-not-shown", "same-whole", "whole-changed"]
    assert [j.regime_change for j in (alone, kept, moved)] == ["cannot_tell", "no", "yes"]


def test_a_rollback_takes_the_answer_of_what_changed_at_the_same_restart() -> None:
    """A branch by itself says nothing; with another clip at the same restart it runs under another regime."""
    back = entry("rollback", "head", "5000", restart=5000, date="2024-04-25")
    clip = entry("grad_clip", 0.5, 1.0, date="2024-04-25", order=2)
    other_day = entry("grad_clip", 0.5, 1.0, date="2024-04-26", order=2)
    assert judged(back, clip)[0].rule == "changed-beside"
    assert judged(back, clip)[0].beside == [clip.uid]
    assert judged(back, other_day)[0].regime_change == "cannot_tell"


def test_two_settings_of_one_thing_are_two_attempts() -> None:
    """Two optimizers tried from one checkpoint are two branches, not one restart with two changes."""
    a = entry("optimizer", "AdamW", "Muon", restart=77_096, order=1)
    b = entry("optimizer", "AdamW", "NAdamW", restart=77_096, order=2)
    assert not reported.same_restart(a, b)
    assert [j.beside for j in judged(a, b)] == [[], []]


def test_where_a_person_and_a_machine_differ_the_machine_stands() -> None:
    """A title that says one thing and a diff that says another: the diff decides, and the disagreement is said."""
    said = entry("weight_decay", "no decay", "decay", date="2024-04-25")
    did = entry(
        "weight_decay", 0.1, 0.1, date="2024-04-25", authority="machine", source="config.yaml", order=2
    )
    human, machine = judged(said, did)
    assert (machine.regime_change, machine.rule) == ("no", "same-value")
    assert (human.regime_change, human.rule) == ("no", "machine-stands")
    assert "config.yaml" in human.reason


def test_a_change_carries_what_it_does_to_each_claim_and_no_change_carries_nothing() -> None:
    """Effects are those of the catalogue, the worst over the concepts that an entry names."""
    changed, kept = judged(entry("data_mix+eval_iters", "v2", "v3"), entry("save_interval", 1, 2))
    assert changed.effects["data_exposure"] == "broken"
    assert changed.concepts == ["data_mix", "eval_protocol"]
    assert kept.effects == {}


def test_prose_and_marks_are_never_judged() -> None:
    """Text beside an entry, and a mark of a person in it, change nothing in the judgement."""
    plain = entry("hardware_node", None, "node excluded")
    told = plain.model_copy(
        update={
            "text": "learning rate halved and data reshuffled",
            "extra": {"regime_change": schemas.Scalar.of(True), "event_kind": schemas.Scalar.of("lr_change")},
        }
    )
    assert judged(plain) == judged(told)


def test_every_word_of_the_vocabulary_stands_for_a_concept_of_the_catalogue() -> None:
    """A word that leads nowhere would be judged without a class and without effects."""
    outside = {"none", "operations", "rollback"}
    unknown = (
        {w.concept for w in schemas.vocabulary().words.values()} - set(schemas.catalogue().concepts) - outside
    )
    assert unknown == set()


def test_a_longer_word_is_read_by_the_longest_known_word_in_it() -> None:
    """`embedding_gradient_shrink_alpha` is a shrink of gradients, not an embedding."""
    vocabulary = schemas.vocabulary()
    assert vocabulary.word("embedding_gradient_shrink_alpha").concept == "grad_scale"
    assert vocabulary.word("Peak LR").concept == "learning_rate"
    assert vocabulary.word("Global batch-size").concept == "global_batch"
