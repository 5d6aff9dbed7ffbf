"""What two configs ask for: normalisation, references, lists, units, and input that is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from lineage.capture import config as capture
from lineage.judge import drift as d
from lineage.judge import requested
from lineage.judge.command import split
from lineage.judge.interpolation import resolve
from lineage.judge.values import is_number, normal, same

from .builders import effective, side


def config(values: dict[str, Any]) -> schemas.Config:
    """A config with these keys."""
    return schemas.Config(
        source="dict", values={k: schemas.Scalar.of(v) for k, v in values.items()}, digest="sha256:00"
    )


def compare(before: dict[str, Any], after: dict[str, Any]) -> requested.Requested:
    """What differs between two configs."""
    return requested.compare(config(before), config(after))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1e-4, "0.0001"),
        (1, "1.0"),
        (9_765_625, "9_765_625"),
        ("1,024", 1024),
        (True, "True"),
        (None, "None"),
        (None, ""),
        ([0.9, 0.95], "[0.9, 0.95]"),
        ([0.9, 0.95], "(0.9, 0.95)"),
        (["a", "b"], "[a, b]"),
        ([192, 16, 9765625], "192 16 9_765_625"),
        ("torch.bfloat16", "bf16"),
        ("fp32", "float32"),
        ("3e12T", "3000000000000 tokens"),
        ("1ep", "1 epoch"),
        (float("nan"), "nan"),
        (0.1 + 0.2, 0.3),
        (2**63, str(2**63)),
        (True, schemas.Scalar.of(True)),
    ],
)
def test_one_value_in_two_spellings_is_one_value(a: object, b: object) -> None:
    """Trackers, launch scripts and YAML write the same value in different ways."""
    assert same(schemas.Scalar.of(a), schemas.Scalar.of(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1e-4, 1.0001e-4),
        ("100:00:00", "20:00:00"),
        ("13251-14000", "13251-14001"),
        ([1, 2], [2, 1]),
        ("3e12T", "3e12sp"),
        (2**63, 2**63 + 1),
        ("adamw", "lion"),
        (True, 1),
        ("NaN", 0),
    ],
)
def test_other_values_stay_other_values(a: object, b: object) -> None:
    """Normalisation never makes two things one."""
    assert not same(schemas.Scalar.of(a), schemas.Scalar.of(b))


def test_free_text_where_a_number_is_due_is_kept_and_said() -> None:
    """Nothing is guessed from it, and nothing of it is lost."""
    found = compare({"lr": 1e-4}, {"lr": "about 2e-4, see wiki"})
    change = found.changes["learning_rate"]
    assert change.requested_after == schemas.Scalar.of("about 2e-4, see wiki")
    assert "is no number, kept as written" in change.text
    quiet = compare({"lr": "about 2e-4"}, {"lr": "about 2e-4"})
    assert (quiet.changes, quiet.not_shown) == ({}, {})


def test_a_config_that_refers_to_itself_keeps_its_text_and_is_compared() -> None:
    """A reference that leads back to itself resolves to nothing."""
    values = {"a": schemas.Scalar.of("${b}"), "b": schemas.Scalar.of("${a}"), "c": schemas.Scalar.of("${c}")}
    held, _ = resolve(values)
    assert held["c"] == schemas.Scalar.of("${c}")
    assert {str(held["a"].value), str(held["b"].value)} <= {"${a}", "${b}"}
    assert compare({"lr": "${lr}"}, {"lr": "${lr}"}).changes == {}
    assert "learning_rate" in compare({"lr": "${lr}"}, {"lr": 1e-4}).not_shown


def test_a_config_that_contains_itself_is_compared_as_far_as_it_goes() -> None:
    """A cycle is cut at capture, with a word for it."""
    ring: dict[str, Any] = {"optimizer": {"lr": 1e-4}}
    ring["optimizer"]["parent"] = ring
    other: dict[str, Any] = {"optimizer": {"lr": 2e-4}}
    other["optimizer"]["parent"] = other
    found = requested.compare(capture.capture(ring), capture.capture(other))
    assert list(found.changes) == ["learning_rate"]


def test_a_masked_value_never_comes_out_through_a_reference() -> None:
    """What was masked stays masked, also inside another text."""
    values = {
        "env:TOKEN": schemas.MASKED,
        "a": schemas.Scalar.of("$TOKEN"),
        "b": schemas.Scalar.of("x $TOKEN"),
    }
    held, used = resolve(values)
    assert held["a"] == schemas.MASKED
    assert held["b"] == schemas.Scalar.of("x $TOKEN")
    assert used == {"env:TOKEN"}


def test_a_variable_that_other_keys_are_made_of_is_told_once_under_the_key_that_it_sets() -> None:
    """`--save-interval $SAVE` with another SAVE is one change of the save interval."""
    found = compare(
        {"--save-interval": "$SAVE", "env:SAVE": "200"}, {"--save-interval": "$SAVE", "env:SAVE": "100"}
    )
    assert [(c.concept, c.keys) for c in found.aside] == [("save_policy", ["--save-interval"])]
    assert found.unclassified == []


def test_of_many_keys_of_one_concept_all_are_kept_and_a_line_names_a_few() -> None:
    """A line that a person reads names six; the record has them all."""
    before = {f"model.layer_{i}.width": 1 for i in range(40)}
    after = {f"model.layer_{i}.width": 2 for i in range(40)}
    change = compare(before, after).changes["model"]
    assert len(change.keys) == 40
    assert len(change.text) < 600


def test_ten_thousand_keys_are_all_compared() -> None:
    """Every differing key is found among ten thousand, known or not."""
    before = {f"s{i % 50}.item{i}": i for i in range(10_000)} | {"optimizer.lr": 1e-4}
    after = {**before, "s7.item4357": -1, "s0.item9950": "x", "optimizer.lr": 1e-5}
    found = compare(before, after)
    assert list(found.changes) == ["learning_rate"]
    assert [c.title for c in found.unclassified] == ["s0.item9950", "s7.item4357"]


def test_swapped_values_of_two_keys_of_one_setting_are_no_rename() -> None:
    """A rename needs a key that went and a key that came, with one value."""
    assert "learning_rate" in compare({"lr": 1e-4, "max_lr": 1e-3}, {"lr": 1e-3, "max_lr": 1e-4}).changes
    assert "learning_rate" not in compare({"lr": 1e-4}, {"lr": 1e-4, "optimizer.lr": 1e-4}).changes
    assert "learning_rate" not in compare({"lr": 1e-4}, {"peak_lr": 1e-4, "optimizer.lr": 1e-4}).changes
    assert compare({"lr": 1e-4}, {"lr": 1e-4, "peak_lr": None}).changes == {}
    further = compare({"lr": 1e-4}, {"peak_lr": 1e-4, "optimizer.lr": 3e-4}).changes["learning_rate"]
    assert further.keys == ["optimizer.lr"]


def test_a_masked_key_under_another_name_is_never_shown_to_be_the_same() -> None:
    """Nothing is known of either value."""
    found = compare({"eps": schemas.MASKED}, {"adam_eps": schemas.MASKED})
    assert found.changes["eps"].keys == ["eps", "adam_eps"]


def test_a_default_that_moved_between_versions_needs_the_version() -> None:
    """Below 5.15 a warm-up ratio is a key of its own; the packages beside the config say which version it was."""
    keys = {"logging_first_step": True, "hub_strategy": "end", "eval_delay": 0, "fp16": True}
    before, after = config({**keys, "dataloader_num_workers": 0}), config(keys)
    assert requested.compare(before, after).changes == {}
    older = [{"transformers": "4.57.6"}, {"transformers": "5.24.0"}]
    gone = requested.compare(config({**keys, "fp16_opt_level": "O2"}), after, older)
    assert "fp16_opt_level" in gone.one_sided["precision"].keys
    known = requested.compare(config({**keys, "fp16_opt_level": "O2"}), after, older[:1] * 2)
    assert known.changes["precision"].requested_after == schemas.Scalar.of("O1")


def test_what_another_program_fills_in_is_no_default() -> None:
    """DeepSpeed's "auto" is the Trainer's own threshold, and its default was another one in older versions."""
    common = {"train_micro_batch_size_per_gpu": 4, "zero_optimization.stage": 2, "steps_per_print": 10}
    for other in ({"gradient_clipping": "auto"}, {}):
        found = compare({**common, "gradient_clipping": 1.0}, {**common, **other})
        assert "grad_clip" not in found.changes
        assert "grad_clip" in found.one_sided


def test_the_epsilon_of_a_norm_is_the_models_and_not_the_optimizers() -> None:
    """It changes what the same weights answer, so an evaluation is another one too."""
    found = compare({"model.block.layer_norm.eps": 1e-5}, {"model.block.layer_norm.eps": 1e-6})
    assert set(found.changes) == {"model"}
    assert set(compare({"optim.eps": 1e-8}, {"optim.eps": 1e-6}).changes) == {"eps"}


def test_live_values_decide_what_only_one_config_states() -> None:
    """The optimizer held 0.1 on both sides, whatever the older config left out."""
    live = effective(weight_decay=0.1)
    asked = config({"wd": 0.1}), config({})
    found = d.drift(side(asked[1], live), side(asked[0], live), from_step=1)
    assert (found.changes, "weight_decay" in found.not_shown) == ([], False)
    other = d.drift(side(asked[1], live), side(config({"wd": 0.2}), live), from_step=1)
    assert d.requested_only(other.changes[0])
    assert "not in effect" in other.changes[0].text
    moved = d.drift(side(asked[1], effective(weight_decay=0.0)), side(asked[0], live), from_step=1)
    assert moved.changes[0].requested_after == schemas.Scalar.of(0.1)


def test_the_global_batch_is_worked_out_from_its_parts_and_said_with_them() -> None:
    """Micro-batch x accumulation x data-parallel ranks, where tensor and pipeline parallelism split the world."""
    parts = {"micro_batch_size": 2, "grad_accum": 4, "world_size": 64, "tp_size": 4, "pp_size": 2}
    change = compare(parts, {**parts, "world_size": 32}).changes
    assert "world_size" in change
    drift = d.drift(
        d.Side(config=config(parts)), d.Side(config=config({**parts, "world_size": 32})), from_step=1
    )
    text = next(c.text for c in drift.changes if c.concept == "global_batch")
    assert "64 samples (2 x 4 x 8 ranks) -> 32 samples (2 x 4 x 4 ranks)" in text


def test_the_world_size_of_the_environment_counts_where_no_key_states_it() -> None:
    """Two configs that name no ranks, on 8 and on 16 of them: the step doubled."""
    from .builders import environment

    asked = config({"micro_batch_size": 2, "grad_accum": 4, "loss_norm": "tokens"})
    eight, sixteen = (environment().model_copy(update={"world_size": n}) for n in (8, 16))
    found = d.drift(
        d.Side(config=asked, environment=eight), d.Side(config=asked, environment=sixteen), from_step=1
    )
    assert [c.concept for c in found.changes] == ["global_batch"]


def test_the_flags_of_a_command_are_read_with_quotes_line_ends_and_comments() -> None:
    """As a shell would; what is no flag stays as text."""
    text = (
        "# try 3\npip install x==1\ntorchrun --nnodes=2 train.py \\\n  '--name=a b' --lr 1e-4 --fused # now\n"
    )
    flags, rest = split(text)
    assert flags == {"--nnodes": "2", "--name": "a b", "--lr": "1e-4", "--fused": True}
    assert rest == "pip install x==1 torchrun train.py"
    assert split('say "it never closes --lr=1')[0] == {"--lr": "1"}


def test_only_numbers_count_as_numbers() -> None:
    """Switches, rows of numbers and quantities are numbers too; prose is not."""
    for value in (1, "1e-4", "192 16 100", "3e12T", True, None, [1, 2]):
        assert is_number(normal(schemas.Scalar.of(value))), value
    for value in ("about 3", "1e-4 (was 2e-4)", "auto-ish", ["a"]):
        assert not is_number(normal(schemas.Scalar.of(value))), value


def test_nothing_is_compared_where_a_side_has_no_config() -> None:
    """No config is no change; drift says that it is not shown."""
    found = requested.compare(None, config({"lr": 1}))
    assert (found.changes, found.unclassified, found.not_shown) == ({}, [], {})
