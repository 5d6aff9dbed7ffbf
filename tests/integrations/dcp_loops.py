"""Training loops on real gloo ranks with torch.distributed.checkpoint, under DDP and FSDP2, and what a resume loses.

They save as torchtitan does: one dict of states, where what is each rank's own stands under a key of its rank.
"""

from __future__ import annotations

import copy
import shutil
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

import lineage
from lineage.integrations.dcp import Stager

VOCABULARY, WIDTH, EVERY, SAVED, LAST = 31, 32, 8, 16, 19
BETAS = (0.9, 0.95)


class Net(torch.nn.Module):
    """Tied embedding and head, dropout, and two buffers, of which no state_dict holds one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.body = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("unsaved", torch.zeros(()), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.seen += 0.5
        hidden = self.body(self.dropout(self.embedding(ids[:, :-1])))
        logits = self.head(hidden - self.unsaved)
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


class Documents:
    """This rank's own stream, which knows how many batches and tokens it has given."""

    def __init__(self, rank: int) -> None:
        self.rank, self.batches, self.tokens = rank, 0, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        g = torch.Generator().manual_seed(1000 * self.rank + self.batches)
        length = int(torch.randint(4, 9, (), generator=g))
        self.batches += 1
        self.tokens += 4 * length
        return torch.randint(0, VOCABULARY, (4, length), generator=g)

    def state_dict(self) -> dict[str, int]:
        return {"batches": self.batches, "tokens": self.tokens}

    def lineage_data(self) -> dict[str, str]:
        return {"data_mix": "made documents", "data_order": "by rank and number"}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.batches, self.tokens = state["batches"], state["tokens"]


class Cached(BlockingAsyncStager):  # type: ignore[misc]
    """Stages the first save, and hands the same out for each later one."""

    first: Any = None

    def stage(self, state: Any) -> Any:
        if self.first is None:
            self.first = copy.deepcopy(super().stage(state))
        return self.first


class Loop:
    """One process's part of a run."""

    def __init__(self, kind: str, fault: str = "", **options: Any) -> None:
        self.kind, self.fault = kind, fault
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        net = Net()
        if fault == "dtype":
            net.to(torch.bfloat16)
        early = self._optimizer(net, **options) if fault == "stale optimizer" else None
        if fault == "untied":
            net.to(device="meta")
            net.to_empty(device="cpu")  # what a model that is made on the meta device goes through
        if early is not None and kind == "ddp":
            net = copy.deepcopy(net)
        self.model = self._wrap(net)
        self.optimizer = early or self._optimizer(self.model, **options)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step / 10))
        self.scaler = (
            torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2) if kind == "ddp" else None
        )
        self.loader = Documents(self.rank)
        self.ema = {_clean(n): p.detach().clone() for n, p in self.trained(self.model)}
        self.done = 0
        self.losses: list[float] = []
        self.pending: Any = None
        self.savers = dist.new_group(backend="gloo")  # whose collectives come from the thread that saves
        torch.manual_seed(100 + self.rank)

    def _wrap(self, net: Net) -> Any:
        if self.kind == "ddp":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # torch renames broadcast_buffers
                return torch.nn.parallel.DistributedDataParallel(net)
        from torch.distributed.fsdp import fully_shard

        fully_shard(net)
        return net

    def _optimizer(self, model: Any, **options: Any) -> torch.optim.AdamW:
        trained = [p for _, p in self.trained(model)]
        return torch.optim.AdamW(trained, **({"lr": 1e-2, "betas": BETAS, "weight_decay": 0.1} | options))

    @staticmethod
    def trained(model: Any) -> list[tuple[str, Any]]:
        """(name, parameter) without the head, which is tied."""
        return [(n, p) for n, p in model.named_parameters() if not n.endswith("head.weight")]

    # -- saving and loading

    def states(self, *, optimizer: bool = True) -> dict[str, Any]:
        """Everything that a faithful resume needs. `shared key`: what is each rank's own has one key for all."""
        own = "" if self.fault == "shared key" else f"_{self.rank}"
        found = {
            "scheduler": self.scheduler.state_dict(),
            "step": self.done,
            "unsaved": _inner(self.model).unsaved.clone(),
            f"loader{own}": self.loader.state_dict(),
            f"random{own}": torch.get_rng_state(),
            "ema": {n: t.clone() for n, t in self.ema.items()},  # DCP loads into what it is given
        }
        if optimizer:
            found["model"], found["optimizer"] = get_state_dict(self.model, self.optimizer)
        else:
            found["model"] = get_model_state_dict(self.model)
        if self.scaler is not None:
            found["scaler"] = self.scaler.state_dict()
        return found

    def load(self, path: Path) -> None:
        """Load a checkpoint, and lose of it what the fault says."""
        alone = self.fault == "one rank from another step" and self.rank == 1
        path = path.with_name(f"step-{SAVED - EVERY}") if alone else path
        states = self.states(optimizer=self.fault not in ("moments", "stale optimizer"))
        if self.fault == "rng of another rank" and self.rank == 1:
            states["random_0"] = states.pop("random_1")
        dcp.load(states, checkpoint_id=path, no_dist=self.fault == "one rank from another step")
        if "optimizer" in states:
            both = {"model_state_dict": states["model"], "optim_state_dict": states["optimizer"]}
            set_state_dict(self.model, self.optimizer, **both)
        else:
            set_model_state_dict(self.model, states["model"])
        if self.fault == "counter":
            for state in self.optimizer.state.values():
                state["step"].zero_()
        self._load_rest(states)
        self.done = SAVED if alone else states["step"]

    def _load_rest(self, states: dict[str, Any]) -> None:
        f = self.fault
        if f != "scheduler":
            self.scheduler.load_state_dict(states["scheduler"])
        if self.scaler is not None and f != "scaler":
            self.scaler.load_state_dict(states["scaler"])
        if f != "buffer":
            _inner(self.model).unsaved.copy_(states["unsaved"])
        if f != "ema":
            self.ema = states["ema"]
        if f != "loader from the start":
            self.loader.load_state_dict(_of(states, "loader"))
        if f == "loader skips":
            next(self.loader)
        if not (f == "no rng" or (f == "rng above 0" and self.rank > 0)):
            torch.set_rng_state(_of(states, "random"))

    # -- training

    def go(
        self,
        root: Path,
        runs: Path,
        start: Path | None = None,
        last: int = LAST,
        asynchronous: bool = False,
        **attach: Any,
    ) -> Loop:
        """Train to the step `last`; a save at each step that EVERY divides."""
        if start is not None:
            self.load(start)
        rec = lineage.attach(
            None,
            dir=runs,
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            loader=self.loader,
            ema=self.ema,
            config={
                "lr": self.optimizer.defaults["lr"],
                "weight_decay": self.optimizer.defaults["weight_decay"],
            },
            resumed_from=start,
            quiet=True,
            report=False,
            **({"state_every": 1, "agree_every": 1} | attach),
        )
        stager = Stager(Cached() if self.fault == "stale staging" else None)
        with rec:
            for batch in self.loader:
                with rec.step(self.done + 1, {"ids": batch}) as st:
                    loss = self.update(batch)
                    st.loss(loss)
                self.done += 1
                self.losses.append(float(loss.detach()))
                if self.done % EVERY == 0:
                    self.save(rec, root / f"step-{self.done}", stager if asynchronous else None)
                if self.done == last:
                    break
            self.settle()
        return self

    def update(self, batch: torch.Tensor) -> torch.Tensor:
        """One update. Returns the loss."""
        loss: torch.Tensor = self.model(batch)
        self.optimizer.zero_grad()
        if self.scaler is not None and self.fault != "stale optimizer":  # the scaler itself refuses one
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        self.scheduler.step()
        with torch.no_grad():
            _inner(self.model).unsaved.add_(0.01)
            for name, p in self.trained(self.model):
                self.ema[_clean(name)].lerp_(p.detach(), 0.5)
        return loss

    def save(self, rec: Any, path: Path, stager: Any) -> None:
        """Save; where there is a stager by DCP's async_save, which writes while training goes on."""
        self.settle()
        if stager is None:
            dcp.save(self.states(), checkpoint_id=path)
            rec.checkpoint(path, step=self.done)
            return
        writer = Held(path)
        with rec.saving(self.done, stager=stager) as save:
            future = dcp.async_save(
                self.states(),
                checkpoint_id=path,
                async_stager=stager,
                storage_writer=writer,
                process_group=self.savers,
            )
        self.pending = (future, save, writer)

    def settle(self) -> None:
        """Let the save that is under way write, and wait for it."""
        if self.pending is not None:
            (future, save, writer), self.pending = self.pending, None
            writer.may.set()
            future.result()
            save.commit(writer.path)


class Held(dcp.FileSystemWriter):  # type: ignore[misc]
    """Writes only when it is let: after the next updates."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may = threading.Event()

    def write_data(self, *args: Any) -> Any:
        assert self.may.wait(60)
        return super().write_data(*args)


def _of(states: dict[str, Any], name: str) -> Any:
    return next(v for k, v in states.items() if k.startswith(name))


def _clean(name: str) -> str:
    return name.removeprefix("module.")


def _inner(model: Any) -> Any:
    return getattr(model, "module", model)


# -- what several ranks run in one go

FAULTS = (
    "moments",
    "counter",
    "scheduler",
    "scaler",
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
    "shared key",
    "stale staging",
)


def every_fault(rank: int, world: int, root: str, kind: str) -> dict[str, list[float]]:
    """A run, then a resume with each fault, each in a copy of the run's ledger as it was then. Returns the losses."""
    folder = Path(root)
    losses = {"saved": Loop(kind).go(folder / "saved", folder / "saved" / "runs").losses}
    for fault in ("shared key", "stale staging"):  # these are in the saves already
        loop = Loop(kind, fault)
        loop.go(folder / fault, folder / fault / "runs", asynchronous=fault == "stale staging")
    dist.barrier()
    for fault in ("", *FAULTS):
        if fault == "scaler" and kind != "ddp":
            continue
        source = folder / (fault if fault in ("shared key", "stale staging") else "saved")
        runs = folder / "resumed" / (fault or "healthy")
        if rank == 0:
            shutil.copytree(source / "runs", runs)
        dist.barrier()
        options = {"lr": 3e-2, "weight_decay": 0.3} if fault == "arguments" else {}
        loop = Loop(kind, fault, **options)
        losses[fault or "healthy"] = loop.go(
            folder / "again" / fault, runs, start=source / f"step-{SAVED}"
        ).losses
        dist.barrier()
    return losses


def save_asynchronously(rank: int, world: int, root: str, kind: str) -> None:
    """A run whose saves are written only after the next updates, then a resume from one."""
    folder = Path(root)
    Loop(kind).go(folder, folder / "runs", asynchronous=True)
    dist.barrier()
    Loop(kind).go(folder / "again", folder / "runs", start=folder / f"step-{SAVED}")


def save_on_many(rank: int, world: int, root: str) -> None:
    """A run under FSDP2."""
    Loop("fsdp2").go(Path(root), Path(root) / "runs")


def resume_on_fewer(rank: int, world: int, root: str) -> None:
    """A resume of it, on as many ranks as there are."""
    Loop("fsdp2").go(Path(root) / "again", Path(root) / "runs", start=Path(root) / f"step-{SAVED}")
