"""A `.ckpt` of Lightning's Trainer, or its folder with `meta.pt` beside `.metadata` (FSDP, ModelParallel).

lightning 2.6, pytorch/trainer/connectors/checkpoint_connector.py, `dump_checkpoint`: epoch, global_step,
pytorch-lightning_version, state_dict, loops; and unless weights_only: callbacks, optimizer_states, lr_schedulers, the
precision plugin's state under its class name (MixedPrecision: the scaler). No random states. Without optimizer_states
or lr_schedulers `restore_optimizers_and_schedulers` raises KeyError.
"""

from __future__ import annotations

from typing import Any

from .. import optimizer, taking, torch_file
from ..contents import Contents
from ..errors import CheckpointError
from ..folder import Folder
from . import dcp, ranks

NAME = "lightning"
VERSION = "pytorch-lightning_version"
META = "meta.pt"
_NEEDED = {"optimizer_states": "optimizer_state", "lr_schedulers": "lr_scheduler"}


def looks(folder: Folder) -> bool:
    """A saved dict with Lightning's version, as a file or as meta.pt of a folder."""
    if folder.only is None:
        return folder.has(META) and folder.has(dcp.METADATA)
    if torch_file.looks(torch_file.head_of(folder, folder.only)) is None:
        return False
    try:
        made = torch_file.read(folder, folder.only)
    except CheckpointError:
        return False
    return isinstance(made.value, dict) and VERSION in made.value


def read(folder: Folder, c: Contents) -> None:
    """What is there of a checkpoint of Lightning, and what a resume would do without the rest."""
    name = folder.only or META
    made = taking.torch(c, folder, name, None)
    value = made.value if made and isinstance(made.value, dict) else {}
    c.title = f"Lightning {value.get(VERSION, '')}".strip()
    step = value.get("global_step")
    if isinstance(step, int):
        c.step, c.step_from = step, f"{name}: global_step"
    if folder.only is None:
        inner = Contents(c.path, dcp.NAME, "", step=c.step)
        dcp.read(folder, inner)
        inner.findings = [f for f in inner.findings if f.code not in ("LIN-K006", "LIN-K008", "LIN-K009")]
        c.world = inner.world
        ranks.absorb(c, inner, folder, "", {"weights", "optimizer_state", "optimizer_step"}, folder)
    else:
        c.shards = [name]
    if made is not None:
        _state(folder, c, made, value)


def _state(folder: Folder, c: Contents, made: torch_file.TorchFile, value: dict[str, Any]) -> None:
    if folder.only is not None:
        weights = made.tensors("weights", value.get("state_dict", {}))
        c.tensors += weights
        c.part(
            "weights",
            "present" if weights else "missing",
            f"{len(weights):,} tensors in state_dict",
            made.name,
        )
        if not weights:
            c.find(
                "LIN-K004",
                "fails",
                f"{made.name} has no tensors in state_dict",
                "Take another one.",
                "weights",
            )
    if "optimizer_states" not in value and "lr_schedulers" not in value:
        _weights_only(c)
    else:
        _optimizers(folder, c, made, value)
    scale = _scaler(value)
    if scale is not None:
        c.part("grad_scaler", "present", f"of the precision plugin: scale {scale}")
    else:
        c.part("grad_scaler", "unknown", "none; only 16-mixed has one")
    c.part("rng", "by_design", "Lightning saves no random states")
    c.find(
        "LIN-K008",
        "differs",
        "Lightning saves no random states: dropout, augmentation and shuffling go other ways after a resume",
        "Save them in on_save_checkpoint and set them in on_load_checkpoint, or declare that they are not restored.",
        "rng",
    )
    _loops(c, value)


def _weights_only(c: Contents) -> None:
    for component in ("optimizer_state", "optimizer_step", "lr_scheduler"):
        c.part(component, "missing", "saved with weights_only")
    c.find(
        "LIN-K005",
        "fails",
        "it was saved with weights_only: `Trainer.fit(ckpt_path=...)` stops for want of optimizer_states",
        "Take a checkpoint that was saved with save_weights_only=False.",
        "optimizer_state",
    )


def _optimizers(folder: Folder, c: Contents, made: torch_file.TorchFile, value: dict[str, Any]) -> None:
    for key, component in _NEEDED.items():
        if key not in value:
            c.part(component, "missing", f"no {key}")
            c.find(
                "LIN-K005" if component == "optimizer_state" else "LIN-K006",
                "fails",
                f"{made.name} has no {key}: Lightning stops when it restores them",
                "Take another checkpoint.",
                component,
            )
    states = [s for s in value.get("optimizer_states") or () if optimizer.looks(s)]
    for i, s in enumerate(states):
        state = optimizer.state(s, made, folder)
        # Lightning's global_step counts the updates of all optimizers together.
        name = "the optimizer" if len(states) == 1 else f"optimizer {i}"
        optimizer.check(c, state, name, skips=len(states) > 1 or _scaler(value) is not None)
        if len(states) == 1:
            optimizer.shapes(c, state, name)
        c.tensors += made.tensors("optimizer_state", s["state"])
    if "optimizer_states" in value and not states and "optimizer_state" not in c.parts:
        c.part("optimizer_state", "missing", "optimizer_states is empty: the module has none")
    if schedulers := value.get("lr_schedulers"):
        last = schedulers[0].get("last_epoch") if isinstance(schedulers[0], dict) else None
        c.part("lr_scheduler", "present", f"{len(schedulers)}, the first at {last}")
    elif "lr_schedulers" in value:
        c.part("lr_scheduler", "by_design", "lr_schedulers is empty: the module has none")


def _scaler(value: dict[str, Any]) -> Any:
    """MixedPrecision.state_dict is the scaler's, kept under the plugin's class name."""
    for v in value.values():
        if isinstance(v, dict) and "scale" in v and "growth_factor" in v:
            return v["scale"]
    return None


def _loops(c: Contents, value: dict[str, Any]) -> None:
    """loops.fit_loop: the progress of batches, and the loader's own state where it is stateful."""
    loop = value.get("loops", {})
    fit = loop.get("fit_loop", {}) if isinstance(loop, dict) else {}
    loaders = fit.get("state_dict", {}).get("combined_loader") if isinstance(fit, dict) else None
    if loaders:
        c.part("loader_position", "present", f"{len(loaders)} stateful loaders in loops.fit_loop")
        return
    batch = fit.get("epoch_loop.batch_progress", {}) if isinstance(fit, dict) else {}
    current = batch.get("current", {}) if isinstance(batch, dict) else {}
    at = current.get("completed") if isinstance(current, dict) else None
    last = batch.get("is_last_batch") if isinstance(batch, dict) else None
    c.part("loader_position", "missing", f"batch {at} of the epoch, and no state of a loader")
    c.find(
        "LIN-K009",
        "fine" if last or not at else "differs",
        f"the loader's position is not saved (batch {at} of its epoch): "
        + (
            "the epoch was complete"
            if last or not at
            else "Lightning goes on with its count, and the loader begins its epoch anew, with samples seen before"
        ),
        "Save at the ends of epochs, or use a stateful loader (torchdata's StatefulDataLoader).",
        "loader_position",
    )
