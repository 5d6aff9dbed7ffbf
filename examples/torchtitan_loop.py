"""A Trainer with torchtitan's shape, small enough for a CPU, recorded by `torchtitan_recorded.py`.

torchrun --nproc-per-node 2 torchtitan_loop.py 20       # twenty updates, saves at 10 and 20
torchrun --nproc-per-node 2 torchtitan_loop.py 24 0.3   # goes on from the newest, with another clip threshold

With torchtitan itself only `class Mine(Recorded, Trainer)` remains of this file.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import Numbers
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torchtitan_recorded import Recorded


@dataclass
class Config:
    steps: int = 20
    max_norm: float = 1.0
    lr: float = 1e-2
    interval: int = 10

    def to_dict(self):
        return asdict(self)


class CheckpointManager:
    """Saves what torchtitan saves, under its keys; random numbers are not among them."""

    def __init__(self, trainer, folder):
        self.trainer, self.folder, self.save_future = trainer, folder, None

    def states(self):
        t = self.trainer
        weights, moments = get_state_dict(t.model_parts[0], t.optimizers.optimizers[0])
        return {
            "model": weights,
            "optimizer": moments,
            "lr_scheduler": t.lr_schedulers.schedulers[0].state_dict(),
            f"dataloader_{dist.get_rank()}": t.dataloader.state_dict(),
            "train_state": {"step": t.step},
        }

    def save(self, curr_step, last_step=False):
        if curr_step % self.trainer.config.interval and not last_step:
            return False
        dcp.save(self.states(), checkpoint_id=f"{self.folder}/step-{curr_step}")
        return True

    def load(self, step=-1):
        there = sorted(int(p.name.removeprefix("step-")) for p in Path(self.folder).glob("step-*"))
        if not there:
            return False
        t, found = self.trainer, self.states()
        dcp.load(found, checkpoint_id=f"{self.folder}/step-{there[-1] if step < 0 else step}")
        set_state_dict(
            t.model_parts[0],
            t.optimizers.optimizers[0],
            model_state_dict=found["model"],
            optim_state_dict=found["optimizer"],
        )
        t.lr_schedulers.schedulers[0].load_state_dict(found["lr_scheduler"])
        t.dataloader.load_state_dict(found[f"dataloader_{dist.get_rank()}"])
        t.step = found["train_state"]["step"]
        return True


class Trainer:
    def __init__(self, config):
        self.config, self.step = config, 0
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        fully_shard(model)
        self.model_parts = [model]
        optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
        self.optimizers = SimpleNamespace(optimizers=[optimizer])
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
        self.lr_schedulers = SimpleNamespace(schedulers=[schedule])
        self.dataloader = Numbers()
        self.dataloader.position = dist.get_rank() * 1_000_000
        self.checkpointer = CheckpointManager(self, "outputs/checkpoint")

    def batch_generator(self, loader):
        for batch in loader:
            yield {"input": batch["x"]}, batch["y"]

    def forward_backward_step(self, *, input_dict, labels):
        loss = torch.nn.functional.mse_loss(self.model_parts[0](input_dict["input"]), labels)
        loss.backward()
        return loss

    def train_step(self, data_iterator):
        (optimizer,), (schedule,) = self.optimizers.optimizers, self.lr_schedulers.schedulers
        optimizer.zero_grad()
        fields, labels = next(data_iterator)
        self.forward_backward_step(input_dict=fields, labels=labels)
        torch.nn.utils.clip_grad_norm_(self.model_parts[0].parameters(), self.config.max_norm)
        optimizer.step()
        schedule.step()

    def train(self):
        self.checkpointer.load()
        batches = self.batch_generator(self.dataloader)
        while self.step < self.config.steps:
            self.step += 1
            self.train_step(batches)
            self.checkpointer.save(self.step, last_step=self.step == self.config.steps)

    def close(self):
        pass


class Mine(Recorded, Trainer):
    pass


dist.init_process_group("gloo")
trainer = Mine(Config(steps=int(sys.argv[1]), max_norm=float(sys.argv[2]) if len(sys.argv) > 2 else 1.0))
trainer.train()
trainer.close()
dist.destroy_process_group()
