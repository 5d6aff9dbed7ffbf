"""Real Lightning loops on a tiny model, alone or on several gloo ranks, and what goes wrong when they resume.

`python -m tests.integrations.lightning_loops FOLDER NAME ...` runs segments on the rank that the environment says.
"""

from __future__ import annotations

import copy
import logging
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lineage.integrations.lightning import LineageCallback, LineageCheckpointIO

VOCABULARY, WIDTH, EVERY, SAVED, LAST = 13, 8, 10, 20, 23
BETAS = (0.9, 0.95)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Net(lightning.LightningModule):  # type: ignore[misc]
    """Tied embedding and head, dropout, a buffer that no state_dict holds."""

    def __init__(
        self, fault: str = "", lr: float = 1e-2, weight_decay: float = 0.1, lost_buffer: bool = False
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore="fault")
        self.fault, self.losses = fault, []
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.body = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("usual", torch.zeros(WIDTH), persistent=not lost_buffer)
        if fault == "stale optimizer":
            self.early = self._optimizer()
            self.body, self.embedding = copy.deepcopy(self.body), copy.deepcopy(self.embedding)
            self.head.weight = self.embedding.weight

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        ids = batch[0]
        hidden = self.body(self.dropout(self.embedding(ids[:, :-1])))
        with torch.no_grad():
            self.usual.mul_(0.9).add_(hidden.detach().mean((0, 1)), alpha=0.1)
        logits = self.head(hidden - self.usual)
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        self.losses.append(float(loss.detach()))
        return loss

    def _optimizer(self) -> torch.optim.AdamW:
        trained = [p for name, p in self.named_parameters() if not name.startswith("head")]  # it is tied
        return torch.optim.AdamW(
            trained, lr=self.hparams.lr, betas=BETAS, weight_decay=self.hparams.weight_decay
        )

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        """With `assign=True` each name gets a parameter of its own, those that were tied too."""
        return super().load_state_dict(state, strict, assign or self.fault == "untied")

    def configure_optimizers(self) -> Any:
        optimizer = self.early if self.fault == "stale optimizer" else self._optimizer()
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 10))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What goes wrong in the file, or on the way from it."""
        (optimizer,) = checkpoint["optimizer_states"]
        if self.fault == "moments":
            optimizer["state"] = {}
        elif self.fault == "counter":
            for state in optimizer["state"].values():
                state["step"] = torch.tensor(0.0)
        elif self.fault == "scheduler":
            checkpoint["lr_schedulers"] = []
        elif self.fault == "scaler":
            del checkpoint["MixedPrecision"]
        elif self.fault == "ema":
            del checkpoint["averaging_state"]
            checkpoint["state_dict"] = checkpoint["current_model_state"]
        elif self.fault == "dtype":
            self.to(torch.bfloat16)


class Positioned(DataLoader):  # type: ignore[misc]
    """A loader that knows where it stands, and skips there when it is restored."""

    at = 0

    def __iter__(self) -> Any:
        first, self.at = self.at, 0
        for n, batch in enumerate(super().__iter__(), 1):
            self.at = n
            if n > first:
                yield batch
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"batch": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["batch"]


class Ahead(Positioned):
    """Skips two batches too many, as where a loop fast-forwards a loader that has been restored already."""

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["batch"] + 2


class AtTheStart(Positioned):
    """Forgets what it is told."""

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class Random(lightning.Callback):  # type: ignore[misc]
    """Saves and restores random numbers, each rank its own: Lightning does neither."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.folder, self.fault = folder, fault

    def _file(self, trainer: Any, step: int) -> Path:
        rank = trainer.global_rank
        if self.fault == "rng of another rank" and trainer.global_rank == 1:
            rank = 0
        return self.folder / f"random-{step}-{rank}.pt"

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        state = {"torch": torch.get_rng_state(), "python": random.getstate()}
        torch.save(state, self._file(trainer, trainer.global_step))

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        if self.fault == "rng above 0" and trainer.global_rank > 0:
            return
        state = torch.load(self._file(trainer, checkpoint["global_step"]), weights_only=False)
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])


def loader(fault: str, world: int) -> DataLoader:
    """Forty batches of four on each rank."""
    ids = torch.randint(0, VOCABULARY, (160 * world, 6), generator=torch.Generator().manual_seed(3))
    kind = {"loader skips": Ahead, "loader from the start": AtTheStart, "plain loader": DataLoader}.get(
        fault, Positioned
    )
    data = TensorDataset(ids)
    sampler = (
        DistributedSampler(data, world, int(os.environ["RANK"]), shuffle=False)
        if world > 1
        else torch.utils.data.RandomSampler(data, generator=torch.Generator().manual_seed(8))
    )
    return kind(data, batch_size=4, sampler=sampler, generator=torch.Generator().manual_seed(9))


def fit(
    root: Path,
    *,
    steps: int = LAST,
    start: Path | None = None,
    fault: str = "",
    runs: Path | None = None,
    layer: bool = True,
    seed: int = 1,
    rng: bool = True,
    module: Net | None = None,
    callbacks: tuple[Any, ...] = (),
    saves: dict[str, Any] | None = None,
    net: dict[str, Any] | None = None,
    attach: dict[str, Any] | None = None,
    io: Any = None,
    logger: Any = False,
    plugins: tuple[Any, ...] = (),
    **trainer: Any,
) -> Net:
    """One segment: from the beginning, or from a checkpoint. Returns the module that was trained."""
    root.mkdir(exist_ok=True)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(seed + int(os.environ.get("RANK", "0")))
    random.seed(seed)
    module = Net(fault, **(net or {})) if module is None else module
    data = loader(fault, world)
    every: list[Any] = [
        *callbacks,
        ModelCheckpoint(
            **({"dirpath": root, "every_n_train_steps": EVERY, "save_top_k": -1} | (saves or {}))
        ),
    ]
    if rng:
        every.append(Random(root, fault))
    if layer:
        options = {"dir": runs or root / "runs", "quiet": True, "report": False, "state_every": 1} | (
            attach or {}
        )
        every.append(LineageCallback(**options))
        io = io if io is not None else LineageCheckpointIO()
    if (
        fault == "one rank from another step"
        and world > 1
        and os.environ["RANK"] == "1"
        and start is not None
    ):
        start, steps = checkpoint(root, SAVED - EVERY), steps - EVERY
    lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=1 if world == 1 else world,
        strategy="auto" if world == 1 else "ddp",
        logger=logger,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=root,
        callbacks=every,
        plugins=[*plugins, *([io] if io is not None else [])],
        **trainer,
    ).fit(module, data, ckpt_path=start)
    return module


def scaled() -> MixedPrecision:
    """Lightning's own fp16 plugin, with a scale that a CPU takes and that grows fast."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    return MixedPrecision("16-mixed", device="cpu", scaler=scaler)


def averaging() -> EMAWeightAveraging:
    """Lightning's own averaged weights."""
    return EMAWeightAveraging(decay=0.5)


def checkpoint(root: Path, step: int) -> Path:
    """Where ModelCheckpoint saves; forty batches are an epoch."""
    return root / f"epoch=0-step={step}.ckpt"


RANK_FAULTS = ("", "rng above 0", "rng of another rank", "one rank from another step")


def main(folder: Path) -> None:
    """On every rank: a run, then a resume for each fault, each of which records in a copy of the run's ledger."""
    import shutil

    import torch.distributed as dist

    fit(folder, runs=folder / "saved")
    for fault in RANK_FAULTS:
        runs = folder / (fault.replace(" ", "_") or "healthy")
        if dist.get_rank() == 0:
            shutil.copytree(folder / "saved", runs)
        dist.barrier()
        fit(folder, start=checkpoint(folder, SAVED), fault=fault, runs=runs)
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
