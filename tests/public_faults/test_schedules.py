"""Learning rates and optimizer settings that a resume, a config or a flag was believed to set, and did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from . import said
from .loop import CONFIG, Loop, attach, first, ledger, resume, usual_groups


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_rate_in_the_new_config_that_the_checkpoint_overrides_is_named_with_both(
    tmp_path: Path, prints: said.Prints, scheduled: bool
) -> None:
    """OpenNMT-py#1911: the config asks for 5e-4, and load_state_dict puts 1e-3 back."""
    total = 1000 if scheduled else None
    checkpoint = first(tmp_path, Loop(total=total))
    again = Loop(lr=5e-4, total=total).load(checkpoint)
    found = resume(tmp_path, again, checkpoint, steps=22, config={**CONFIG, "learning_rate": 5e-4})
    change = said.changes(found)["learning_rate"]
    assert (change.requested_after.plain(), change.effective_after.plain()) == (5e-4, 1e-3)  # type: ignore[union-attr]
    assert "learning_rate requested 0.001 -> 0.0005, not in effect" in prints("show", found)
    assert "not in effect" in prints("diff", found)
    assert "the config asks for other values than are in effect" in prints("resume", found)
    (peak,) = said.findings(found, "LIN-D005")
    assert said.number(peak, "requested") == 5e-4
    assert said.number(peak, "ratio") == pytest.approx(2.0, rel=0.03)
    assert "LIN-D005" in prints("check", found)


def test_the_rate_of_the_new_config_that_is_in_effect_is_a_change_and_no_contradiction(
    tmp_path: Path,
) -> None:
    checkpoint = first(tmp_path, Loop())
    again = Loop(lr=5e-4).load(checkpoint, without=("optimizer", "scheduler"))
    again.optimizer.load_state_dict(torch.load(checkpoint / "state.pt", weights_only=True)["optimizer"])
    for group in again.optimizer.param_groups:
        group["lr"] = group["initial_lr"] = 5e-4
    found = resume(tmp_path, again, checkpoint, config={**CONFIG, "learning_rate": 5e-4})
    assert "not in effect" not in said.changes(found)["learning_rate"].text
    assert said.findings(found, "LIN-D005") == []


def test_betas_that_were_declared_and_put_back_by_the_load_are_named_as_not_in_effect(
    tmp_path: Path, prints: said.Prints
) -> None:
    """metaseq, OPT chronicles at 27 percent: what was believed to be plain SGD ran with the betas of before."""
    checkpoint = first(tmp_path, Loop())
    again = Loop(betas=(0.0, 0.95), eps=1.0).load(checkpoint)
    with attach(again, tmp_path / "runs", config=CONFIG, resumed_from=checkpoint) as rec:
        rec.mitigate("betas", before=[0.9, 0.95], after=[0.0, 0.95], why="updates like those of SGD")
        rec.mitigate("eps", before=1e-8, after=1.0, why="updates like those of SGD")
        again.run(rec, 16)
    found = ledger(tmp_path)
    said_of = {f.subject: f for f in said.findings(found, "LIN-D003")}
    assert set(said_of) == {"betas", "eps"}
    effects = [r.payload for r in found.of("mitigation_effect")]
    assert {e.in_effect for e in effects} == {"no"}
    text = prints("verdict", found)
    assert "[0, 0.95] was declared, optimizer.param_groups[*]['betas'] holds [0.9, 0.95]" in text
    assert "1 was declared, optimizer.param_groups[*]['eps'] holds 1e-08" in text


def test_betas_that_were_declared_and_hold_are_named_as_in_effect(tmp_path: Path) -> None:
    checkpoint = first(tmp_path, Loop())
    again = Loop(betas=(0.0, 0.95)).load(checkpoint)
    for group in again.optimizer.param_groups:
        group["betas"] = (0.0, 0.95)
    with attach(again, tmp_path / "runs", config=CONFIG, resumed_from=checkpoint) as rec:
        rec.mitigate("betas", before=[0.9, 0.95], after=[0.0, 0.95], why="updates like those of SGD")
        again.run(rec, 16)
    found = ledger(tmp_path)
    assert said.findings(found, "LIN-D003") == []
    assert found.of("mitigation_effect")[0].payload.in_effect == "yes"


@pytest.mark.parametrize("key", ["max_steps", "train_iters"])
def test_another_horizon_at_a_resume_is_named_with_the_rates_at_one_step_and_the_key_that_asks_for_it(
    tmp_path: Path, prints: said.Prints, key: str
) -> None:
    """fairseq#2018; transformers#24656, #25865, #27710: 1,000 updates became 2,000, and so the rate of each step."""
    checkpoint = first(tmp_path, Loop(), config={**CONFIG, key: 1000})
    found = resume(tmp_path, Loop(total=2000).load(checkpoint), checkpoint, config={**CONFIG, key: 2000})
    assert set(said.changes(found)) == {"horizon", "lr_schedule"}
    text = prints("show", found)
    assert f"{key} requested 1000 -> 2000" in text
    change = said.changes(found)["lr_schedule"]
    assert "0.000987, 0.000987 at step 13" in change.effective_before.text()  # type: ignore[union-attr]
    assert "0.0009935, 0.0009935 at step 13" in change.effective_after.text()  # type: ignore[union-attr]
    assert "learning-rate schedule" in prints("diff", found)
    assert "BROKEN" in prints("verdict", found)


def test_a_horizon_that_is_asked_for_and_does_not_move_the_rate_alters_nothing(tmp_path: Path) -> None:
    """A constant schedule under a longer run: operational."""
    constant: dict[str, Any] = {"total": None}
    checkpoint = first(tmp_path, Loop(**constant), config={**CONFIG, "max_steps": 1000})
    found = resume(
        tmp_path, Loop(**constant).load(checkpoint), checkpoint, config={**CONFIG, "max_steps": 2000}
    )
    assert "lr_schedule" not in said.changes(found)


def test_a_peak_that_the_config_does_not_ask_for_is_named_with_their_ratio(
    tmp_path: Path, prints: said.Prints
) -> None:
    """OLMo-core#481: the release script says 4.14e-4, and the run had its peak at 2.07e-4."""
    first(tmp_path, _warmed_up(2.07e-4), config={**CONFIG, "learning_rate": 4.14e-4})
    found = ledger(tmp_path)
    (peak,) = said.findings(found, "LIN-D005")
    assert (said.number(peak, "peak"), said.number(peak, "ratio")) == (2.07e-4, 0.5)
    text = prints("check", found)
    assert (
        "learning_rate asks for 0.000414, and the rate in effect has its peak at 0.000207 (step 5): 0.5 times"
        in text
    )
    assert "LIN-D005" in prints("show", found)


def test_nothing_is_said_of_a_peak_that_is_asked_for_nor_of_one_that_is_still_to_come(tmp_path: Path) -> None:
    first(tmp_path, _warmed_up(4.14e-4), config={**CONFIG, "learning_rate": 4.14e-4})
    assert said.findings(ledger(tmp_path)) == []
    rising = Loop(lr=4.14e-4, total=None)
    rising.scheduler = torch.optim.lr_scheduler.LambdaLR(rising.optimizer, lambda n: (n + 1) / 5000)
    first(tmp_path / "rising", rising, config={**CONFIG, "learning_rate": 4.14e-4})
    assert said.findings(ledger(tmp_path / "rising")) == []


def _warmed_up(lr: float) -> Loop:
    loop = Loop(lr=lr, total=None)
    loop.scheduler = torch.optim.lr_scheduler.LambdaLR(loop.optimizer, lambda n: min(1.0, (n + 1) / 5))
    return loop


def test_a_scheduler_that_moves_another_optimizer_is_named_with_both_rates(
    tmp_path: Path, prints: said.Prints
) -> None:
    """DeepSpeed#4344, gpt-neox#1029: after a resume the scheduler held groups that nothing stepped with."""
    checkpoint = first(tmp_path, Loop(total=20), steps=8)
    again = Loop(total=20).load(checkpoint)
    held = torch.load(checkpoint / "state.pt", weights_only=True)["optimizer"]
    again.optimizer = torch.optim.AdamW(usual_groups(again.net), lr=1e-3, betas=(0.9, 0.95))
    again.optimizer.load_state_dict(held)
    found = resume(tmp_path, again, checkpoint, steps=6)
    (other,) = said.findings(found, "LIN-C020")
    assert said.number(other, "optimizer_lr") == pytest.approx(6e-4)
    assert said.number(other, "scheduler_lr") == pytest.approx(4.5e-4)
    assert (said.number(other, "first_step"), said.number(other, "last_step")) == (10, 12)
    text = prints("show", found)
    assert "at step 12 the scheduler says 0.00045 and the optimizer uses 0.0006" in text
    assert "BROKEN" in prints("verdict", found)


def test_a_scheduler_that_moves_the_optimizer_that_steps_is_not_named(tmp_path: Path) -> None:
    checkpoint = first(tmp_path, Loop(total=20), steps=8)
    found = resume(tmp_path, Loop(total=20).load(checkpoint), checkpoint, steps=6)
    assert said.findings(found) == []
    assert said.changes(found) == {}


def test_a_schedule_that_begins_again_is_named_with_its_counter_and_its_rate(
    tmp_path: Path, prints: said.Prints
) -> None:
    """Lightning#1772, #5486, PR 11322; DeepSpeed#3875: the scheduler's state was not restored."""
    checkpoint = first(tmp_path, Loop(total=100))
    again = Loop(total=100).load(checkpoint, without=("scheduler",))
    found = resume(tmp_path, again, checkpoint)
    scheduler = said.component(found, "lr_scheduler")
    assert scheduler.status == "differs"
    assert "last_epoch 12 -> 0" in scheduler.text
    text = prints("resume", found)
    assert "not restored: scheduler state" in text
    shown = prints("show", found)
    assert "last_epoch 12 -> 0" in shown
    assert "BROKEN" in shown


def _one_cycle() -> Loop:
    loop = Loop(total=None)
    loop.scheduler = torch.optim.lr_scheduler.OneCycleLR(loop.optimizer, max_lr=1e-3, total_steps=40)
    return loop


def test_a_one_cycle_schedule_that_begins_again_is_named(tmp_path: Path, prints: said.Prints) -> None:
    """Lightning#15462: OneCycleLR after a resume."""
    checkpoint = first(tmp_path, _one_cycle())
    found = resume(tmp_path, _one_cycle().load(checkpoint, without=("scheduler",)), checkpoint)
    assert said.component(found, "lr_scheduler").status == "differs"
    assert "lr_scheduler" in said.changes(found)
    assert "last_epoch 12 -> 0" in prints("show", found)


def test_a_one_cycle_schedule_that_goes_on_is_not_named(tmp_path: Path, prints: said.Prints) -> None:
    checkpoint = first(tmp_path, _one_cycle())
    said.nothing_is_named(resume(tmp_path, _one_cycle().load(checkpoint), checkpoint), prints)


def test_the_peak_that_a_new_schedule_took_from_the_loaded_rate_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """pytorch#140900: initial_lr did not come back, so the schedule decays from where the rate stood."""
    checkpoint = first(tmp_path, Loop(total=100))
    again = Loop(total=100).load(checkpoint, without=("scheduler",))
    for group in again.optimizer.param_groups:
        group.pop("initial_lr")
    again.scheduler = torch.optim.lr_scheduler.LambdaLR(again.optimizer, lambda n: 1.0 - n / 100)
    found = resume(tmp_path, again, checkpoint)
    change = said.changes(found)["learning_rate"]
    assert (change.effective_before.plain(), change.effective_after.plain()) == (1e-3, pytest.approx(8.8e-4))  # type: ignore[union-attr]
    assert "peak learning rate" in prints("show", found)


def test_weight_decay_that_came_from_the_constructor_is_named_with_both_values(
    tmp_path: Path, prints: said.Prints
) -> None:
    """NeMo Automodel PR 3883: the checkpoint's decay was replaced by the constructor's, and no config said so."""
    checkpoint = first(tmp_path, Loop())
    again = Loop().load(checkpoint)
    again.optimizer.param_groups[0]["weight_decay"] = 0.01
    found = resume(tmp_path, again, checkpoint)
    change = said.changes(found)["weight_decay"]
    assert (change.effective_before.plain(), change.effective_after.plain()) == ([0.1, 0.0], [0.01, 0.0])  # type: ignore[union-attr]
    assert set(said.changes(found)) == {"weight_decay"}
    assert "weight decay [0.1, 0] -> [0.01, 0], which no config key asks for" in prints("show", found)
