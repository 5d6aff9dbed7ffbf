"""Loss scales, random numbers, data and weights that public runs did not get back on resume."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from . import said
from .loop import CONFIG, Loop, Net, Silent, attach, first, ledger, resume

# -- the loss scale


def test_a_loss_scale_that_is_lost_is_named_with_both_values(tmp_path: Path, prints: said.Prints) -> None:
    """transformers#11323, #34053; composer#1376, tango#154, fairseq2#1346, torchtitan#146, detectron2#3686."""
    checkpoint = first(tmp_path, Loop(scaler=True))
    again = Loop(scaler=True).load(checkpoint, without=("scaler",))
    again.scaler = torch.amp.GradScaler("cpu")  # as a new process makes it: 65536
    found = resume(tmp_path, again, checkpoint)
    scaler = said.component(found, "grad_scaler")
    assert scaler.status == "differs"
    assert "scale 256 -> 65536" in scaler.text
    assert "not restored: gradient scaler state" in prints("resume", found)
    assert "scale 256 -> 65536" in prints("show", found)


def test_a_scaler_that_a_load_stepped_once_is_named(tmp_path: Path, prints: said.Prints) -> None:
    """accelerate#4289: FSDP2's load makes a dummy step, and the scaler counts it."""
    checkpoint = first(tmp_path, Loop(scaler=True))
    again = Loop(scaler=True).load(checkpoint)
    assert again.scaler is not None
    state = again.scaler.state_dict()
    again.scaler.load_state_dict({**state, "_growth_tracker": state["_growth_tracker"] + 1})
    found = resume(tmp_path, again, checkpoint)
    assert said.component(found, "grad_scaler").status == "differs"
    assert "_growth_tracker 12 -> 13" in prints("show", found)


def test_a_loss_scale_that_came_back_is_not_named(tmp_path: Path, prints: said.Prints) -> None:
    checkpoint = first(tmp_path, Loop(scaler=True), more=4)
    said.nothing_is_named(resume(tmp_path, Loop(scaler=True).load(checkpoint), checkpoint), prints)


# -- random numbers


def _forgotten() -> None:
    """transformers#17032: states were not restored."""


def _seeded_again() -> None:
    """ms-swift#9935: the restored state is overwritten by set_seed."""
    torch.manual_seed(42)


def _one_more_draw() -> None:
    """Megatron-Bridge#5257: one draw more before the first batch."""
    torch.rand(1)


def _batches_first() -> None:
    """transformers#39215: batches were fetched, and augmented, before the state was put back; here after it."""
    torch.rand(3, 4)


@pytest.mark.parametrize("fault", [_forgotten, _seeded_again, _one_more_draw, _batches_first])
def test_random_numbers_that_did_not_come_back_are_named(
    tmp_path: Path, prints: said.Prints, fault: Any
) -> None:
    """As each of the four reports has it."""
    checkpoint = first(tmp_path, Loop())
    torch.manual_seed(7)
    again = Loop(seed=7).load(checkpoint, without=("rng",) if fault is _forgotten else ())
    fault()
    found = resume(tmp_path, again, checkpoint)
    rng = said.component(found, "rng")
    assert rng.status == "differs"
    assert "(torch)" in rng.text
    assert set(said.changes(found)) <= {"rng", "seed"}
    assert "not restored: random-number state" in prints("resume", found)
    status = {c.claim: c.status for c in said.newest(found, "verdict").claims}
    assert (status["bitwise"], status["loss_curve"]) == ("broken", "caveat")


@pytest.mark.parametrize("kind", ["python", "numpy"])
def test_the_generator_that_did_not_come_back_is_named(
    tmp_path: Path, prints: said.Prints, kind: str
) -> None:
    """Augmentation draws from Python's and NumPy's generators; torch's alone was saved."""
    kept, kept_numpy = random.getstate(), np.random.get_state()
    draw = random.random if kind == "python" else np.random.rand
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        draw()
        loop.run(rec, 12)
        rec.checkpoint(loop.save(tmp_path / "saved"), step=12)
    draw()
    found = resume(tmp_path, Loop().load(tmp_path / "saved"), tmp_path / "saved")
    random.setstate(kept)
    np.random.set_state(kept_numpy)
    assert said.component(found, "rng").status == "differs"
    assert f"({kind})" in prints("show", found)


# -- data


def _from_the_start(loader: Any) -> None:
    """Lightning#1182, #5325, #18780, #19764; prime-diloco#97; KempnerForge#51; accelerate#3747: it begins anew."""
    loader.position, loader.epoch = 0, 0


def _order_of_epoch_0(loader: Any) -> None:
    """TorchSpec#43; accelerate PR 4071: the epoch of the sampler is 0 again, so its first order comes back."""
    loader.epoch = 0


@pytest.mark.parametrize("fault", [_from_the_start, _order_of_epoch_0])
def test_data_that_is_read_again_is_named_with_the_step_that_read_it_first(
    tmp_path: Path, prints: said.Prints, fault: Any
) -> None:
    """A plain loader keeps no position: the batches themselves tell."""
    checkpoint = first(tmp_path, Loop(loader=Silent()), steps=24, more=4)
    again = Loop(loader=Silent()).load(checkpoint)
    fault(again.loader)
    found = resume(tmp_path, again, checkpoint)
    step = 1 if fault is _from_the_start else 5
    change = said.changes(found)["loader_position"]
    assert change.text == f"the batch of step 25 is the one that step {step} had: data is read again"
    shown = prints("show", found)
    assert change.text in shown
    assert "BROKEN" in shown
    assert change.text in prints("resume", found)


def test_a_position_that_a_loader_tells_is_named_with_both_values(
    tmp_path: Path, prints: said.Prints
) -> None:
    """The same with a loader that has a state_dict."""
    checkpoint = first(tmp_path, Loop(), steps=24)
    found = resume(tmp_path, Loop().load(checkpoint, without=("loader",)), checkpoint)
    loader = said.component(found, "loader_position")
    assert loader.status == "differs"
    assert "epoch 1 -> 0, position 4 -> 0" in loader.text
    assert "not restored: data-loader position" in prints("resume", found)


@pytest.mark.parametrize("by", [1, 2])
def test_batches_that_a_resume_skipped_are_named_with_their_number(
    tmp_path: Path, prints: said.Prints, by: int
) -> None:
    """accelerate PR 3034: skip_first_batches was off by one batch."""
    checkpoint = first(tmp_path, Loop(loader=Silent()), more=4)
    again = Loop(loader=Silent()).load(checkpoint)
    again.loader.position += by
    found = resume(tmp_path, again, checkpoint)
    text = f"the batch of step 13 is the one that step {13 + by} had on the other branch: {by} skipped"
    assert text in said.changes(found)["batch_skip"].text
    assert text in prints("show", found)
    assert text in prints("resume", found)


def test_a_plain_loader_that_goes_on_is_not_named(tmp_path: Path) -> None:
    checkpoint = first(tmp_path, Loop(loader=Silent()), steps=24, more=4)
    found = resume(tmp_path, Loop(loader=Silent()).load(checkpoint), checkpoint)
    assert said.changes(found) == {}
    assert "loader_position" not in said.newest(found, "drift").not_shown
    assert said.findings(found) == []


# -- weights


def test_a_tied_head_that_was_dropped_is_named_with_its_tie(tmp_path: Path, prints: said.Prints) -> None:
    """NeMo Automodel#2571, #2511; verl#7834: saved without the head, loaded with strict=False, and random since."""
    checkpoint = first(tmp_path, Loop(net=Net(tied=True)))
    again = Loop(net=Net(tied=False))
    held = torch.load(checkpoint / "state.pt", weights_only=True)
    del held["model"]["head.weight"]
    missing = again.net.load_state_dict(held["model"], strict=False).missing_keys
    assert missing == ["head.weight"]
    again.load(checkpoint, without=("model", "optimizer"))
    found = resume(tmp_path, again, checkpoint)
    weights = [
        c.text
        for r in found.of("restore", found.segments[-1].uid)
        for c in r.payload.components
        if c.component == "weights"
    ]
    assert any("embed.weight = head.weight" in text for text in weights)
    text = prints("resume", found)
    assert "tied before: embed.weight = head.weight; tied now: none" in text
    assert "head.weight" in text
    assert "BROKEN" in prints("verdict", found)


def test_weights_that_no_file_held_are_named_one_by_one(tmp_path: Path, prints: said.Prints) -> None:
    """pytorch#141256, #126881: strict=False says nothing of keys that are not there."""
    checkpoint = first(tmp_path, Loop())
    again = Loop(seed=5).load(checkpoint, without=("model",))
    held = torch.load(checkpoint / "state.pt", weights_only=True)["model"]
    del held["inner.weight"], held["inner.bias"]
    again.net.load_state_dict(held, strict=False)
    found = resume(tmp_path, again, checkpoint)
    weights = said.component(found, "weights")
    assert weights.status == "differs"
    assert "2 of 6 tensors" in weights.text
    text = prints("resume", found)
    assert "inner.bias, inner.weight" in text
    assert "norm.weight" not in text


def test_weights_of_an_earlier_save_are_named_with_its_step(tmp_path: Path, prints: said.Prints) -> None:
    """torchtitan#1136: a stale cached state dict was saved, so the weights were those of the save before."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.run(rec, 6)
        stale = loop.save(tmp_path / "six")
        rec.checkpoint(stale, step=6)
        loop.run(rec, 12)
        checkpoint = loop.save(tmp_path / "twelve")
        held = torch.load(checkpoint / "state.pt", weights_only=True)
        held["model"] = torch.load(stale / "state.pt", weights_only=True)["model"]
        torch.save(held, checkpoint / "state.pt")
        rec.checkpoint(checkpoint, step=12)
    found = resume(tmp_path, Loop().load(checkpoint), checkpoint)
    assert said.component(found, "weights").status == "differs"
    (mixed,) = said.findings(found, "LIN-C008")
    assert mixed.names == ["weights"]
    assert "went on from the save of step 6, and step 12 was named: model weights" in prints("resume", found)


# -- the moment of a save, and the choice of one


def test_a_save_at_another_moment_than_its_step_says_is_named_with_the_counter(
    tmp_path: Path, prints: said.Prints
) -> None:
    """Lightning#20953, torchtitan#930: saved before the step counter was increased."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.run(rec, 6)
        rec.checkpoint(loop.save(tmp_path / "early"), step=5)
        loop.run(rec, 14)
        rec.checkpoint(loop.save(tmp_path / "right"), step=14)
    found = ledger(tmp_path)
    (save,) = said.findings(found, "LIN-C022")
    assert (said.number(save, "first_step"), said.number(save, "counter"), said.number(save, "off")) == (
        5,
        6,
        1,
    )
    assert (
        "the save of step 5 holds the optimizer's state 1 update after that step: its counter is 6"
        in prints("show", found)
    )


def test_updates_that_a_scaler_skipped_do_not_make_a_save_odd(tmp_path: Path) -> None:
    """The optimizer's counter is below the step then, as it should be."""

    class Overflows(Loop):
        def update(self, loss: torch.Tensor) -> None:
            super().update(loss * float("inf") if self.done == 3 else loss)

    first(tmp_path, Overflows(scaler=True), steps=12)
    assert said.findings(ledger(tmp_path), "LIN-C022") == []


def test_the_latest_save_that_was_looked_for_by_its_name_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """transformers#27138: checkpoint-9 sorts after checkpoint-10."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        for step in (9, 10):
            loop.run(rec, step)
            rec.checkpoint(loop.save(tmp_path / f"checkpoint-{step}"), step=step)
    latest = sorted(tmp_path.glob("checkpoint-*"))[-1]
    found = resume(tmp_path, Loop().load(latest), latest)
    (passed,) = said.findings(found, "LIN-C023")
    assert (said.number(passed, "taken"), said.number(passed, "newest")) == (9, 10)
    text = prints("show", found)
    assert "resumed from the save of step 9, though that of step 10 is complete" in text
    assert "by the order of text checkpoint-9 comes after checkpoint-10" in text


def test_a_resume_from_the_latest_save_passes_nothing_over(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        for step in (9, 10):
            loop.run(rec, step)
            rec.checkpoint(loop.save(tmp_path / f"checkpoint-{step}"), step=step)
    latest = tmp_path / "checkpoint-10"
    assert said.findings(resume(tmp_path, Loop().load(latest), latest)) == []


def test_going_back_with_a_reason_is_not_said_to_pass_anything_over(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        for step in (8, 12):
            loop.run(rec, step)
            rec.checkpoint(loop.save(tmp_path / f"checkpoint-{step}"), step=step)
    earlier = tmp_path / "checkpoint-8"
    again = Loop(lr=1e-3).load(earlier)
    with attach(again, tmp_path / "runs", config=CONFIG, resumed_from=earlier) as rec:
        rec.mitigate("batch_skip", after=1, why="a bad batch")
        next(again.loader)
        again.run(rec, 11)
    assert said.findings(ledger(tmp_path), "LIN-C023") == []
