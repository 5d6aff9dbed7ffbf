"""How a step of the demo is made again: what `lineage replay BUNDLE --with lineage.demo.replay:build` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from . import model
from .train import Schedule


def build(given: Any) -> dict[str, Any]:
    """Model, loss, optimizer and scheduler as the training script makes them; `given` has the recorded config."""
    config = given.config
    net = model.GPT().to(given.device)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=config["learning_rate"], betas=(0.9, 0.95), weight_decay=0.1
    )
    schedule = Schedule(config["warmup_steps"], config["max_steps"])

    def loss(of: Any, batch: Any) -> Any:
        return model.loss_of(of(batch["input_ids"]), batch["labels"])

    def load(path: Path) -> None:
        net.load_state_dict(torch.load(path / "model.pt", weights_only=True))
        optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True))

    return {
        "model": DistributedDataParallel(net) if given.world_size > 1 else net,
        "loss": loss,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, schedule),
        "load": load,
    }
