"""Whether a logged series shows what happened: known answers, and silence where there is nothing to say."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import schemas
from lineage.judge.series_health import Health, Logged, check

NAN, INF = math.nan, math.inf


def falling(rows: int, seed: int = 0, level: float = 2.0, noise: float = 0.02) -> list[float]:
    """A healthy loss, all digits."""
    draw = random.Random(seed)
    return [level + 8.0 / (1 + i / 20) + draw.gauss(0.0, noise) for i in range(rows)]


def norms(rows: int, seed: int = 1, level: float = 0.4) -> list[float]:
    """Healthy gradient norms, all digits."""
    draw = random.Random(seed)
    return [level * math.exp(draw.gauss(0.0, 0.3)) for _ in range(rows)]


def logged(rank: int = 0, by: str = "wandb", first: int = 1, **series: list[float]) -> list[Logged]:
    """Series that came in the same rows; `_over_` in a name is a slash."""
    return [
        Logged(k.replace("_over_", "/"), list(range(first, first + len(v))), v, rank, by)
        for k, v in series.items()
    ]


def codes(health: Health) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in health.findings]


def bfloat16(value: float) -> float:
    """A value as bfloat16 holds it (cut, not rounded)."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    (out,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return float(out)


# -- dead


def test_a_norm_that_is_always_zero_while_the_loss_moves_is_dead() -> None:
    health = check(logged(loss=falling(30), grad_norm=[0.0] * 30))
    assert codes(health) == [("LIN-S001", "grad_norm")]
    (found,) = health.findings
    assert found.severity == "warning"
    assert found.check == "series-dead/1"
    assert "in all 30 rows, while loss moved" in found.text
    assert found.values["first_step"].plain() == 1


def test_a_signal_of_the_layers_own_that_goes_dead_says_from_which_step() -> None:
    found = logged(by="probes", loss=falling(100), grad_norm_local=norms(60) + [0.0] * 40)
    (only,) = check(found).findings
    assert (only.code, only.subject) == ("LIN-S001", "grad_norm_local")
    assert "from step 61 on" in only.text


def test_a_zero_norm_beside_a_loss_that_does_not_move_is_no_finding() -> None:
    assert check(logged(loss=[0.5] * 60, grad_norm=[0.0] * 60)).findings == []


@pytest.mark.parametrize(
    "key", ["eval/grad_norm", "grad_norm_threshold", "grad_norm/layer3", "skipped_grad_norm"]
)
def test_what_is_no_norm_of_the_whole_model_may_be_zero(key: str) -> None:
    found = [*logged(loss=falling(60)), Logged(key, list(range(1, 61)), [0.0] * 60, by="wandb")]
    assert check(found).findings == []


def test_the_loss_of_a_policy_may_be_zero() -> None:
    zero = [0.0] * 60
    assert codes(check(logged(loss=zero, grad_norm=norms(60)))) == [("LIN-S001", "loss")]
    assert check(logged(loss=zero, grad_norm=norms(60), reward=norms(60, 4))).findings == []


# -- stale


@pytest.mark.parametrize("rows", [5, 12, 70])
def test_a_loss_that_repeats_its_last_value_while_the_norm_moves_is_stale(rows: int) -> None:
    loss = falling(60)
    loss += [loss[-1]] * rows + falling(50, 3)
    health = check(logged(train_over_loss=loss, train_over_grad_norm=norms(len(loss))))
    assert codes(health) == [("LIN-S002", "train/loss")]
    (found,) = health.findings
    assert f"in {rows + 1:,} rows, steps 60-{60 + rows}, while train/grad_norm moved" in found.text
    assert found.values["value"].plain() == loss[60]


def test_two_episodes_are_one_finding_with_both_counted() -> None:
    loss = falling(200)
    loss[50:60] = [loss[49]] * 10
    loss[120:135] = [loss[119]] * 15
    (found,) = check(logged(loss=loss, grad_norm=norms(200))).findings
    assert "16 rows, steps 120-135, and at 1 more places" in found.text


def test_a_loss_that_never_moved_at_all_is_stale() -> None:
    (found,) = check(logged(loss=[2.718281] * 40, grad_norm=norms(40))).findings
    assert (found.code, found.subject) == ("LIN-S002", "loss")
    assert "in all 40 rows" in found.text


def test_a_loss_is_stale_where_only_the_layers_own_signal_moves() -> None:
    own = falling(60)
    shown = own[:30] + [own[29]] * 30
    health = check([*logged(by="probes", loss=own), *logged(loss=shown)])
    assert ("LIN-S002", "loss") in codes(health)


def test_a_value_made_once_in_eight_rows_is_no_stale_one() -> None:
    """Rows of micro-batches, or of a loop that logs the last loss in each row."""
    loss = [v for v in falling(40) for _ in range(8)]
    assert check(logged(loss=loss, grad_norm=norms(320))).findings == []
    assert check(logged(loss=loss[:17], grad_norm=norms(17))).findings == []


def test_a_norm_at_its_clip_threshold_is_no_stale_one() -> None:
    clipped = [min(1.0, v) for v in norms(200, level=3.0)]
    assert all(f.code != "LIN-S002" for f in check(logged(loss=falling(200), grad_norm=clipped)).findings)


def test_nothing_is_said_where_nothing_else_moved() -> None:
    """The same batch at a rate of zero repeats everything."""
    loss = falling(60) + [2.5] * 60
    norm = norms(60) + [0.25] * 60
    assert check(logged(loss=loss, grad_norm=norm)).findings == []


@pytest.mark.parametrize(
    "key", ["lr", "epoch", "val/loss", "best_loss", "loss_scale", "train/loss_weight", "tokens"]
)
def test_what_is_constant_by_nature_is_not_judged(key: str) -> None:
    constant = Logged(key, list(range(1, 101)), [2.5e-4] * 30 + [1.234567e-4] * 70, by="wandb")
    assert check([*logged(loss=falling(100), grad_norm=norms(100)), constant]).findings == []


# -- coarse


def test_a_loss_in_bfloat16_is_coarse_and_the_step_is_named() -> None:
    """Between 1.65 and 1.74 it takes a dozen values."""
    draw = random.Random(5)
    loss = [bfloat16(draw.gauss(1.7, 0.02)) for _ in range(200)]
    (found,) = check(logged(loss=loss, grad_norm=norms(200))).findings
    assert (found.code, found.severity) == ("LIN-S003", "note")
    assert found.values["resolution"].plain() == 2.0**-7
    assert "(bfloat16)" in found.text


def test_a_norm_of_two_decimals_is_coarse_and_a_loss_of_four_is_not() -> None:
    health = check(
        logged(loss=[round(v, 4) for v in falling(200)], grad_norm=[round(v / 10, 2) for v in norms(200)])
    )
    assert codes(health) == [("LIN-S003", "grad_norm")]
    assert health.findings[0].values["resolution"].plain() == 0.01


# -- missing


def test_a_loss_that_is_absent_where_the_norm_is_nan_is_a_gap() -> None:
    rows = 60
    norm = norms(rows)
    norm[39] = NAN
    loss = Logged("lm loss", [s for s in range(1, rows + 1) if s != 40], falling(rows - 1), by="wandb")
    (found,) = check([loss, *logged(grad_norm=norm, lr=[1e-4] * rows)]).findings
    assert (found.code, found.severity) == ("LIN-S004", "warning")
    assert (
        "steps 40, though it had come with it in each row before; at 40 another value is not finite"
        in found.text
    )


def test_a_field_that_is_left_out_once_after_a_continuous_series_is_a_gap() -> None:
    """No reason is at hand: it is still said, and to be taken for non-finite."""
    loss = Logged("loss", [s for s in range(1, 101) if s not in (51, 52)], falling(98), by="mlflow")
    (found,) = check([loss, *logged(by="mlflow", lr=[1e-4] * 100)]).findings
    assert found.code == "LIN-S004"
    assert "2 rows of lr, steps 51-52" in found.text


def test_a_loss_that_is_logged_more_seldom_than_the_rate_is_no_gap() -> None:
    loss = Logged("loss", list(range(1, 30)) + list(range(30, 200, 10)), falling(46), by="wandb")
    assert check([loss, *logged(lr=[1e-4] * 200)]).findings == []


def test_rows_of_evaluation_are_no_gap() -> None:
    epoch = Logged("epoch", list(range(1, 101)), [s / 50 for s in range(1, 101)], by="wandb")
    steps = [s for s in range(1, 101) if s != 55]
    loss = Logged("loss", steps, falling(99), by="wandb")
    assert check([loss, epoch, Logged("lr", steps, [1e-4] * 99, by="wandb")]).findings == []


def test_a_signal_that_stops_arriving_is_said_with_its_step() -> None:
    """Hooks are lost where the model is replaced: the loss goes on, the local norm does not."""
    found = logged(by="probes", loss=falling(100), grad_norm_local=norms(70))
    (only,) = check(found).findings
    assert (only.code, only.subject) == ("LIN-S005", "grad_norm_local")
    assert "missing from step 71 on" in only.text


def test_a_run_that_dies_at_nan_without_its_last_loss_is_said() -> None:
    (only,) = check(logged(loss=falling(50), grad_norm=[*norms(50), NAN])).findings
    assert (only.code, only.subject) == ("LIN-S005", "loss")


# -- hidden


@pytest.mark.parametrize("limit", [1.7976931348623157e308, -1.7976931348623157e308, 3.4028234663852886e38])
def test_the_largest_number_of_a_type_stands_for_an_infinity(limit: float) -> None:
    loss = falling(30)
    loss[20] = limit
    assert codes(check(logged(loss=loss))) == [("LIN-S006", "loss")]
    assert codes(check(logged(anything=loss))) == [("LIN-S006", "anything")]


def test_a_norm_below_zero_is_a_code_for_what_is_not_finite() -> None:
    norm = norms(30)
    norm[7] = -1.0
    (found,) = check(logged(loss=falling(30), grad_norm=norm)).findings
    assert (found.code, found.values["first_step"].plain()) == ("LIN-S006", 8)


def test_a_loss_of_zero_beside_a_norm_of_nan_is_a_filter() -> None:
    """What a Trainer with its filter on shows once training is lost."""
    loss, norm = falling(30) + [0.0] * 30, norms(30) + [NAN] * 30
    (found,) = check(logged(loss=loss, grad_norm=norm)).findings
    assert found.code == "LIN-S006"
    assert "finite and unmoved at steps 31-60, where grad_norm is not finite" in found.text


def test_a_coarse_loss_that_stands_still_by_chance_beside_nan_hides_nothing() -> None:
    draw = random.Random(7)
    loss = [round(draw.gauss(2.0, 0.02), 2) for _ in range(5_000)]
    health = check(logged(loss=loss, grad_norm=[NAN] * 5_000))
    assert {f.code for f in health.findings} == {"LIN-S003"}


def test_a_loss_of_zero_from_the_first_row_on_beside_nan_is_a_filter() -> None:
    health = check(logged(loss=[0.0] * 40, grad_norm=[NAN] * 40))
    assert codes(health) == [("LIN-S006", "loss")]


def test_infinite_norms_of_a_search_for_the_loss_scale_hide_nothing() -> None:
    norm = [INF] * 6 + norms(60)
    norm[40] = INF
    assert check(logged(loss=falling(66), grad_norm=norm)).findings == []


def with_own(change: Callable[[list[float]], list[float]]) -> Health:
    """Own losses with a NaN at step 41, and what the training code logged of them."""
    own = falling(100)
    own[40] = NAN
    return check([*logged(by="probes", loss=own), *logged(train_over_loss=change(own))])


def test_nan_that_is_logged_as_it_is_needs_no_word() -> None:
    assert with_own(lambda own: own).findings == []


def test_a_last_value_in_place_of_nan_is_hidden() -> None:
    (found,) = with_own(lambda own: [*own[:40], own[39], *own[41:]]).findings
    assert found.code == "LIN-S006"
    assert "finite at steps 41, where this rank's loss is not" in found.text


def test_a_row_that_is_left_out_at_nan_is_missing() -> None:
    own = falling(100)
    own[40] = NAN
    steps = [s for s in range(1, 101) if s != 41]
    shown = Logged("train/loss", steps, [own[s - 1] for s in steps], by="wandb")
    (found,) = check([*logged(by="probes", loss=own), shown]).findings
    assert found.code == "LIN-S004"
    assert "absent at steps 41, where this rank's loss is not finite" in found.text


# -- scope and definition


def two_ranks(*, shown: str, key: str) -> Health:
    """Two ranks with losses of their own; rank 0 logs one of them, or the mean, under a key."""
    a, b = falling(60, 1), falling(60, 2)
    mean = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    values = {"rank 0": a, "mean": mean}[shown]
    own = [*logged(0, "probes", loss=a), *logged(1, "probes", loss=b)]
    return check([*own, Logged(key, list(range(1, 61)), values, by="wandb")])


@pytest.mark.parametrize(
    ("shown", "key", "expected"),
    [
        ("rank 0", "train/global_loss", "LIN-S007"),
        ("mean", "train/local_loss", "LIN-S007"),
        ("rank 0", "train/loss", "LIN-S008"),
        ("mean", "train/loss", None),
        ("mean", "train/global_loss", None),
        ("rank 0", "train/local_loss", None),
    ],
)
def test_the_scope_of_a_loss_is_held_against_its_name(shown: str, key: str, expected: str | None) -> None:
    assert [f.code for f in two_ranks(shown=shown, key=key).findings] == ([expected] if expected else [])


def test_a_local_norm_called_global_is_of_another_scope() -> None:
    local, reduced = norms(60, 1), norms(60, 2)
    own = logged(by="probes", grad_norm_local=local, grad_norm=reduced)
    health = check([*own, *logged(global_over_grad_norm=local)])
    assert codes(health) == [("LIN-S007", "global/grad_norm")]
    assert check([*own, *logged(global_over_grad_norm=reduced)]).findings == []


def test_on_one_rank_local_and_reduced_are_one_and_nothing_is_said() -> None:
    norm = norms(60)
    health = check(
        [*logged(by="probes", grad_norm_local=norm, grad_norm=norm), *logged(global_over_grad_norm=norm)]
    )
    assert health.findings == []
    shown = next(m for m in health.looked_at if not m.series.own)
    assert shown.names == {"grad_norm_local", "grad_norm"}


def test_local_series_that_are_equal_on_all_ranks_were_reduced() -> None:
    values = falling(40)
    found = [*logged(0, local_loss=values), *logged(1, local_loss=values)]
    assert [f.code for f in check(found).findings] == ["LIN-S007"]
    assert check([*logged(0, local_loss=values), *logged(1, local_loss=falling(40, 9))]).findings == []


def test_a_norm_after_clipping_is_told_by_the_norm_before() -> None:
    norm = norms(80, level=1.0)
    own = logged(by="probes", grad_norm=norm, clip_threshold=[1.0] * 80)
    (found,) = check([*own, *logged(grad_norm=[min(1.0, v) for v in norm])]).findings
    assert (found.code, found.severity) == ("LIN-S008", "note")
    assert "after clipping" in found.text
    assert check([*own, *logged(grad_norm=norm)]).findings == []


def test_a_norm_after_clipping_is_told_by_the_threshold_of_the_config() -> None:
    clipped = logged(loss=falling(80), grad_norm=[min(1.0, v) for v in norms(80, level=1.5)])
    assert [f.code for f in check(clipped, thresholds=[1.0]).findings] == ["LIN-S008"]
    assert check(clipped, thresholds=[2.0]).findings == []
    assert check(clipped).findings == []


def test_a_loss_that_is_divided_by_the_accumulation_steps_is_told() -> None:
    own = falling(60)
    (found,) = check([*logged(by="probes", loss=own), *logged(loss=[v / 4 for v in own])]).findings
    assert found.code == "LIN-S008"
    assert "0.25 times this rank's loss" in found.text


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_loss_is_recognised_though_its_steps_are_counted_otherwise(first: int) -> None:
    own = falling(60)
    health = check([*logged(by="probes", loss=own), *logged(first=first, loss=own)])
    shown = next(m for m in health.looked_at if not m.series.own)
    assert (sorted(shown.names), shown.offset) == (["loss"], 1 - first)
    assert health.findings == []


def test_a_mean_over_ten_steps_is_recognised() -> None:
    own = falling(200)
    steps = list(range(10, 201, 10))
    mean = Logged("loss", steps, [sum(own[s - 10 : s]) / 10 for s in steps], by="wandb")
    health = check([*logged(by="probes", loss=own), mean])
    shown = next(m for m in health.looked_at if not m.series.own)
    assert shown.text == "this rank's loss, averaged over 10 steps"


def test_copies_of_logged_values_prove_nothing_about_them() -> None:
    """What the observer calls a loss is what was logged."""
    own = falling(60)
    health = check([*logged(by="probes", loss=own), *logged(loss=own)], observed=True)
    assert [m.names for m in health.looked_at] == [set()]


# -- switches


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"logging_nan_inf_filter": True}, "logging_nan_inf_filter"),
        ({"trainer.logging_nan_inf_filter": "True"}, "trainer.logging_nan_inf_filter"),
        ({"no-check-for-nan-in-loss-and-grad": True}, "no-check-for-nan-in-loss-and-grad"),
        ({"check_for_nan_in_loss_and_grad": False}, "check_for_nan_in_loss_and_grad"),
        ({"deepspeed.zero_optimization.stage": 3}, "deepspeed.zero_optimization.stage"),
        ({"logging_nan_inf_filter": False}, None),
        ({"check_for_nan_in_loss_and_grad": True, "zero_optimization.stage": 2}, None),
    ],
)
def test_a_switch_that_hides_evidence_is_named(config: dict[str, object], key: str | None) -> None:
    found = check([], config=config).findings
    assert [f.names for f in found] == ([[key]] if key else [])
    assert all((f.code, f.severity) == ("LIN-S009", "note") for f in found)


# -- all of them


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(10, 400),
    st.floats(0.005, 2.0),
    st.sampled_from([3, 5, 17]),
    st.sampled_from([1, 2, 8, 25]),
)
def test_a_healthy_noisy_run_is_never_mentioned(
    seed: int, rows: int, noise: float, digits: int, every: int
) -> None:
    """Whatever the noise, the length, the printed digits (down to three) and the rhythm of logging."""
    draw = random.Random(seed)
    steps = list(range(every, every * rows + 1, every))
    loss = [2 + 8 / (1 + i / 20) + draw.gauss(0.0, noise) for i in range(rows)]
    norm = [math.exp(draw.gauss(1.0, 0.3)) for _ in range(rows)]
    rate = [1e-3 * min(1.0, i / 20) for i in range(rows)]
    found = [
        Logged("train/loss", steps, [round(v, digits) for v in loss], by="wandb"),
        Logged("train/grad_norm", steps, [round(v, digits) for v in norm], by="wandb"),
        Logged("train/lr", steps, rate, by="wandb"),
        Logged("eval/loss", steps[::10], loss[::10], by="wandb"),
        *(s for s in logged(by="probes", loss=loss, grad_norm_local=norm, lr=rate) if every == 1),
    ]
    assert [f.text for f in check(found).findings if f.severity != "note"] == []
    assert [f.text for f in check(found).findings if digits > 3 and noise > 0.01] == []


def test_every_finding_carries_its_rule_and_is_a_record() -> None:
    found = [*logged(loss=falling(60), grad_norm=[0.0] * 60)]
    (only,) = check(found).findings
    line = only.model_dump_json()
    assert schemas.Finding.model_validate_json(line) == only
    assert {"rank", "rows", "least", "first_step"} <= set(only.values)


def test_what_there_is_no_time_for_is_named() -> None:
    health = check(logged(loss=falling(60), grad_norm=[0.0] * 60), go_on=lambda: False)
    assert (health.findings, health.not_judged) == (
        [],
        ["wandb: loss of rank 0", "wandb: grad_norm of rank 0"],
    )
