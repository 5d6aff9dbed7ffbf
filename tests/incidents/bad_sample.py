"""A run on one device that meets a sample of not-a-numbers, and how its step is made again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import lineage

RUN, BAD, PLACE = "sample", 24, 5


def parts() -> tuple[Any, Any]:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(step: int) -> dict[str, Any]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    y = x.sum(1, keepdim=True)
    if step == BAD:
        x[PLACE, 2] = math.nan
    return {"x": x, "y": y}


def losses(model: Any, given: Any) -> Any:
    """float32 [samples]"""
    return F.mse_loss(model(given["x"]), given["y"], reduction="none").mean(1)


def train(folder: Path) -> None:
    model, optimizer = parts()
    objects = {"model": model, "optimizer": optimizer}
    with lineage.attach(None, **objects, dir=folder / "runs", run_id=RUN, quiet=True, report=False) as rec:
        for step in range(1, BAD + 2):
            given = batch(step)
            with rec.step(step, given) as st:
                each = losses(model, given)
                st.sample_losses(each)
                optimizer.zero_grad()
                each.mean().backward()
                optimizer.step()
                st.loss(each.mean())
            if step % 10 == 0:
                path = folder / f"ck-{step}.pt"
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
                rec.checkpoint(path, step=step)


def build() -> dict[str, Any]:
    model, optimizer = parts()

    def load(path: Path) -> None:
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    return {
        "model": model,
        "optimizer": optimizer,
        "load": load,
        "loss": lambda of, given: losses(of, given).mean(),
    }
