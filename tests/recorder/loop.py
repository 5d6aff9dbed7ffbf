"""A small real training loop for the recorder's tests: one process, a linear model, any habit on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lineage
from lineage.ledger.reader import Ledger


class Counted:
    """A loader with a position that can be saved."""

    def __init__(self, seed: int = 0) -> None:
        self.position, self.seed = 0, seed

    def __next__(self) -> dict[str, torch.Tensor]:
        g = torch.Generator().manual_seed(self.seed * 1000 + self.position)
        self.position += 1
        return {"x": torch.randn(4, 3, generator=g), "ids": torch.randint(0, 9, (4, 5), generator=g)}

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position, "seed": self.seed}

    def lineage_data(self) -> dict[str, str]:
        return {"data_mix": "noise", "data_order": f"seed {self.seed}"}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position, self.seed = state["position"], state["seed"]


class Plain(Counted):
    """The same batches from a loader that keeps no position."""

    def __getattribute__(self, name: str) -> Any:
        if name == "state_dict":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Loop:
    """Everything a loop holds, and the running of it."""

    def __init__(
        self,
        *,
        lr: float = 0.1,
        clip: float | None = 1.0,
        by_value: float | None = None,
        loader: Any = None,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, 20)
        self.loader = loader or Counted()
        self.clip, self.by_value = clip, by_value
        self.done = 0

    @property
    def objects(self) -> dict[str, Any]:
        """What is given to the layer."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "loader": self.loader,
        }

    def run(
        self, rec: Any, steps: int, *, before: Callable[[int], None] = lambda step: None, spoil: int = -1
    ) -> list[float]:
        """Train up to `steps` updates; `spoil` makes that step's loss NaN. Returns the losses."""
        losses = []
        for step in range(self.done + 1, steps + 1):
            batch = next(self.loader)
            before(step)
            with rec.step(step, batch) as st:
                loss = self.model(batch["x"]).pow(2).mean()
                if step == spoil:
                    loss = loss * float("nan")
                self.optimizer.zero_grad()
                loss.backward()
                if self.clip is not None:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                if self.by_value is not None:
                    torch.nn.utils.clip_grad_value_(self.model.parameters(), self.by_value)
                self.optimizer.step()
                self.scheduler.step()
                st.loss(loss)
            losses.append(loss.item())
            self.done = step
        return losses

    def save(self, folder: Path) -> Path:
        """Save everything."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "position": self.loader.position,
            "rng": torch.get_rng_state(),
            "step": self.done,
        }
        torch.save(state, folder / "state.pt")
        return folder

    def load(self, folder: Path, *, optimizer: bool = True, rng: bool = True, skip: int = 0) -> Loop:
        """Load what is asked for."""
        state = torch.load(folder / "state.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        if optimizer:
            self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.loader.position = state["position"] + skip
        if rng:
            torch.set_rng_state(state["rng"])
        self.done = int(state["step"])
        return self


def attach(loop: Loop, root: Path, **options: Any) -> lineage.Recorder:
    """Attach to a loop with a ledger folder of the test's own."""
    return lineage.attach(
        options.pop("run", None),
        dir=root,
        quiet=True,
        report=options.pop("report", False),
        **loop.objects,
        **options,
    )


def only(root: Path) -> Ledger:
    """The one ledger under a root."""
    found = [p for p in root.iterdir() if (p / "journal").is_dir()]
    assert len(found) == 1, found
    return Ledger(found[0])


def parent_run(root: Path, ck: Path, steps: int = 5, **options: Any) -> Ledger:
    """A first segment with one checkpoint at `steps`."""
    loop = Loop(**options)
    with attach(loop, root, config={"lr": 0.1, "clip": 1.0}) as rec:
        loop.run(rec, steps)
        rec.checkpoint(loop.save(ck), step=steps)
    return only(root)


def sidecar(ck: Path) -> dict[str, Any]:
    """A checkpoint's sidecar as JSON."""
    data: dict[str, Any] = json.loads((ck / "lineage.json").read_text())
    return data
