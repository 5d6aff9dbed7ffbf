"""A real loop on Accelerate with a tiny model, whole and broken. As a script it is one of several gloo ranks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lineage.integrations.accelerate import LineageTracker, attach


class Tokens(Dataset):
    """Sequences of made tokens, each its own."""

    def __init__(self, size: int = 40) -> None:
        self.rows = torch.randint(0, 64, (size, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[at]}


class Small(nn.Module):
    """Embedding and head are tied; dropout draws random numbers; a buffer changes that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.inner = nn.Linear(16, 16)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, 64, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(4), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.seen.mul_(0.9).add_(1.0)
        out = self.head(self.drop(torch.relu(self.inner(self.embed(ids[:, :-1])))))
        return nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())


class Plain(Small):
    """The same with a buffer that stays as it is."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out = super().forward(ids)
        self.seen.zero_()
        return out


@dataclass
class Loop:
    """One segment: built as Accelerate's own examples are."""

    folder: Path
    kind: type[Small] = Plain
    dtype: torch.dtype = torch.float32
    rate: float = 1e-2
    decay: float = 0.0
    batch: int = 4
    scaled: bool = False
    observed: bool = True
    averaged: dict[str, torch.Tensor] | None = None
    total: int = 8
    limit: int | None = None
    own_numbers: bool = False
    seedable: bool = True
    apart: bool = True
    """whether the loader has a generator of its own"""
    log_with: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    epoch: int = 0
    done: int = 0
    skip: int = 0

    def __post_init__(self) -> None:
        tracker = [LineageTracker()] if self.observed else []
        self.accelerator = Accelerator(
            cpu=True,
            dataloader_config=DataLoaderConfiguration(use_seedable_sampler=self.seedable),
            project_config=ProjectConfiguration(
                str(self.folder), automatic_checkpoint_naming=self.limit is not None, total_limit=self.limit
            ),
            log_with=[*self.log_with, *tracker] or None,
        )
        set_seed(5)
        model = self.kind().to(self.dtype)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=self.rate, betas=(0.9, 0.95), weight_decay=self.decay
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(falling, total=100))
        # a generator of its own: else each pass draws a number from the one that dropout draws from
        loader = DataLoader(
            Tokens(),
            batch_size=self.batch,
            shuffle=True,
            generator=torch.Generator().manual_seed(3) if self.seedable and self.apart else None,
        )
        if self.scaled:  # Accelerate itself makes one for devices only
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        self.model, self.optimizer, self.scheduler, self.loader = self.accelerator.prepare(
            model, optimizer, scheduler, loader
        )
        self.accelerator.init_trackers("project", config={"lr": self.rate, "weight_decay": self.decay})
        if self.averaged is not None:
            for name, p in self.model.named_parameters():
                self.averaged.setdefault(name, p.detach().clone())
        if self.own_numbers:
            torch.manual_seed(100 + self.accelerator.process_index)
        self.rec = (
            attach(
                self.accelerator,
                self.model,
                self.optimizer,
                self.scheduler,
                self.loader,
                dir=self.folder / "runs",
                ema=self.averaged,
                quiet=True,
                report=False,
                **self.options,
            )
            if self.observed
            else None
        )

    def load(self, step: int, path: Path | None = None) -> Loop:
        """Go on from a save, as Accelerate's examples do."""
        self.accelerator.load_state(str(path or self.saved(step)))
        self.done = step
        self.epoch, self.skip = divmod(step, len(self.loader))
        return self

    def saved(self, step: int) -> Path:
        """Where a save is put."""
        return self.folder / f"step_{step}"

    def run(self, upto: int, saves: tuple[int, ...] = (3, 6)) -> Loop:
        """Train up to a step, and end the training."""
        while self.done < upto:
            self.loader.set_epoch(self.epoch)
            batches = (
                self.accelerator.skip_first_batches(self.loader, self.skip) if self.skip else self.loader
            )
            for batch in batches:
                if self.rec is None:
                    self.losses.append(self.update(batch).item())
                else:
                    with self.rec.step(self.done + 1, batch) as st:
                        loss = self.update(batch)
                        st.loss(loss)
                    self.losses.append(loss.item())
                self.done += 1
                self.accelerator.log({"train/loss": self.losses[-1]}, step=self.done)
                if self.done in saves:
                    self.accelerator.save_state(str(self.saved(self.done)) if self.limit is None else None)
                if self.done == upto:
                    break
            self.epoch, self.skip = self.epoch + 1, 0
        if self.rec is not None:
            self.rec.close()
        return self

    def update(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Forward, backward, clip, update."""
        loss = self.model(batch["input_ids"])
        self.accelerator.backward(loss)
        if not self.scaled:
            self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        if self.averaged is not None:
            for name, p in self.model.named_parameters():
                self.averaged[name].lerp_(p.detach(), 0.1)
        return loss.detach()


def falling(step: int, total: int) -> float:
    """A rate that falls to zero."""
    return max(0.0, 1 - step / total)


# -- what goes wrong at a resume: each takes the place of `Loop.load`


def weights_only(loop: Loop, step: int) -> None:
    """The script reads the model's file, and no other."""
    from safetensors.torch import load_model

    load_model(loop.accelerator.unwrap_model(loop.model), str(loop.saved(step) / "model.safetensors"))
    loop.rec.resumed_from(loop.saved(step))
    loop.done, loop.skip = step, step


def scheduler_restarted(loop: Loop, step: int) -> None:
    """The schedule begins anew, over the optimizer that was loaded."""
    fresh = loop.scheduler.scheduler.state_dict()
    loop.load(step)
    loop.scheduler.scheduler.load_state_dict(fresh)
    for group in loop.optimizer.param_groups:
        group["lr"] = group["initial_lr"]


def skip_forgotten(loop: Loop, step: int) -> None:
    """`skip_first_batches` is not called."""
    loop.load(step)
    loop.skip = 0


def one_too_many(loop: Loop, step: int) -> None:
    """One batch more is skipped than was trained on."""
    loop.load(step)
    loop.skip += 1


def epoch_forgotten(loop: Loop, step: int) -> None:
    """The right place, in the order of another epoch."""
    loop.load(step)
    loop.epoch = 7


def untied(loop: Loop, step: int) -> None:
    """Embedding and head have a tensor each."""
    loop.load(step)
    model = loop.accelerator.unwrap_model(loop.model)
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())


def counter_reset(loop: Loop, step: int) -> None:
    """The moments are there, and the optimizer counts its updates from 0."""
    loop.load(step)
    for state in loop.optimizer.state.values():
        state["step"].zero_()


def scaler_reset(loop: Loop, step: int) -> None:
    """The script makes a new scaler after the load."""
    loop.load(step)
    loop.accelerator.scaler.load_state_dict(
        torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2).state_dict()
    )


def another_step(loop: Loop, step: int) -> None:
    """Rank 1 reads the save before: its optimizer, its schedule and its random numbers are of that step."""
    if loop.accelerator.process_index == 1:
        other = Path(str(loop.saved(step)) + "-of-rank-1")
        loop.accelerator.load_state(str(other))
        loop.rec.resumed_from(loop.saved(step))
        loop.done, loop.skip = step, step
    else:
        loop.load(step)


FAULTS: dict[str, Callable[[Loop, int], None]] = {
    f.__name__: f
    for f in (
        weights_only,
        scheduler_restarted,
        skip_forgotten,
        one_too_many,
        epoch_forgotten,
        untied,
        counter_reset,
        scaler_reset,
        another_step,
    )
}


def main(folder: str, step: str, *more: str) -> None:
    """One segment of this rank. `more`: name=value of the loop, fault=name and upto=number among them."""
    given: dict[str, Any] = {}
    for name, _, value in (m.partition("=") for m in more):
        given[name] = value if name == "fault" else ast.literal_eval(value)
    fault, upto = given.pop("fault", None), given.pop("upto", 8)
    loop = Loop(Path(folder), own_numbers=True, **given)
    if fault:
        FAULTS[fault](loop, int(step))
    elif int(step):
        loop.load(int(step))
    loop.run(upto)
    loop.accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
