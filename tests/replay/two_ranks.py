"""Two ranks by DDP on gloo, started by torchrun. What breaks is named on the command line.

`sample`: rank 1's batch has a NaN. `between`: a spread over the ranks that is zero where both have the same batch, by
which everything is divided; one device has no such spread.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

BAD = 8


class Spread(nn.Module):
    """Divides by how far the ranks' means lie apart, where there are several."""

    def forward(self, x: Any) -> Any:
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return x
        means = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(means, x.detach().mean())
        return x / (means[0] - means[1]).abs() * 0.1


class Net(nn.Module):
    def __init__(self, spread: bool) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(4, 8), nn.Dropout(0.1)
        self.middle, self.last = Spread() if spread else nn.Tanh(), nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.middle(self.drop(self.first(x)))))


def parts(kind: str) -> tuple[Any, Any]:
    torch.manual_seed(3)
    model: Any = Net(kind == "between")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if dist.is_initialized() and dist.get_world_size() > 1:
        model = DistributedDataParallel(model)
    return model, optimizer


def given(kind: str, step: int, rank: int) -> Any:
    same = kind == "between" and step == BAD
    g = torch.Generator().manual_seed(100 * step + (0 if same else rank))
    x = torch.randn(8, 4, generator=g)
    batch = {"x": x, "y": x.sum(1, keepdim=True)}
    if kind == "sample" and step == BAD and rank == 1:
        batch["x"][5, 0] = math.nan
    return batch


def loss_of(model: Any, batch: Any) -> Any:
    return F.mse_loss(model(batch["x"]), batch["y"])


def build_of(kind: str) -> Any:
    def build(told: Any) -> dict[str, Any]:
        model, optimizer = parts(kind)

        def load(path: Path) -> None:
            state = torch.load(path / "state.pt", weights_only=True)
            getattr(model, "module", model).load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        return {"model": model, "optimizer": optimizer, "loss": loss_of, "load": load}

    return build


sample, between = build_of("sample"), build_of("between")


def train(kind: str, root: Path, gate: bool) -> None:
    import lineage

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, optimizer = parts(kind)
    torch.manual_seed(50 + rank)
    with lineage.attach(
        None,
        model=model,
        optimizer=optimizer,
        dir=root / "runs",
        run_id="two",
        quiet=True,
        report=False,
        gate=gate,
    ) as rec:
        for step in range(1, 11):
            batch = given(kind, step, rank)
            # both have one mask where both are to have one mean
            state = torch.get_rng_state()
            if kind == "between":
                torch.manual_seed(step)
            with rec.step(step, batch) as st:
                loss = loss_of(model, batch)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                st.loss(loss)
            torch.set_rng_state(state)
            torch.rand(1)
            if step == 5:
                if rank == 0:
                    (root / "ck").mkdir()
                    held = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(held, root / "ck" / "state.pt")
                dist.barrier()
                rec.checkpoint(root / "ck", step=5)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    train(sys.argv[1], Path(sys.argv[2]), gate="gate" in sys.argv)
