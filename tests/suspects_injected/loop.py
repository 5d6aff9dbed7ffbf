"""One run of one rank under DistributedDataParallel, with a fault in it or none."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lineage

from .model import BATCH, LENGTH, ROWS, VOCABULARY, Model, batch, loss_of

STEPS, SAVED = 58, 36
EVERY = 4
"""Steps between two digests of the state."""
RUN = "run"
RECORDED: dict[str, Any] = {
    "agree_every": EVERY,
    "state_every": 1,
    "activations": True,
    "batches": {"vocab_size": VOCABULARY},
    "quiet": True,
    "report": False,
}
"""What is recorded: all that there is, at each step."""
SHARD = 20
"""Steps for which a duplicated shard is read."""


@dataclass(frozen=True)
class Fault:
    """What is done to one run: at a step, on a rank, to a parameter."""

    kind: str
    rank: int
    step: int
    tensor: str

    @property
    def digest_after(self) -> int:
        """The first digest of the state after it."""
        return -(-self.step // EVERY) * EVERY


AFTER_RESUME = ("moments_lost", "changed_kernel", "learning_rate", "clip_dropped")
"""Faults of a second segment, which begins after step SAVED."""


def draw(kind: str, seed: int, world: int) -> Fault:
    """A fault of this kind at random."""
    rng = random.Random(f"{kind} {seed}")
    names = ["blocks.0.up.weight", "blocks.1.up.weight", "out.head.weight", "embed.weight"]
    return Fault(kind, rng.randrange(world), rng.randrange(46, 53), rng.choice(names))


@dataclass(frozen=True)
class Settings:
    """What the training script is told, as its config."""

    learning_rate: float = 1e-2
    warmup: int = 10
    max_grad_norm: float | None = 1.0
    betas: tuple[float, float] = (0.9, 0.99)

    def config(self) -> dict[str, Any]:
        """As the layer gets it."""
        return {
            "learning_rate": self.learning_rate,
            "max_grad_norm": self.max_grad_norm,
            "warmup_steps": self.warmup,
        }


class Loop:
    """Everything that a rank holds, and the running of it."""

    def __init__(
        self,
        root: Path,
        seed: int,
        fault: Fault | None,
        settings: Settings | None = None,
        less: Mapping[str, Any] | None = None,
    ) -> None:
        """`root` is the folder of this run alone; `less`: what of the layer is switched off."""
        self.root, self.seed, self.fault, self.less = root, seed, fault, dict(less or {})
        self.settings = settings or Settings()
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        self.net = Model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.model = DistributedDataParallel(self.net, broadcast_buffers=False, bucket_cap_mb=0.002)
        if fault is not None and fault.kind == "skipped_reduction":
            self.model.register_comm_hook(self, _one_bucket_stays)
        fused = fault is not None and fault.kind == "changed_kernel" and fault.rank == self.rank
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(),
            lr=self.settings.learning_rate,
            betas=self.settings.betas,
            fused=fused,
        )
        warm = self.settings.warmup
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / warm))
        self.read = 0
        self.now = 0
        self.stale: torch.Tensor | None = None
        self.resumed_from: Path | None = None
        self.first_bad: int | None = None
        """the first step whose block output or log-probability is not finite, as the loop itself sees it"""

    def struck(self, step: int) -> bool:
        """Whether the fault strikes at this step, on whichever rank."""
        return self.fault is not None and self.fault.step == step

    def here(self, step: int) -> bool:
        """Whether the fault strikes this rank at this step."""
        return self.struck(step) and self.fault is not None and self.fault.rank == self.rank

    def is_(self, kind: str) -> bool:
        """Whether the fault is of this kind."""
        return self.fault is not None and self.fault.kind == kind

    # -- data

    def next_batch(self, step: int) -> dict[str, torch.Tensor]:
        """This rank's batch."""
        self.read += 1
        number = self.read
        if self.is_("duplicated_shard") and self.fault is not None:
            begin = self.fault.step - SHARD
            if begin <= step < self.fault.step:
                number = 10_000  # a shard of one batch, over and over
        found = batch(self.seed, self.rank, number)
        if self.is_("corrupt_tokens") and self.here(step):
            g = torch.Generator().manual_seed(step)
            odd = torch.randint(VOCABULARY, ROWS, (BATCH, LENGTH), generator=g)
            found["input_ids"], found["labels"] = odd, odd.roll(1, 1)
        return found

    # -- state

    def memory(self, name: str) -> Any:
        """The memory of a parameter, past torch's counters, as a faulty device writes to it."""
        return dict(self.net.named_parameters())[name].detach().numpy()

    def before(self, step: int) -> None:
        """What a fault does before a step."""
        f = self.fault
        if f is None:
            return
        if f.kind == "stale_parameter" and step == f.step - 10:
            self.stale = torch.from_numpy(self.memory(f.tensor).copy())
        if f.kind == "overflow" and step > f.step - 12:
            self.net.blocks[1].gain.mul_(3.0)
        if f.kind == "log_of_zero":
            self.net.out.temperature = 0.01 if self.struck(step) else 1.0
        if f.kind == "second_moment" and self.struck(step):
            for state in self.optimizer.state.values():
                state["exp_avg_sq"].numpy()[...] *= 1e-6
        if not self.here(step):
            return
        if f.kind == "stale_parameter" and self.stale is not None:
            self.memory(f.tensor)[...] = self.stale.numpy()
        if f.kind == "bit_flip":
            rng = random.Random(f"{self.seed} bit")
            words = self.memory(f.tensor).reshape(-1).view("int32")
            words[rng.randrange(words.size)] ^= 1 << rng.randrange(8, 23)

    # -- the run

    def go(self, first: int = 1, last: int = STEPS, save_at: int | None = None) -> None:
        """Train."""
        objects = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        with lineage.attach(
            None,
            dir=self.root,
            run_id=RUN,
            config=self.settings.config(),
            resumed_from=self.resumed_from,
            **{**RECORDED, **objects, **self.less},
        ) as rec:
            for step in range(first, last + 1):
                self.now = step
                found = self.next_batch(step)
                self.before(step)
                with rec.step(step, found) as st:
                    log_p = self.model(found["input_ids"])
                    steep = 300.0 if self.is_("clip_dropped") and self.struck(step) else 1.0
                    loss = loss_of(log_p, found["labels"], steep)
                    self.optimizer.zero_grad()
                    loss.backward()
                    if self.settings.max_grad_norm is not None:
                        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.max_grad_norm)
                    self.optimizer.step()
                    self.scheduler.step()
                    st.loss(loss)
                if self.first_bad is None and not bool(torch.isfinite(log_p).all()):
                    self.first_bad = step
                if step == save_at:
                    self.save(step, rec)

    def save(self, step: int, rec: Any) -> None:
        """Save as rank 0 does, and record it on every rank."""
        path = self.path(step)
        path.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            state = {
                "model": self.net.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }
            torch.save(state, path / "s.pt")
        dist.barrier()
        rec.checkpoint(path, step=step)

    def path(self, step: int) -> Path:
        """The folder of a checkpoint."""
        return self.root / "saved" / f"step-{step}"

    def load(self, step: int) -> None:
        """Go on from a checkpoint."""
        path = self.path(step)
        held = torch.load(path / "s.pt")
        self.net.load_state_dict(held["model"])
        if not self.is_("moments_lost"):
            for group in held["optimizer"]["param_groups"]:
                group["fused"] = self.optimizer.param_groups[0]["fused"]
                group["initial_lr"] = self.settings.learning_rate
            self.optimizer.load_state_dict(held["optimizer"])
        self.scheduler.load_state_dict(held["scheduler"])
        self.scheduler.base_lrs = [self.settings.learning_rate]  # the config decides, not what was loaded
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self.scheduler.lr_lambdas[0](step)
        self.read, self.resumed_from = step, path


def _one_bucket_stays(loop: Loop, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """A reduction that leaves the bucket of one parameter as it is, at one step and on every rank."""
    f = loop.fault
    assert f is not None
    named = dict(loop.net.named_parameters())
    if loop.struck(loop.now) and any(p is named[f.tensor] for p in bucket.parameters()):
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
    work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return work.then(lambda done: done.value()[0].div_(loop.world))


_one_bucket_stays.__annotations__ |= {  # torch looks at the types themselves
    "bucket": dist.GradBucket,
    "return": torch.futures.Future[torch.Tensor],
}
