"""What is read off a Lightning Trainer: its run, its config, what it trains with. Lightning is not imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..capture import autocast
from ..recorder.recorder import Recorder
from ._common import active_run

TRAINER = (
    "max_steps",
    "max_epochs",
    "min_steps",
    "min_epochs",
    "gradient_clip_val",
    "accumulate_grad_batches",
    "precision",
    "num_nodes",
    "limit_train_batches",
    "limit_val_batches",
    "overfit_batches",
    "reload_dataloaders_every_n_epochs",
    "val_check_interval",
    "check_val_every_n_epoch",
    "log_every_n_steps",
    "default_root_dir",
)
"""Arguments of the Trainer that it keeps under the same name."""

SAVES = ("monitor", "mode", "save_top_k", "save_last", "save_weights_only", "dirpath", "filename")
"""Arguments of ModelCheckpoint that it keeps under the same name."""


def run_of(trainer: Any) -> Any:
    """The tracker's run that the Trainer's loggers write to, W&B's first; else one that is open in this process.

    None on ranks above 0: there loggers hold a dummy.
    """
    if not trainer.is_global_zero:
        return None
    loggers = {c.__name__: logger for logger in trainer.loggers for c in type(logger).__mro__}
    if "WandbLogger" in loggers:
        return loggers["WandbLogger"].experiment
    if "MLFlowLogger" in loggers:
        return loggers["MLFlowLogger"].experiment, loggers["MLFlowLogger"].run_id
    return active_run()


def config_of(trainer: Any) -> dict[str, Any]:
    """What was asked for: the Trainer's arguments, the hparams of module and data module, ModelCheckpoint's."""
    asked = {k: v for k in TRAINER if (v := getattr(trainer, k, None)) is not None}
    algorithm = getattr(trainer, "gradient_clip_algorithm", None)
    if algorithm is not None:
        asked["gradient_clip_algorithm"] = str(getattr(algorithm, "value", algorithm))
    asked |= {"devices": trainer.num_devices, "strategy": type(trainer.strategy).__name__}
    found: dict[str, Any] = {"trainer": asked}
    for name, holder in (("hparams", trainer.lightning_module), ("data", trainer.datamodule)):
        hparams = getattr(holder, "hparams", None)
        if hparams:
            found[name] = _plain(hparams)
    saves = next((c for c in trainer.checkpoint_callbacks if hasattr(c, "save_top_k")), None)
    if saves is not None:
        found["checkpoint"] = {k: v for k in SAVES if (v := getattr(saves, k, None)) is not None}
    return found


def _plain(hparams: Any) -> Any:
    """The hparams as a dict; OmegaConf's as it is."""
    return dict(hparams) if isinstance(hparams, dict) else hparams


def objects_of(trainer: Any) -> tuple[dict[str, Any], list[str]]:
    """(the objects that are trained with, what of them is not followed, in words)."""
    gaps = []
    optimizers = list(trainer.optimizers)
    if len(optimizers) > 1:
        gaps.append(f"{len(optimizers)} optimizers: only the first is followed")
    schedulers = [c.scheduler for c in trainer.lr_scheduler_configs]
    if len(schedulers) > 1:
        gaps.append(f"{len(schedulers)} schedulers: only the first is followed")
    found = {
        "model": trainer.strategy.model,
        "optimizer": optimizers[0] if optimizers else None,
        "scheduler": schedulers[0] if schedulers else None,
        "scaler": getattr(trainer.precision_plugin, "scaler", None),
        "ema": averaged(trainer),
    }
    return {k: v for k, v in found.items() if v is not None}, gaps


def averaged(trainer: Any) -> Any:
    """The averaged weights that Lightning's own WeightAveraging callback keeps; None where there are none."""
    return next((m for c in trainer.callbacks if (m := getattr(c, "_average_model", None)) is not None), None)


def loader_of(trainer: Any) -> Any:
    """The training loader as Lightning made it, with the sampler that it put in; a list of several."""
    combined = trainer.fit_loop._combined_loader
    loaders = list(combined.flattened) if combined is not None else []
    return loaders[0] if len(loaders) == 1 else loaders or None


def resumed_from(trainer: Any) -> str | None:
    """The checkpoint that the Trainer loads. A link (`save_last="link"`) is followed to what it stands for."""
    path = trainer.ckpt_path
    if not path:
        return None
    if "://" in str(path):
        return str(path)
    return os.path.realpath(path) if Path(path).is_symlink() else str(path)


def look_for_autocast(rec: Recorder, module: Any) -> None:
    """Lightning calls `training_step`, not the module itself: its children are called, and show autocast."""
    if rec.watched.model is not module:
        return  # the wrapper around it is called
    for child in module.children():
        if next(child.parameters(), None) is not None:
            autocast.look_once(child, rec.seen)


def loss_of(outputs: Any, trainer: Any) -> Any:
    """The loss of a micro-batch from what `training_step` gave; None where it gave none.

    Lightning divides it by the number of accumulated batches before it hands it on.
    """
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    if loss is None or (not hasattr(loss, "detach") and not isinstance(loss, int | float)):
        return None
    divided = trainer.lightning_module.automatic_optimization
    if divided and not trainer.strategy.handles_gradient_accumulation:
        return loss * trainer.accumulate_grad_batches
    return loss


def inner(io: Any) -> Iterator[Any]:
    """A CheckpointIO, and those that it is wrapped around, from the outside in."""
    while io is not None:
        yield io
        io = getattr(io, "checkpoint_io", None)
