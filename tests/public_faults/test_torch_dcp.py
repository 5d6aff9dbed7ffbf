"""Faults of torch.distributed.checkpoint and its state-dict helpers that still exist, in the real library.

Each test first shows that this torch still does it; where it does not any more, the test says so by failing there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from . import said
from .loop import Loop, linear_decay, resume
from .loop import attach as attach_to

TOTAL = 100


class Distributed(Loop):
    """The same loop, saved and loaded by torch.distributed.checkpoint, in one process."""

    def save(self, folder: Path, *, without: tuple[str, ...] = ()) -> Path:
        dcp.save(self._held(), checkpoint_id=folder / "dcp")
        torch.save(
            {k: v for k, v in super().state().items() if k not in ("model", "optimizer")}, folder / "rest.pt"
        )
        return folder

    def _held(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.net),
            "optimizer": get_optimizer_state_dict(self.net, self.optimizer),
        }

    def load(self, folder: Path, *, without: tuple[str, ...] = ()) -> Loop:
        held = {k: v for k, v in self._held().items() if k not in without}
        dcp.load(held, checkpoint_id=folder / "dcp")
        if "model" in held:
            set_model_state_dict(self.net, held["model"])
        if "optimizer" in held:
            set_optimizer_state_dict(self.net, self.optimizer, held["optimizer"])
        rest = torch.load(folder / "rest.pt", weights_only=True)
        if self.scheduler is not None and "scheduler" not in without:
            self.scheduler.load_state_dict(rest["scheduler"])
        self.loader.load_state_dict(rest["loader"])
        torch.set_rng_state(rest["rng"])
        self.done = int(rest["step"])
        return self


def saved(root: Path, loop: Distributed) -> Path:
    """Twelve steps, and a save."""
    folder = root / "saved"
    with attach_to(loop, root / "runs") as rec:
        loop.run(rec, 12)
        rec.checkpoint(loop.save(folder), step=12)
        loop.run(rec, 16)
    return folder


def test_nothing_is_named_when_all_came_back(tmp_path: Path, prints: said.Prints) -> None:
    folder = saved(tmp_path, Distributed(total=TOTAL))
    found = resume(tmp_path, Distributed(total=TOTAL).load(folder), folder)
    said.nothing_is_named(found, prints)


def test_an_optimizer_that_came_back_empty_because_gradients_were_set_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """pytorch#140898: with gradients at hand the helper makes no state, and the load fills none."""
    folder = saved(tmp_path, Distributed(total=None))
    again = Distributed(total=None)
    again.loss(next(again.loader)).backward()  # as after a sanity check
    again.load(folder)
    assert len(again.optimizer.state) == 0
    again.optimizer.zero_grad()
    found = resume(tmp_path, again, folder)
    assert said.component(found, "optimizer_state").status == "absent"
    text = prints("resume", found)
    assert "not restored: optimizer state, optimizer step counter" in text
    assert "BROKEN" in prints("show", found)


def test_the_state_of_frozen_parameters_that_the_load_dropped_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """pytorch#192202: moments of parameters that are frozen for a while are in the checkpoint, and not loaded."""
    first = Distributed(total=None)
    folder = tmp_path / "saved"
    with attach_to(first, tmp_path / "runs") as rec:
        first.run(rec, 8)
        first.net.inner.requires_grad_(False)  # type: ignore[union-attr]
        first.run(rec, 12)
        rec.checkpoint(first.save(folder), step=12)
    again = Distributed(total=None)
    again.net.inner.requires_grad_(False)  # type: ignore[union-attr]
    again.load(folder)
    assert len(again.optimizer.state) < len(first.optimizer.state)
    found = resume(tmp_path, again, folder)
    state = said.component(found, "optimizer_state")
    assert state.status in ("absent", "differs")
    assert "4 of 12 tensors" in state.text or "tensors 12 -> 8" in state.text
    text = prints("resume", found)
    assert "not restored: optimizer state" in text
    assert "inner.weight.moment1" in text


def test_a_peak_that_was_lost_with_initial_lr_is_named(tmp_path: Path, prints: said.Prints) -> None:
    """pytorch#140900: a group that had no initial_lr when it was loaded has none afterwards."""
    folder = saved(tmp_path, Distributed(total=TOTAL))
    again = Distributed(total=None)
    again.load(folder)
    assert all("initial_lr" not in g for g in again.optimizer.param_groups)
    again.scheduler = torch.optim.lr_scheduler.LambdaLR(again.optimizer, linear_decay(TOTAL))
    found = resume(tmp_path, again, folder)
    change = said.changes(found)["learning_rate"]
    assert change.effective_before is not None
    assert change.effective_after is not None
    assert change.effective_before.plain() == 1e-3
    assert change.effective_after.plain() == 1e-3 * (1 - 12 / TOTAL)
    assert said.component(found, "lr_scheduler").status == "differs"
    assert "last_epoch 12 -> 0" in prints("show", found)


def test_weights_that_the_target_did_not_ask_for_are_named(tmp_path: Path, prints: said.Prints) -> None:
    """pytorch#126881: what the target's state dict lacks is left out of the load without a word."""
    folder = saved(tmp_path, Distributed(total=None))
    again = Distributed(total=None, seed=5)
    asked = {"model": {k: v for k, v in get_model_state_dict(again.net).items() if not k.startswith("inner")}}
    dcp.load(asked, checkpoint_id=folder / "dcp")
    again.load(folder, without=("model",))
    found = resume(tmp_path, again, folder)
    weights = said.component(found, "weights")
    assert weights.status == "differs"
    assert "2 of 6 tensors" in weights.text
    assert "inner.bias, inner.weight" in prints("resume", found)
