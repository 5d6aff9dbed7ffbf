"""One small language-model loop for the tests of this folder: it saves and loads part by part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import lineage
from lineage.ledger.reader import Ledger

VOCABULARY, WIDTH, SAMPLES, BATCH, LENGTH = 32, 16, 80, 4, 6
PARTS = ("model", "optimizer", "scheduler", "scaler", "loader", "rng")
"""What a checkpoint of this loop holds."""


class Tokens:
    """Batches of an epoch in an order of its own, with a position that can be saved."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.epoch, self.position = seed, 0, 0

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def order(self) -> torch.Tensor:
        """Ids of the samples in the order of this epoch."""
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1000 * self.seed + self.epoch))

    def __next__(self) -> dict[str, torch.Tensor]:
        if self.position == len(self):
            self.epoch, self.position = self.epoch + 1, 0
        ids = self.order()[self.position * BATCH : (self.position + 1) * BATCH]
        self.position += 1
        text = [
            torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(int(i)))
            for i in ids
        ]
        return {"input_ids": torch.stack(text), "sample_ids": ids}

    def lineage_data(self) -> dict[str, str]:
        return {
            "data_mix": f"{SAMPLES} samples",
            "data_order": f"a permutation of each epoch, seed {self.seed}",
        }

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class Silent(Tokens):
    """The same loader without a position to save, as most are."""

    def __getattribute__(self, name: str) -> Any:
        if name == "state_dict":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Net(nn.Module):
    """Embedding, norm, a layer, dropout, head; `tied`: the head is the embedding."""

    def __init__(self, *, tied: bool = False, batch_norm: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if batch_norm else nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.batch_norm = batch_norm
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2) if self.batch_norm else self.norm(x)
        return self.head(self.dropout(torch.tanh(self.inner(x))))


def linear_decay(total: int) -> Callable[[int], float]:
    """The factor of a learning rate that falls to 0 over `total` updates."""
    return lambda done: max(0.0, 1.0 - done / total)


def usual_groups(net: nn.Module, decay: float = 0.1) -> list[dict[str, Any]]:
    """Matrices with weight decay; norms and biases without."""
    named = list(net.named_parameters())
    return [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]


class Loop:
    """Everything a training loop holds."""

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        total: int | None = 1000,
        scaler: bool = False,
        seed: int = 0,
        loader: Any = None,
        net: nn.Module | None = None,
        groups: Callable[[nn.Module], Any] = usual_groups,
        optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    ) -> None:
        torch.manual_seed(seed)
        self.net = net or Net()
        self.optimizer = optimizer(groups(self.net), lr=lr, betas=betas, eps=eps)  # type: ignore[call-arg]
        self.scheduler: Any = None
        if total is not None:
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, linear_decay(total))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaler else None
        self.loader = loader or Tokens()
        self.clip: float | None = 1.0
        self.done = 0

    def objects(self) -> dict[str, Any]:
        """What is given to the layer."""
        given = {
            "model": self.net,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
            "loader": self.loader,
        }
        return {k: v for k, v in given.items() if v is not None}

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Next-token loss."""
        ids = batch["input_ids"]
        return functional.cross_entropy(self.net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def update(self, loss: torch.Tensor) -> None:
        """Backward pass, clipping, update, schedule."""
        self.optimizer.zero_grad()
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def run(self, rec: Any, upto: int) -> list[float]:
        """Train up to `upto` updates; returns the losses."""
        losses = []
        for step in range(self.done + 1, upto + 1):
            batch = next(self.loader)
            with rec.step(step, batch) as st:
                loss = self.loss(batch)
                self.update(loss)
                st.loss(loss)
            losses.append(loss.item())
            self.done = step
        return losses

    def state(self) -> dict[str, Any]:
        """Everything, part by part."""
        return {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else {},
            "scaler": self.scaler.state_dict() if self.scaler else {},
            "loader": {"epoch": self.loader.epoch, "position": self.loader.position},
            "rng": torch.get_rng_state(),
            "step": self.done,
        }

    def save(self, folder: Path, *, without: tuple[str, ...] = ()) -> Path:
        """Save every part but those."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({k: v for k, v in self.state().items() if k not in without}, folder / "state.pt")
        return folder

    def load(self, folder: Path, *, without: tuple[str, ...] = ()) -> Loop:
        """Load every part that is there, but those."""
        held = torch.load(folder / "state.pt", weights_only=True)
        parts = [p for p in PARTS if p in held and p not in without]
        if "model" in parts:
            self.net.load_state_dict(held["model"])
        if "optimizer" in parts:
            self.optimizer.load_state_dict(held["optimizer"])
        if "scheduler" in parts and self.scheduler is not None:
            self.scheduler.load_state_dict(held["scheduler"])
        if "scaler" in parts and self.scaler:
            self.scaler.load_state_dict(held["scaler"])
        if "loader" in parts:
            self.loader.load_state_dict(held["loader"])
        if "rng" in parts:
            torch.set_rng_state(held["rng"])
        self.done = int(held["step"])
        return self


def attach(loop: Loop, root: Path, **options: Any) -> lineage.Recorder:
    """Attach as a user does, with the test's own folder of ledgers."""
    return lineage.attach(None, dir=root, quiet=True, report=False, **{**loop.objects(), **options})


CONFIG = {"learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 1.0}


def first(root: Path, loop: Loop, *, steps: int = 12, more: int = 0, **options: Any) -> Path:
    """A first segment that saves at `steps` and goes on for `more`. Returns the checkpoint."""
    folder = root / "saved" / f"step-{steps}"
    with attach(loop, root / "runs", **{"config": CONFIG, **options}) as rec:
        loop.run(rec, steps)
        rec.checkpoint(loop.save(folder), step=steps)
        loop.run(rec, steps + more)
    return folder


def resume(root: Path, loop: Loop, checkpoint: Path, *, steps: int = 4, **options: Any) -> Ledger:
    """A second segment from a loop that has loaded what it loads. Returns the ledger."""
    with attach(loop, root / "runs", **{"config": CONFIG, "resumed_from": checkpoint, **options}) as rec:
        loop.run(rec, loop.done + steps)
    return ledger(root)


def ledger(root: Path) -> Ledger:
    """The one ledger of a test."""
    (found,) = [p for p in (root / "runs").iterdir() if (p / "journal").is_dir()]
    return Ledger(found)
