"""A loop under tensor parallelism (DTensor) whose gradients are clipped by hand on one rank alone."""

from __future__ import annotations

import random
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import lineage

from .faults import EVERY, STEPS, WIDTH, Fault, batch, target


class Block(torch.nn.Module):
    """A norm, which every rank has whole, and two layers, of which each has a part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.tanh(self.up(self.norm(x))))
        return y


def draw(seed: int, world: int) -> Fault:
    """Which rank clips, from which step on."""
    rng = random.Random(f"tensor parallel {seed}")
    return Fault("clip_tp_rank", rng.randrange(world), rng.randrange(10, 30), "norm.weight")


def run(root: Path, name: str, seed: int, fault: Fault | None) -> None:
    """Train on a mesh of all ranks. Every rank reads the same batch, as tensor parallelism has it."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = parallelize_module(Block(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    with lineage.attach(
        None,
        dir=root,
        run_id=name,
        model=model,
        optimizer=optimizer,
        replicas="all",
        agree_every=EVERY,
        config={"tensor_model_parallel_size": world},
        quiet=True,
        report=False,
    ) as rec:
        for step in range(1, STEPS + 1):
            x = batch(seed, 0, step)
            with rec.step(step, {"x": x}) as st:
                loss = (model(x) - target(x)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                if fault is not None and rank == fault.rank and step >= fault.step:
                    _clip(model, 1e-3)
                optimizer.step()
                st.loss(loss)


def _clip(model: torch.nn.Module, most: float) -> None:
    """Clip what this rank holds by its own norm, as code that forgets the other ranks does."""
    grads = [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in model.parameters()]
    norm = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(g) for g in grads if g is not None])
    )
    for g in grads:
        if g is not None:
            g.mul_(min(1.0, most / float(norm)))
