"""Real DeepSpeed loops on gloo ranks, ZeRO stages 0 to 2, and what a resume of each loses.

`python -m tests.integrations.deepspeed_loops FOLDER STAGE ...` runs all of them on the rank that the environment says.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F

import lineage
from lineage.integrations import deepspeed as lineage_deepspeed

VOCABULARY, WIDTH, EVERY, SAVED, LAST = 13, 8, 8, 16, 19
BETAS = (0.9, 0.95)


class Net(torch.nn.Module):
    """Tied embedding and head, dropout, and two buffers, of which no state_dict holds one."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.body = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("unsaved", torch.zeros(()), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.seen += 0.5
        hidden = self.body(self.dropout(self.embedding(ids[:, :-1])))
        logits = self.head(hidden - self.unsaved)
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


class Documents:
    """This rank's own stream, which knows how many batches it has given."""

    def __init__(self, rank: int) -> None:
        self.rank, self.batches = rank, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        g = torch.Generator().manual_seed(1000 * self.rank + self.batches)
        self.batches += 1
        return torch.randint(0, VOCABULARY, (4, 8), generator=g)

    def state_dict(self) -> dict[str, int]:
        return {"batches": self.batches}

    def lineage_data(self) -> dict[str, str]:
        return {"data_mix": "made documents", "data_order": "by rank and number"}


class Loop:
    """One process's part of a run."""

    def __init__(self, stage: int, fault: str = "", *, precision: str = "", **options: Any) -> None:
        self.stage, self.fault = stage, fault
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        net = Net(tied=fault != "untied")
        given = {"lr": 1e-2, "betas": BETAS, "weight_decay": 0.1} | options
        trained = [p for n, p in net.named_parameters() if not n.startswith("head")]  # it is tied
        optimizer = torch.optim.AdamW(trained, **given)
        if fault == "stale optimizer":
            net = copy.deepcopy(net)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 10))
        precision = "bf16" if fault == "dtype" else precision
        self.config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": precision == "bf16"},
            "fp16": {"enabled": precision == "fp16", "initial_scale_power": 4, "loss_scale_window": 3},
        }
        self.asked = {**self.config, "lr": given["lr"], "weight_decay": given["weight_decay"]}
        self.engine, self.optimizer, _, self.scheduler = deepspeed.initialize(
            model=net, optimizer=optimizer, lr_scheduler=schedule, config=self.config
        )
        self.loader = Documents(self.rank)
        self.ema = {n: p.detach().float().clone() for n, p in net.named_parameters()}
        self.losses: list[float] = []
        torch.manual_seed(100 + self.rank)

    # -- saving and loading

    def save(self, root: Path, step: int) -> Path:
        """Save as DeepSpeed does; what it never saves goes into the client state, and a file of each rank."""
        path = root / f"step-{step}"
        client = {"done": step, "batches": self.loader.batches, "unsaved": float(self.engine.module.unsaved)}
        self.engine.save_checkpoint(str(root), tag=path.name, client_state=client | {"ema": self.ema})
        torch.save(torch.get_rng_state(), path / f"random_{self.rank}.pt")
        dist.barrier()
        return path

    def load(self, path: Path) -> int:
        """Load a checkpoint, and lose of it what the fault says. Returns the number of updates that were made."""
        f = self.fault
        if f == "latest names nothing":
            self.engine.load_checkpoint(str(path.parent / "nowhere"))  # warns, and returns (None, None)
            return SAVED
        if f == "one rank from another step" and self.rank == 1:
            path = path.with_name(f"step-{SAVED - EVERY}")
        _, client = self.engine.load_checkpoint(
            str(path.parent),
            tag=path.name,
            load_optimizer_states=f not in ("moments", "stale optimizer"),
            load_lr_scheduler_states=f != "scheduler",
            load_module_only=f in ("module only", "dtype"),
            load_module_strict=f != "untied",
        )
        if f == "counter":
            for state in self.optimizer.state.values():
                state["step"].zero_()
        if f == "scaler":
            self.optimizer.loss_scaler.cur_scale, self.optimizer.loss_scaler.cur_iter = 16.0, 0
        if f != "buffer":
            self.engine.module.unsaved.fill_(client["unsaved"])
        if f != "ema":
            self.ema = client["ema"]
        if f != "loader from the start":
            self.loader.batches = client["batches"] + (f == "loader skips")
        whose = 0 if f == "rng of another rank" else self.rank
        if not (f == "no rng" or (f == "rng above 0" and self.rank > 0)):
            torch.set_rng_state(torch.load(path / f"random_{whose}.pt"))
        return SAVED

    # -- training

    def go(self, root: Path, runs: Path, start: Path | None = None) -> Loop:
        """Train to the last step; a save at each step that EVERY divides."""
        done = self.load(start) if start is not None else 0
        rec = lineage.attach(
            None,
            dir=runs,
            **lineage_deepspeed.objects(self.engine),
            loader=self.loader,
            ema=self.ema,
            config=self.asked,
            resumed_from=start,
            quiet=True,
            report=False,
            state_every=1,
            agree_every=1,
        )
        with rec:
            for step, batch in enumerate(self.loader, start=done + 1):
                with rec.step(step, {"ids": batch}) as st:
                    loss = self.engine(batch)
                    self.engine.backward(loss)
                    self.engine.step()
                    st.loss(loss)
                with torch.no_grad():
                    self.engine.module.unsaved.add_(0.01)
                    for name, average in self.ema.items():
                        average.lerp_(self.engine.module.get_parameter(name).float(), 0.5)
                self.losses.append(float(loss.detach()))
                if step % EVERY == 0:
                    path = self.save(root, step)
                    rec.checkpoint(path, step=step)
                if step == LAST:
                    break
        return self


FAULTS = (
    "moments",
    "module only",
    "counter",
    "scheduler",
    "no rng",
    "rng above 0",
    "rng of another rank",
    "loader from the start",
    "loader skips",
    "stale optimizer",
    "untied",
    "dtype",
    "buffer",
    "ema",
    "one rank from another step",
    "arguments",
    "latest names nothing",
)

FEW = ("moments", "module only", "counter", "untied", "one rank from another step")
"""What is done at stage 2, whose optimizer is that of stage 1."""


def scaled(folder: Path) -> None:
    """fp16 with a scale that moves; DeepSpeed refuses it on CPUs whose kernels are not made for it, torch does not."""
    from deepspeed.accelerator import get_accelerator

    type(get_accelerator()).is_fp16_supported = lambda self: True
    Loop(1, precision="fp16").go(folder / "scaled", folder / "scaled" / "runs")
    for fault in ("", "scaler"):
        _resume(folder, "scaled", fault, Loop(1, fault, precision="fp16"), f"scaled {fault}".strip())


def _resume(folder: Path, saved: str, fault: str, loop: Loop, name: str) -> list[float] | str:
    source = folder / saved
    runs = folder / "resumed" / name
    if dist.get_rank() == 0:
        shutil.copytree(source / "runs", runs)
    dist.barrier()
    try:
        return loop.go(folder / "again" / name, runs, start=source / f"step-{SAVED}").losses
    finally:
        dist.barrier()


def main(folder: Path, stage: int) -> None:
    """On every rank: a run, then a resume with each fault, each in a copy of the run's ledger."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.init_distributed(dist_backend="gloo")
    losses: dict[str, Any] = {"saved": Loop(stage).go(folder / "saved", folder / "saved" / "runs").losses}
    for fault in sys.argv[3:] or ("", *(FEW if stage == 2 else FAULTS)):
        options = {"lr": 3e-2, "weight_decay": 0.3} if fault == "arguments" else {}
        try:
            losses[fault] = _resume(folder, "saved", fault, Loop(stage, fault, **options), fault or "healthy")
        except Exception:
            losses[fault] = traceback.format_exc()
    if stage == 1:
        scaled(folder)
    if dist.get_rank() == 0:
        (folder / "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
