"""What the rungs of the debugging ladder need of your code: model, loss, optimizer and batches as in training.

lineage overfit --with ladder_build:build
lineage loss-normalisation --with ladder_build:build
lineage precision --with ladder_build:build
lineage gradients --with ladder_build:build
"""

import torch
from common import parts


def build(given):
    """`given` has step, rank, world_size and device."""
    model, _, _, loader = parts(lr=1e-2)
    model.to(given.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # no warm-up: a rung steps no scheduler

    def loss(model, batch):
        return torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])

    def token_losses(model, batch):
        """The loss of each element that counts; of a language model, of each token."""
        return (model(batch["x"]) - batch["y"]).square()

    return {
        "model": model,
        "loss": loss,
        "token_losses": token_losses,
        "optimizer": optimizer,
        "batches": loader,
        "config": {"lr": 1e-2},
    }
