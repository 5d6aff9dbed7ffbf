"""What a replay needs of your code: the model as in training, the loss of a micro-batch, the loading of a checkpoint.

python replay_loop.py
lineage replay --with replay_build:build
lineage replay --with replay_build:build --change without-sample:3
"""

import torch
from common import load, parts


def build(given):
    """`given` has step, rank, world_size, device, checkpoint and the recorded config."""
    model, optimizer, scheduler, loader = parts(lr=1e-2)
    model.to(given.device)

    def loss(model, batch):
        return torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])

    return {
        "model": model,
        "loss": loss,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "load": lambda path: load(path, model, optimizer, scheduler, loader),
    }
