"""Optimizer state that public runs lost on resume: never saved, half restored, of another step, of other tensors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from . import said
from .loop import CONFIG, Loop, Net, attach, first, ledger, resume, usual_groups


def rates_of(loop: Loop) -> None:
    """Give a new optimizer the rates at which its scheduler stands, as loops do that load the scheduler alone."""
    for group, rate in zip(loop.optimizer.param_groups, loop.scheduler._last_lr, strict=True):
        group["lr"] = rate


@pytest.mark.parametrize("kind", ["plain", "tied", "batch norm", "without a schedule"])
def test_nothing_is_named_when_all_is_restored(tmp_path: Path, prints: said.Prints, kind: str) -> None:
    def loop() -> Loop:
        net = Net(tied=kind == "tied", batch_norm=kind == "batch norm")
        return Loop(net=net, total=None if kind == "without a schedule" else 1000)

    made = loop()
    checkpoint = first(tmp_path, made, more=4)
    again = loop().load(checkpoint)
    found = resume(tmp_path, again, checkpoint)
    if made.scheduler is not None:
        said.nothing_is_named(found, prints)
    else:
        assert said.changes(found) == {}
        assert said.findings(found) == []


@pytest.mark.parametrize("where", ["save", "load"])
def test_an_optimizer_state_that_is_lost_is_named_with_its_tensors_and_its_step(
    tmp_path: Path, prints: said.Prints, where: str
) -> None:
    """OneVision-Encoder#65 never saved it; AReaL#1468 and Megatron-LM#1842 dropped it on the way back."""
    lost = ("optimizer",)
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.run(rec, 12)
        checkpoint = loop.save(tmp_path / "saved", without=lost if where == "save" else ())
        rec.checkpoint(checkpoint, step=12)
    again = Loop().load(checkpoint, without=lost if where == "load" else ())
    rates_of(again)
    found = resume(tmp_path, again, checkpoint)
    state, counter = (said.component(found, c) for c in ("optimizer_state", "optimizer_step"))
    assert state.status == "absent"
    assert "12 of 12 tensors are not there" in state.text or "tensors 12 -> 0" in state.text
    assert counter.status == "differs"
    assert "step 12 -> 0" in counter.text
    assert set(said.changes(found)) == {"optimizer_state"}
    text = prints("resume", found)
    assert "not restored: optimizer state, optimizer step counter" in text
    change = said.changes(found)["optimizer_state"]
    assert "step counter not as at the save (step 12 -> 0)" in change.text
    assert change.text in prints("show", found)
    assert "LIN-C003" in prints("verdict", found)


def test_moments_without_their_step_counter_are_named_with_how_many_times_too_large_the_first_update_is(
    tmp_path: Path, prints: said.Prints
) -> None:
    """DeepSpeed#1525 and #4396, Megatron-Bridge#3832: moments are kept and Adam's counter begins again."""
    checkpoint = first(tmp_path, Loop(total=None), steps=60, more=4, state_every=1)
    again = Loop(total=None).load(checkpoint)
    for state in again.optimizer.state.values():
        state["step"].zero_()
    found = resume(tmp_path, again, checkpoint, state_every=1)
    assert said.component(found, "optimizer_state").status == "restored"
    counter = said.component(found, "optimizer_step")
    assert counter.status == "differs"
    assert "step 60 -> 0" in counter.text
    (update,) = said.findings(found, "LIN-C013")
    assert said.number(update, "expected") == pytest.approx(2.283, abs=1e-3)  # 2.236 after many updates
    assert said.number(update, "ratio") == pytest.approx(2.283, rel=0.2)
    text = prints("resume", found)
    assert "optimizer step counter" in text
    assert "from 60 to 0 make it 2.28 times as large (betas 0.9, 0.95)" in text


def test_an_optimizer_of_an_earlier_save_than_the_weights_is_named_with_both_steps(
    tmp_path: Path, prints: said.Prints
) -> None:
    """NeMo-RL#4183: the optimizer's bytes in the checkpoint were older than the weights'."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.run(rec, 6)
        old = loop.save(tmp_path / "old")
        rec.checkpoint(old, step=6)
        loop.run(rec, 12)
        new = loop.save(tmp_path / "new")
        rec.checkpoint(new, step=12)
    again = Loop().load(new, without=("optimizer",))
    again.optimizer.load_state_dict(torch.load(old / "state.pt", weights_only=True)["optimizer"])
    rates_of(again)
    found = resume(tmp_path, again, new)
    (mixed,) = said.findings(found, "LIN-C008")
    assert (said.number(mixed, "step"), said.number(mixed, "named_step")) == (6, 12)
    assert "optimizer_state" in mixed.names
    assert "weights" not in mixed.names
    assert "went on from the save of step 6, and step 12 was named: optimizer state" in prints(
        "resume", found
    )


def test_an_optimizer_that_holds_none_of_the_models_parameters_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """accelerate#2665, #3256, #3209, Lightning#15301: built before the model was wrapped, and stale from then on."""
    checkpoint = first(tmp_path, Loop(), more=4)
    again = Loop().load(checkpoint)
    again.net = copy.deepcopy(again.net)
    before = [p.clone() for p in again.net.parameters()]
    found = resume(tmp_path, again, checkpoint, steps=12)
    assert all(torch.equal(a, b) for a, b in zip(before, again.net.parameters(), strict=True))
    (stale,) = said.findings(found, "LIN-P002")
    (unheld,) = said.findings(found, "LIN-P001")
    assert (stale.count, unheld.count) == (6, 6)
    assert "embed.weight" in unheld.names
    assert said.component(found, "optimizer_state").status != "restored"
    text = prints("show", found)
    assert "6 held by the optimizer and no part of the model" in text
    assert "of the model it holds 0 of 6" in text
    assert text.count("LIN-P002") == 1
    assert "of the model it holds 0 of 6" in prints("resume", found)


class StandingStill(torch.optim.AdamW):
    """An AdamW whose counter is never advanced, with an option that keeps that for the sake of older runs."""

    def __init__(self, *args: Any, bugfix: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        for group in self.param_groups:
            group["step_increment_bugfix"] = bugfix

    def step(self, closure: Any = None) -> Any:
        out = super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if not group["step_increment_bugfix"]:
                    self.state[p]["step"].zero_()
        return out


class Mended(StandingStill):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, bugfix=True, **options)


Mended.__qualname__ = StandingStill.__qualname__  # one class with an option, as it is released


def test_a_step_counter_that_stands_still_is_named(tmp_path: Path, prints: said.Prints) -> None:
    """OLMo-core#309: SkipStepAdamW never advanced its step."""
    first(tmp_path, Loop(optimizer=StandingStill), steps=24)
    found = ledger(tmp_path)
    (still,) = said.findings(found, "LIN-C021")
    assert (said.number(still, "counter"), said.number(still, "updates")) == (0, 20)
    assert (
        "the step counter stands at 0 from step 1 to step 21, while 20 updates moved the weights"
        in prints("show", found)
    )


def test_the_option_that_keeps_the_standing_counter_is_part_of_the_regime(
    tmp_path: Path, prints: said.Prints
) -> None:
    """Runs with and without it are not comparable; with it on both sides nothing is said."""
    checkpoint = first(tmp_path, Loop(optimizer=StandingStill), steps=12)
    again = Loop(optimizer=Mended).load(checkpoint)
    for group in again.optimizer.param_groups:
        group["step_increment_bugfix"] = True
    found = resume(tmp_path, again, checkpoint)
    change = said.changes(found)["optimizer.step_increment_bugfix"]
    assert (change.cls, change.effective_before.plain(), change.effective_after.plain()) == ("R", False, True)  # type: ignore[union-attr]
    assert "optimizer.step_increment_bugfix False -> True" in prints("show", found)
    regimes = found.of("regime")
    assert regimes[0].payload.id != regimes[-1].payload.id


def test_nothing_is_said_of_a_counter_that_follows(tmp_path: Path) -> None:
    first(tmp_path, Loop(optimizer=Mended), steps=24)
    assert said.findings(ledger(tmp_path)) == []


# -- parameter groups


def class_alias_groups(net: torch.nn.Module) -> Any:
    """Norms are sought by a class that the model does not use, so they land among what decays."""
    no_decay = {n for n, _ in net.named_parameters() if n.endswith("bias") and not n.startswith("norm")}
    named = list(net.named_parameters())
    return [
        {"params": [p for n, p in named if n not in no_decay], "weight_decay": 0.1},
        {"params": [p for n, p in named if n in no_decay], "weight_decay": 0.0},
    ]


def test_a_norm_that_moved_to_the_group_with_weight_decay_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """BigScience tr11-176B, main-8: a class alias put layer norms into the weight-decay group."""
    checkpoint = first(tmp_path, Loop(), steps=8)
    again = Loop(groups=class_alias_groups).load(checkpoint, without=("optimizer",))
    rates_of(again)
    found = resume(tmp_path, again, checkpoint)
    text = said.changes(found)["param_groups"].text
    assert "norm.weight from group 1 to group 0 (weight decay 0 -> 0.1)" in text
    assert "inner.bias" not in text
    (decayed,) = said.findings(found, "LIN-P005")
    assert decayed.names == ["norm.weight", "norm.bias"]
    assert text in prints("show", found)


def test_two_runs_whose_groups_have_other_members_are_told_apart(tmp_path: Path, prints: said.Prints) -> None:
    """The same between two runs that never knew each other: `lineage diff A B`."""
    for name, groups in (("usual", usual_groups), ("alias", class_alias_groups)):
        loop = Loop(groups=groups)
        with attach(loop, tmp_path / "runs", run_id=name, config=CONFIG) as rec:
            loop.run(rec, 3)
    from lineage.ledger.reader import Ledger

    a, b = (Ledger(tmp_path / "runs" / name) for name in ("usual", "alias"))
    text = prints("diff", a, str(b.path))
    assert "norm.weight" in text
    assert "param" in text


# -- copies of the weights in higher precision


class Masters(Loop):
    """bf16 weights, and an optimizer that updates float32 copies of them, as Apex's O2 does."""

    def __init__(self) -> None:
        super().__init__(total=None, net=Net().to(torch.bfloat16))
        self.masters = [p.detach().float().requires_grad_() for p in self.net.parameters()]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)

    def update(self, loss: torch.Tensor) -> None:
        self.net.zero_grad()
        loss.backward()
        for master, p in zip(self.masters, self.net.parameters(), strict=True):
            assert p.grad is not None
            master.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.down()

    def down(self) -> None:
        with torch.no_grad():
            for master, p in zip(self.masters, self.net.parameters(), strict=True):
                p.copy_(master)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "masters": [m.detach() for m in self.masters]}

    def load(self, folder: Path, *, without: tuple[str, ...] = ()) -> Loop:
        super().load(folder, without=without)
        held = torch.load(folder / "state.pt", weights_only=True)
        with torch.no_grad():
            for n, (master, p) in enumerate(zip(self.masters, self.net.parameters(), strict=True)):
                master.copy_(held["masters"][n] if "masters" not in without else p)
        return self


def test_float32_masters_rebuilt_from_bf16_weights_are_named(tmp_path: Path, prints: said.Prints) -> None:
    """apex#180: the masters were not in the checkpoint; weights are equal, and the first loss is."""
    checkpoint = first(tmp_path, Masters())
    found = resume(tmp_path, Masters().load(checkpoint, without=("masters",)), checkpoint)
    assert said.component(found, "weights").status == "restored"
    assert said.component(found, "optimizer_state").status == "restored"
    masters = said.component(found, "master_weights")
    assert masters.status == "differs"
    assert "master_weights" in said.changes(found)
    assert "not restored: " in prints("resume", found)
    assert masters.text in prints("show", found)


def test_masters_that_came_back_are_not_named(tmp_path: Path, prints: said.Prints) -> None:
    checkpoint = first(tmp_path, Masters())
    found = resume(tmp_path, Masters().load(checkpoint), checkpoint)
    assert said.component(found, "master_weights").status == "restored"
    assert said.changes(found) == {}
    assert [f.text for f in said.findings(found)] == []
