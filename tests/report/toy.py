"""A small training run with the layer on: healthy, then resumed faithfully, then resumed with bad habits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import lineage
from lineage.demo import data, model

HOSTILE_NAME = "<script>alert('name')</script> | *toy*"
HOSTILE_VALUE = "</style><img src=x onerror=alert(2)>|`value`"
HOSTILE_ERROR = "</pre><script>alert(3)</script> | boom"


@dataclass
class Habits:
    """What a resume does otherwise than the run before it."""

    lr: float = 3e-3
    clip: float = 1.0
    weight_decay_asked: float = 0.01
    drop_optimizer: bool = False
    skip: int = 0
    note: str = "as planned"
    mitigations: list[dict[str, Any]] = field(default_factory=list)
    spoil_at: int | None = None
    error: str | None = None


BAD = Habits(
    lr=1e-3,
    clip=0.3,
    weight_decay_asked=0.2,
    drop_optimizer=True,
    skip=3,
    note=HOSTILE_VALUE,
    mitigations=[
        {"concept": "grad_clip", "before": 1.0, "after": 0.3, "why": "spikes", "who": "on call"},
        {"concept": "weight_decay", "before": 0.01, "after": 0.2, "why": "hope"},
    ],
    spoil_at=11,
    error=HOSTILE_ERROR,
)


def train(root: Path, steps: int, resume: Path | None = None, habits: Habits | None = None) -> None:
    """Train to a step, saving every fifth; the ledger goes to `root/runs`."""
    h = habits or Habits()
    torch.manual_seed(0)
    net = model.GPT(width=32, layers=1, heads=2, length=32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=h.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm)
    loader = data.TextLoader(data.corpus(50_000), batch=2, length=32, rank=0, world=1, seed=1)
    objects = {"net": net, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    done = _load(resume, h, **objects) if resume else 0
    config = {
        "learning_rate": h.lr,
        "grad_clip": h.clip,
        "weight_decay": h.weight_decay_asked,
        "note_to_self": h.note,
    }
    rec = lineage.attach(
        None,
        model=net,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        config=config,
        name=HOSTILE_NAME,
        resumed_from=resume,
        dir=root / "runs",
        quiet=True,
    )
    for m in h.mitigations:
        rec.mitigate(**m)
    for step in range(done + 1, steps + 1):
        batch = next(loader)
        with rec.step(step, batch) as st:
            loss = model.loss_of(net(batch["input_ids"]), batch["labels"])
            optimizer.zero_grad()
            handle = net.head.weight.register_hook(lambda g: g * float("nan")) if step == h.spoil_at else None
            loss.backward()
            if handle:
                handle.remove()
            torch.nn.utils.clip_grad_norm_(net.parameters(), h.clip)
            optimizer.step()
            scheduler.step()
            st.loss(loss)
        if step % 4 == 0:
            path = _save(root, step, **objects)
            rec.checkpoint(path, step=step)
    rec.close(RuntimeError(h.error) if h.error else None)


def _warm(done: int) -> float:
    return min(1.0, (done + 1) / 4)


def _save(root: Path, step: int, *, net: Any, optimizer: Any, scheduler: Any, loader: Any) -> Path:
    folder = root / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "loader": loader.state_dict(),
        "step": step,
        "rng": torch.get_rng_state(),
    }
    torch.save(state, folder / "all.pt")
    return folder


def _load(folder: Path, h: Habits, *, net: Any, optimizer: Any, scheduler: Any, loader: Any) -> int:
    state = torch.load(folder / "all.pt", weights_only=False)
    net.load_state_dict(state["net"])
    scheduler.load_state_dict(state["scheduler"])
    loader.load_state_dict(state["loader"])
    loader.position += h.skip
    if h.drop_optimizer:
        scheduler.base_lrs = [h.lr]
        factor: Callable[[int], float] = scheduler.lr_lambdas[0]
        optimizer.param_groups[0]["lr"] = h.lr * factor(state["step"])
    else:
        optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return int(state["step"])
