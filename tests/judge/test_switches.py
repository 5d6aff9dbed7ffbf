"""Keys without effect, values left to the framework, and sections that one side does not have."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from lineage.judge import drift as d

from .test_requested import compare, config

DEEPSPEED = {"zero_optimization.stage": 2, "steps_per_print": 10, "train_micro_batch_size_per_gpu": 4}
TITAN = {"training.local_batch_size": 1, "metrics.log_freq": 10, "training.max_norm": 1.0}
MEGATRON = {"--no-masked-softmax-fusion": True, "--no-bias-gelu-fusion": True}

LIGHTNING = {"max_epochs": 1, "val_check_interval": 1, "num_sanity_val_steps": 0}
TRAINER = {"hub_strategy": "end", "logging_first_step": True}


def test_auto_is_no_default_and_is_not_shown_beside_a_value() -> None:
    """What "auto" comes to is worked out when it runs: it may be the default, and it may not."""
    before, after = {**DEEPSPEED, "bf16.enabled": False}, {**DEEPSPEED, "bf16.enabled": "auto"}
    found = d.drift(d.Side(config=config(before)), d.Side(config=config(after)), from_step=1)
    assert [c.concept for c in found.changes] == []
    assert found.not_shown["precision"] == (
        "bf16.enabled requested False -> auto: what 'auto' comes to is worked out when it runs"
    )


def test_auto_on_both_sides_and_auto_that_the_trainer_fills_in_are_no_question() -> None:
    """The Trainer's own argument beside it says what "auto" stands for."""
    auto = {**DEEPSPEED, "bf16.enabled": "auto", "logging_first_step": True, "hub_strategy": "end"}
    assert compare(auto, auto).one_sided == {}
    told = compare({**auto, "bf16": True}, {**auto, "bf16": False})
    assert told.changes["precision"].text == "bf16 requested True -> False"
    stated = compare({**auto, "bf16": True}, {**auto, "bf16.enabled": True, "bf16": True})
    assert (stated.changes, stated.one_sided) == ({}, {})


@pytest.mark.parametrize(
    ("common", "before", "after", "concept", "text"),
    [
        (
            TITAN,
            {},
            {"model.converters": ["float8"], "float8.recipe_name": "rowwise"},
            "fp8",
            "model.converters requested [] -> [float8]",
        ),
        (
            {"train_module.optim.lr": 1e-4, "train_module.max_grad_norm": 1.0},
            {"model.block.attention.qk_norm.name": "rms", "model.block.attention.qk_norm.eps": 1e-6},
            {"model.block.attention.qk_norm": None},
            "model",
            "model.block.attention.qk_norm.name requested rms -> none",
        ),
        (
            {"logging_first_step": True, "hub_strategy": "end", "num_train_epochs": 3},
            {"max_steps": -1},
            {"max_steps": 1000},
            "horizon",
            "max_steps requested -1 -> 1000",
        ),
        (
            {"logging_first_step": True, "hub_strategy": "end"},
            {"lr_scheduler_kwargs": {}},
            {"lr_scheduler_kwargs.num_cycles": 0.4},
            "lr_schedule",
            "lr_scheduler_kwargs.num_cycles requested none -> 0.4",
        ),
    ],
)
def test_what_one_side_switched_on_or_left_out_is_a_change(
    common: dict[str, Any], before: dict[str, Any], after: dict[str, Any], concept: str, text: str
) -> None:
    """A section that is stated as none, a limit of -1 and a default that is known are values too."""
    found = compare({**common, **before}, {**common, **after})
    assert found.one_sided == {}
    assert found.changes[concept].cls == "R"
    assert text in found.changes[concept].text


@pytest.mark.parametrize(
    ("common", "switch", "on", "off", "key", "concept"),
    [
        (DEEPSPEED, "fp16.enabled", True, False, "fp16.loss_scale_window", "loss_scale"),
        ({"steps_per_print": 1}, "zero_optimization.stage", 2, 0, "zero_optimization.overlap_comm", "communication"),
        (TITAN, "model.converters", ["float8"], [], "float8.recipe_name", "fp8"),
        (TITAN, "compile.enable", True, False, "compile.backend", "compile"),
        (MEGATRON, "--fp16", True, False, "--initial-loss-scale", "loss_scale"),
        (MEGATRON, "--lr-decay-style", "WSD", "cosine", "--lr-wsd-decay-iters", "decay_horizon"),
        (MEGATRON, "--num-experts", 8, None, "--moe-router-topk", "moe_routing"),
        (MEGATRON, "--qk-clip", True, False, "--qk-clip-threshold", "update_clip"),
        (LIGHTNING, "gradient_clip_val", 1.0, 0, "gradient_clip_algorithm", "grad_clip"),
        ({"wandb_log": True, "always_save_checkpoint": True}, "decay_lr", True, False, "warmup_iters", "warmup"),
        (TRAINER, "fsdp", "full_shard", "", "fsdp_config.min_num_params", "dp_sharding"),
        ({}, "lora.enabled", True, False, "lora.r", None),
    ],
)  # fmt: skip
def test_a_key_sets_nothing_while_its_switch_is_off(
    common: dict[str, Any], switch: str, on: object, off: object, key: str, concept: str | None
) -> None:
    """The same difference is a change where the switch is on, and folded away where it is off."""
    values = (1, 7)
    idle = compare(*({**common, switch: off, key: v} for v in values))
    active = compare(*({**common, switch: on, key: v} for v in values))
    if concept is None:
        assert [c.title for c in active.unclassified] == [key]
        assert [c.text for c in idle.aside] == [f"{key} requested 1 -> 7; it sets nothing: {switch} is off"]
        assert idle.unclassified == []
    else:
        assert concept in active.changes
        assert (idle.changes, idle.one_sided, idle.unclassified) == ({}, {}, [])
        assert [c.keys for c in idle.aside] == [[key]]


def test_a_switch_that_is_worked_out_when_it_runs_leaves_its_keys_in_effect() -> None:
    """Nobody knows that it is off."""
    before, after = ({**DEEPSPEED, "fp16.enabled": "auto", "fp16.initial_scale_power": n} for n in (16, 12))
    assert "loss_scale" in compare(before, after).changes


def test_switching_on_tells_what_comes_with_it() -> None:
    """Off on one side and on on the other: the switch is a change, and so is what was set while it was off."""
    before = {**DEEPSPEED, "fp16.enabled": False, "fp16.initial_scale_power": 12}
    found = compare(before, {**before, "fp16.enabled": True})
    assert set(found.changes) == {"precision", "loss_scale"}


def test_the_keys_of_a_config_tell_in_which_versions_of_its_framework_it_may_be_read() -> None:
    """Where a default moved, a key that only some versions have decides which default holds."""
    catalogue = schemas.catalogue()
    older = schemas.Versions.of([k for k in catalogue.keys if k.name == "training.batch_size"])
    newer = schemas.Versions.of([k for k in catalogue.keys if k.name == "training.local_batch_size"])
    defaults = [
        catalogue.default("fused_kernels", "optimizer", ("torchtitan",), {}, {"torchtitan": v})
        for v in (older, newer)
    ]
    assert [f[0] for f in defaults if f] == ["foreach", "fused"]
    assert catalogue.default("fused_kernels", "optimizer", ("torchtitan",), {}) is None
