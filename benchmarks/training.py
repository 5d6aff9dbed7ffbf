"""A real training loop of a GPT on text, one step at a time, for the experiments that need one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lineage.demo import data, model


@dataclass(frozen=True)
class Size:
    """A model and its batch: width, layers, heads, tokens per sequence, sequences per batch."""

    name: str
    width: int
    layers: int
    heads: int
    length: int
    batch: int


TINY = Size("tiny GPT", 32, 1, 2, 16, 2)
DEMO = Size("the demo's GPT", 96, 3, 4, 64, 8)
LARGER = Size("larger GPT", 384, 6, 6, 128, 3)


class Training:
    """A model, its optimizer, scheduler and loader; equal seeds make equal runs."""

    def __init__(self, size: Size, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.model = model.GPT(width=size.width, layers=size.layers, heads=size.heads, length=size.length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, 1000)
        self.loader = data.TextLoader(
            data.corpus(100_000), batch=size.batch, length=size.length, rank=0, world=1, seed=seed
        )
        self.done = 0

    @property
    def objects(self) -> dict[str, Any]:
        """What `lineage.attach` is given."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "loader": self.loader,
        }

    def parameters(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.model.parameters())

    def compute(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Forward and backward; returns the loss."""
        loss = model.loss_of(self.model(batch["input_ids"]), batch["labels"])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss

    def update(self) -> None:
        """Clip, update, and move the schedule."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.done += 1

    def save(self, folder: Path) -> Path:
        """Save weights and optimizer as a user would. Returns the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, folder / "state.pt"
        )
        return folder
