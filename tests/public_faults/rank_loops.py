"""Runs on real ranks (gloo), one for each public fault of distributed training, and their healthy twins.

Each takes a folder, runs on every rank of the group, and leaves its ledger there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import lineage

WIDTH, EVERY = 12, 4
CONFIG = {"learning_rate": 1e-2, "max_grad_norm": 1.0}


def network(*, batch_norm: bool = False) -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(3)
    norm = nn.BatchNorm1d(WIDTH) if batch_norm else nn.LayerNorm(WIDTH)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), norm, nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def data(step: int) -> torch.Tensor:
    """This rank's batch, float32[8, WIDTH]; ranks have data of their own, of another spread each."""
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(8, WIDTH, generator=g) * (1.0 + rank)


def groups(net: nn.Module) -> Any:
    """Matrices with weight decay, the rest without."""
    named = list(net.parameters())
    return [
        {"params": [p for p in named if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]


class Run:
    """One rank's part of a run."""

    def __init__(self, root: Path, *, wrapped: bool = True, batch_norm: bool = False, seed: int = 0) -> None:
        self.root, self.rank, self.world = root, dist.get_rank(), dist.get_world_size()
        self.net: nn.Module = network(batch_norm=batch_norm)
        self.model: nn.Module = self.net
        if wrapped:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # torch renames broadcast_buffers
                self.model = DistributedDataParallel(self.net, broadcast_buffers=False)
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            groups(self.net), lr=1e-2, betas=(0.9, 0.95)
        )
        self.clip: float | None = 1.0
        self.done = 0
        torch.manual_seed(100 * seed + self.rank)  # each rank draws noise of its own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return (self.model(x + 0.01 * torch.randn_like(x)) - 0.5 * x.roll(1, dims=1)).pow(2).mean()

    def reduce(self) -> None:
        """What comes between backward pass and clipping; the wrapper has done it where there is one."""

    def run(self, rec: Any, upto: int) -> None:
        """Train."""
        for step in range(self.done + 1, upto + 1):
            x = data(step)
            with rec.step(step, x) as st:
                self.optimizer.zero_grad()
                loss = self.forward(x)
                loss.backward()
                self.reduce()
                if self.clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                self.optimizer.step()
                st.loss(loss)
            self.done = step

    def attach(self, **options: Any) -> lineage.Recorder:
        """As a user does, on every rank."""
        given: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "config": CONFIG,
            **options,
        }
        return lineage.attach(
            None, dir=self.root, run_id="run", agree_every=EVERY, quiet=True, report=False, **given
        )

    def save(self, name: str = "saved") -> Path:
        """As rank 0 does, each rank's random numbers beside it."""
        folder = self.root.with_name(f"{self.root.name}-{name}")
        folder.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            torch.save(
                {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.done},
                folder / "state.pt",
            )
        torch.save(torch.get_rng_state(), folder / f"rng{self.rank}.pt")
        dist.barrier()
        return folder

    def load(self, folder: Path, *, optimizer: bool = True, rng: int | None = None) -> Run:
        """Load everything, random numbers from the file of rank `rng` (this rank's own by default)."""
        held = torch.load(folder / "state.pt", weights_only=True)
        self.net.load_state_dict(held["model"])
        if optimizer:
            self.optimizer.load_state_dict(held["optimizer"])
        torch.set_rng_state(torch.load(folder / f"rng{self.rank if rng is None else rng}.pt"))
        self.done = int(held["step"])
        return self


def train(run: Run, steps: int = 8, *, save: bool = False, **options: Any) -> Path | None:
    """One segment from its beginning; returns the checkpoint at its end."""
    with run.attach(**options) as rec:
        run.run(rec, run.done + steps)
        folder = run.save() if save else None
        if folder is not None:
            rec.checkpoint(folder, step=run.done)
    dist.barrier()
    return folder


def saved(root: Path, steps: int = 8, **options: Any) -> Path:
    """A first segment that saves at its end."""
    folder = train(Run(root, **options), steps, save=True)
    assert folder is not None
    return folder


# -- gradients


def healthy(root: Path) -> None:
    """DistributedDataParallel, saved and resumed on all ranks."""
    folder = saved(root)
    train(Run(root, seed=5).load(folder), 4, resumed_from=folder)


def bypassed_wrapper(root: Path) -> None:
    """The loop calls the module inside the wrapper, so nothing is averaged."""
    run = Run(root)
    run.forward = lambda x: (run.net(x) - 0.5 * x.roll(1, dims=1)).pow(2).mean()  # type: ignore[method-assign]
    train(run)


class _ByHand(Run):
    """Averages gradients itself, those of `which` only."""

    def __init__(self, root: Path, which: Callable[[torch.Tensor], bool]) -> None:
        super().__init__(root, wrapped=False)
        self.which = which

    def reduce(self) -> None:
        for p in self.net.parameters():
            if self.which(p):
                assert p.grad is not None
                dist.all_reduce(p.grad)
                p.grad /= self.world


def averaged_matrices_only(root: Path) -> None:
    """Only gradients of matrices are averaged: biases and norms go their own ways."""
    train(_ByHand(root, lambda p: p.dim() > 1), replicas="all")


def averaged_all(root: Path) -> None:
    """The healthy twin."""
    train(_ByHand(root, lambda p: True), replicas="all")


class _Sharded(Run):
    """FSDP2: each rank holds the half of each tensor. `local`: the loop clips what `to_local` gives it."""

    def __init__(self, root: Path, *, local: bool) -> None:
        super().__init__(root, wrapped=False)
        from torch.distributed.fsdp import fully_shard

        self.net = self.model = fully_shard(nn.Linear(WIDTH, WIDTH, bias=False))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.local = local
        self.clip = None if local else 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.ones(WIDTH)
        scale[: WIDTH // 2] = 10.0  # rows of rank 0: gradients of another size
        return (self.model(x) * scale).pow(2).mean()

    def reduce(self) -> None:
        """What a loop does that knows nothing of the other shards."""
        if self.local:
            shards = [p.grad.to_local() for p in self.net.parameters() if p.grad is not None]
            for shard in shards:
                held = nn.Parameter(torch.empty_like(shard))
                held.grad = shard
                nn.utils.clip_grad_norm_([held], 1.0)


def clipped_by_shard(root: Path) -> None:
    """Each rank clips by the norm of its shard."""
    train(_Sharded(root, local=True))


def clipped_by_whole(root: Path) -> None:
    """Each rank clips by the norm over all shards, as torch does for such tensors."""
    train(_Sharded(root, local=False))


def _logged(root: Path, *, reduced: bool) -> None:
    """Each rank logs `global_loss` to a tracker run of its own: the mean over ranks, or what it has itself."""
    import os

    import wandb

    import lineage.observe

    os.environ |= {"LINEAGE_RUN_ID": "run", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    home = root.with_name(f"{root.name}-wandb-{dist.get_rank()}")
    home.mkdir(parents=True, exist_ok=True)
    lineage.observe.install(lineage.observe.Options(dir=str(root), quiet=True, capture=False))
    tracked = wandb.init(project="p", dir=str(home))
    run = Run(root)
    with lineage.attach(
        tracked, dir=root, model=run.model, optimizer=run.optimizer, quiet=True, report=False, config=CONFIG
    ) as rec:
        for step in range(1, 21):
            x = data(step)
            with rec.step(step, x) as st:
                run.optimizer.zero_grad()
                loss = run.forward(x)
                loss.backward()
                run.optimizer.step()
                st.loss(loss)
            shown = loss.detach().clone()
            if reduced:
                dist.all_reduce(shown)
                shown /= run.world
            tracked.log({"train/global_loss": shown.item()}, step=step)
        tracked.finish()
    lineage.observe.uninstall(60.0)
    dist.barrier()


def logged_as_global(root: Path) -> None:
    """Rank 1 logs its own loss under a name that says it is everybody's."""
    _logged(root, reduced=False)


def logged_reduced(root: Path) -> None:
    """The healthy twin."""
    _logged(root, reduced=True)


# -- buffers and counters


def batch_norm(root: Path) -> None:
    """Running statistics of each rank's own data; rank 0 saves its own."""
    saved(root, batch_norm=True)


class _CountsByGroup(torch.optim.AdamW):
    """Counts the steps of each group in the group, and none of an empty one, as Transformer Engine's FusedAdam does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for group in self.param_groups:
            group["step"] = 0

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["step"] += bool(group["params"])
        return super().step(closure)


def _experts(root: Path, *, empty: bool) -> None:
    """Rank 1 has no expert of its own, so that group is empty there."""
    run = Run(root)
    shared = groups(run.net)
    own = [] if empty and run.rank == 1 else [nn.Parameter(torch.ones(3))]
    for p in own:  # the wrapper has never seen it: it is this rank's expert
        run.net.register_parameter("expert", p)
    run.optimizer = _CountsByGroup([*shared, {"params": own, "weight_decay": 0.0}], lr=1e-2)
    run.clip = None  # a norm that counts the expert would differ too
    run.reduce = lambda: [setattr(p, "grad", torch.ones(3)) for p in own] and None  # type: ignore[method-assign]
    train(run, save=True)


def empty_group(root: Path) -> None:
    """A group without parameters on rank 1."""
    _experts(root, empty=True)


def no_empty_group(root: Path) -> None:
    """The healthy twin."""
    _experts(root, empty=False)


# -- resumes


def other_random_numbers(root: Path) -> None:
    """Every rank takes the random numbers of the next one."""
    folder = saved(root)
    run = Run(root, seed=5)
    train(run.load(folder, rng=(run.rank + 1) % run.world), 4, resumed_from=folder)


def random_numbers_of_rank_0_only(root: Path) -> None:
    """Only rank 0 restores its random numbers."""
    folder = saved(root)
    run = Run(root, seed=5)
    fresh = torch.get_rng_state()
    run.load(folder)
    if run.rank:
        torch.set_rng_state(fresh)
    train(run, 4, resumed_from=folder)


def not_gathered(root: Path) -> None:
    """What rank 1 updates is never given to it after the load: each rank goes on with another model."""
    folder = saved(root)
    run = Run(root, seed=5)
    stale = copy.deepcopy(run.net.state_dict())
    run.load(folder)
    if run.rank == 1:
        run.net.load_state_dict(stale)
    train(run, 8, resumed_from=folder)


def one_key_for_all(root: Path) -> None:
    """All ranks save their random numbers under one key, of which the last written survives."""
    folder = saved(root)
    run = Run(root, seed=5)
    train(run.load(folder, rng=run.world - 1), 4, resumed_from=folder)


def save_on_four(root: Path) -> None:
    """The first half of a resume on fewer ranks."""
    saved(root)


def resume_on_two(root: Path) -> None:
    """Faithful, on half as many ranks."""
    folder = root.with_name(f"{root.name}-saved")
    train(Run(root, seed=5).load(folder), 4, resumed_from=folder)


def resume_on_two_without_optimizer(root: Path) -> None:
    """The optimizer's file is for another number of ranks, and is skipped."""
    folder = root.with_name(f"{root.name}-saved")
    train(Run(root, seed=5).load(folder, optimizer=False), 4, resumed_from=folder)


ON_TWO = (
    healthy,
    bypassed_wrapper,
    averaged_matrices_only,
    averaged_all,
    clipped_by_shard,
    clipped_by_whole,
    batch_norm,
    empty_group,
    no_empty_group,
    other_random_numbers,
    random_numbers_of_rank_0_only,
    not_gathered,
    one_key_for_all,
)
LOGGED = (logged_as_global, logged_reduced)
FOUR_TO_TWO = (resume_on_two, resume_on_two_without_optimizer)


def on_two(rank: int, world: int, root: str) -> None:
    """All runs of two ranks."""
    for run in ON_TWO:
        run(Path(root, run.__name__))
        dist.barrier()


def on_two_logged(rank: int, world: int, root: str) -> None:
    """The runs with a tracker on each rank."""
    for run in LOGGED:
        run(Path(root, run.__name__))
        dist.barrier()


def on_four(rank: int, world: int, root: str) -> None:
    """What two ranks go on from."""
    for run in FOUR_TO_TWO:
        save_on_four(Path(root, run.__name__))
        dist.barrier()


def on_two_after_four(rank: int, world: int, root: str) -> None:
    """The second half of a resume on fewer ranks."""
    for run in FOUR_TO_TWO:
        run(Path(root, run.__name__))
        dist.barrier()
