"""A training loop on real ranks, and the faults that are put into it. Each is drawn at random: rank, step, tensor."""

from __future__ import annotations

import random
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lineage

STEPS = 40
WIDTH = 12
EVERY = 4
"""Steps between two digests of the state."""


@dataclass(frozen=True)
class Fault:
    """What is done to one run."""

    kind: str
    rank: int
    step: int
    tensor: str
    """a parameter, or a buffer"""

    def at(self, rank: int, step: int) -> bool:
        """Whether it strikes this rank now."""
        return (self.rank, self.step) == (rank, step)

    @property
    def digest_before(self) -> int:
        """The last digest of the state before it: the first step, then each that EVERY divides."""
        return max(1, (self.step - 1) // EVERY * EVERY)


def draw(kind: str, seed: int, world: int) -> Fault:
    """A fault of this kind at random. It strikes before the update of its step."""
    rng = random.Random(f"{kind} {seed}")
    names = ["scale"] if kind == "flip_buffer" else ["0.weight", "0.bias", "1.weight", "3.weight", "3.bias"]
    return Fault(kind, rng.randrange(world), rng.randrange(24, 36), rng.choice(names))


def network() -> torch.nn.Module:
    """A small one with a norm and a buffer; equal on all ranks."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), Scaled(), torch.nn.Linear(WIDTH, WIDTH)
    )
    net.register_buffer("scale", torch.rand(WIDTH) + 1.0)
    return net


class Scaled(torch.nn.Module):
    """An activation between the layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


def batch(seed: int, rank: int, step: int) -> torch.Tensor:
    """Ids of this rank's batch, float32[8, WIDTH] of them."""
    g = torch.Generator().manual_seed(seed * 1_000_003 + rank * 1009 + step)
    return torch.randn(8, WIDTH, generator=g)


def target(x: torch.Tensor) -> torch.Tensor:
    """What is learned."""
    return x.roll(1, dims=1) * 0.5


def flip(tensor: torch.Tensor, bit: int, place: int) -> None:
    """Flip one bit of one element, where it lies."""
    with torch.no_grad():
        tensor.view(torch.int32).view(-1)[place % tensor.numel()] ^= 1 << bit


class Loop:
    """One run of one rank under DistributedDataParallel, with a fault in it or none."""

    def __init__(self, root: Path, run: str, seed: int, fault: Fault | None, **attach: Any) -> None:
        self.root, self.run, self.seed, self.fault = root, run, seed, fault
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.net = network()
        torch.manual_seed(1000 * seed + self.rank)  # each rank draws noise of its own
        self.bucket: list[str] = []
        """parameters of the bucket that was not reduced"""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch renames broadcast_buffers
            self.model = DistributedDataParallel(self.net, broadcast_buffers=False, bucket_cap_mb=0.0005)
        self.bits = random.Random(f"{seed} {run}")
        if self._is("bypass"):
            self._late_parameter()
        if self._is("skip_bucket"):
            self.model.register_comm_hook(self, _one_bucket_stays)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.attach = attach
        self.now = 0

    def _is(self, *kinds: str) -> bool:
        return self.fault is not None and self.fault.kind in kinds

    def _late_parameter(self) -> None:
        """A parameter that the wrapper has never seen: nothing averages its gradient."""
        self.net.late = torch.nn.Parameter(torch.zeros(WIDTH))

    def named(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        return {**dict(self.net.named_parameters()), **dict(self.net.named_buffers())}

    def data(self, step: int) -> torch.Tensor:
        """This rank's batch."""
        rank = self.rank
        if self._is("same_shard"):
            rank = 0
        if self._is("swapped") and self.fault is not None and step >= self.fault.step:
            other = (self.fault.rank + 1) % self.world
            rank = {self.fault.rank: other, other: self.fault.rank}.get(rank, rank)
        return batch(self.seed, rank, step)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss."""
        y = self.model(x + 0.01 * torch.randn_like(x)) * self.net.scale
        if self._is("bypass"):
            y = y + self.net.late
        return (y - target(x)).pow(2).mean()

    def before(self, step: int) -> None:
        """What a fault does to the state before the update of its step."""
        f = self.fault
        if f is None:
            return
        if f.kind == "other_start" and step == 1 and self.rank == f.rank:
            with torch.no_grad():
                for p in self.net.parameters():
                    p.add_(0.01)
        if not f.at(self.rank, step):
            return
        bit, place = self.bits.randrange(23), self.bits.randrange(1 << 16)
        if f.kind in ("flip_weight", "flip_buffer"):
            flip(self.named()[f.tensor], bit, place)
        elif f.kind in ("flip_moment1", "flip_moment2"):
            key = "exp_avg" if f.kind == "flip_moment1" else "exp_avg_sq"
            flip(self.optimizer.state[self.named()[f.tensor]][key], bit, place)

    def slow(self, step: int, where: str) -> None:
        """Wait where a slow rank does."""
        f = self.fault
        if f is not None and f.kind == where and self.rank == f.rank and step >= f.step - 20:
            time.sleep(0.1)

    def after_backward(self, step: int) -> None:
        """What a fault does between backward pass and update."""
        f = self.fault
        if f is not None and f.kind == "clip_one_rank" and self.rank == f.rank and step >= f.step:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)

    def hooks(self, step: int) -> Any:
        """A NaN in the local gradient, before anything reduces it."""
        f = self.fault
        if f is None or f.kind != "nan_gradient" or not f.at(self.rank, step):
            return nullcontext()
        return _BrokenGradient(self.named()[f.tensor])

    def go(self, first: int = 1, last: int = STEPS, save_at: tuple[int, ...] = ()) -> None:
        """Train."""
        with lineage.attach(
            None,
            dir=self.root,
            run_id=self.run,
            model=self.model,
            optimizer=self.optimizer,
            agree_every=EVERY,
            quiet=True,
            report=False,
            **self.attach,
        ) as rec:
            for step in range(first, last + 1):
                self.now = step
                self.slow(step, "slow_loader")
                x = self.data(step)
                self.before(step)
                with rec.step(step, {"x": x}) as st, self.hooks(step):
                    self.slow(step, "slow_forward")
                    loss = self.forward(x)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.after_backward(step)
                    self.optimizer.step()
                    st.loss(loss)
                if step in save_at:
                    self.save(step, rec)

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.root / "saved" / f"{self.run}-{step}"

    def save(self, step: int, rec: Any) -> None:
        """Save as rank 0 does, each rank's random numbers beside it, and record it on every rank."""
        path = self.path(step)
        path.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            torch.save(
                {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, path / "s.pt"
            )
        torch.save(torch.get_rng_state(), path / f"rng{self.rank}.pt")
        dist.barrier()
        rec.checkpoint(path, step=step)

    def load(self, step: int) -> None:
        """Load a checkpoint as the loop of `save` does; a fault loads another one, or another rank's random numbers."""
        f = self.fault
        if self._is("other_step") and f is not None and self.rank == f.rank:
            step -= 8
        whose = self.rank
        if self._is("other_rng") and f is not None and self.rank == f.rank:
            whose = (self.rank + 1) % self.world
        path = self.path(step)
        held = torch.load(path / "s.pt")
        self.net.load_state_dict(held["model"])
        self.optimizer.load_state_dict(held["optimizer"])
        torch.set_rng_state(torch.load(path / f"rng{whose}.pt"))
        self.attach["resumed_from"] = path


class _BrokenGradient:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __enter__(self) -> None:
        def nan(g: torch.Tensor) -> torch.Tensor:
            g = g.clone()
            g.view(-1)[3] = torch.nan
            return g

        self._handle = self._tensor.register_hook(nan)

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


def _one_bucket_stays(loop: Loop, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """A reduction that leaves the bucket of one parameter as it is at one step, on every rank."""
    f = loop.fault
    assert f is not None
    inside = bucket.parameters()
    if loop.now == f.step and any(p is loop.named()[f.tensor] for p in inside):
        loop.bucket = sorted(n for n, q in loop.named().items() if any(q is p for p in inside))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
    work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return work.then(lambda done: done.value()[0].div_(loop.world))


_one_bucket_stays.__annotations__ |= {  # torch looks at the types themselves
    "bucket": dist.GradBucket,
    "return": torch.futures.Future[torch.Tensor],
}
