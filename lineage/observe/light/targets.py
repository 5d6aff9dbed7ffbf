"""Which calls are wrapped, and the wrapping and unwrapping of them."""

from __future__ import annotations

import sys

from . import file_copies as files
from . import mlflow_copies as mlflow_
from . import wandb_copies as wandb_
from .importlib_bootstrap_frames import around
from .imports import DCP, TRACKERS, WATCHED

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from collections.abc import Callable
    from typing import Any

__all__ = ["TRACKERS", "WATCHED", "restore", "wrap", "wrapped"]

_WRAPPED: list[tuple[Any, str, Any, Any]] = []
"""(owner, name, original, ours), oldest first"""


def wrap(name: str, module: Any) -> None:
    """Wrap the calls of a module that has just been imported. Where one is not there, the others are wrapped."""
    _WRAPPERS[name](module)


def restore() -> None:
    """Put the originals back, the newest first. What somebody wrapped after us is left; ours inside it is mute."""
    while _WRAPPED:
        owner, name, original, ours = _WRAPPED.pop()
        if vars(owner).get(name) is ours:
            setattr(owner, name, original)


def wrapped() -> list[str]:
    """What is wrapped now, as `module.name`."""
    return [f"{getattr(owner, '__qualname__', owner.__name__)}.{name}" for owner, name, _, _ in _WRAPPED]


def _put(owners: list[Any], name: str, *copies: Any, **more: Any) -> None:
    """Wrap one function in all the places where it stands under its name."""
    first = next((vars(o)[name] for o in owners if o is not None and name in vars(o)), None)
    if not callable(first) or hasattr(first, "__lineage_original__"):
        return
    ours = around(first, *copies, **more)
    for owner in owners:
        if owner is not None and vars(owner).get(name) is first:
            setattr(owner, name, ours)
            _WRAPPED.append((owner, name, first, ours))


def _wandb(module: Any) -> None:
    run = getattr(module, "Run", None)
    sdk = getattr(module, "sdk", None)
    if run is None or sdk is None:
        return  # a folder called wandb, which Python takes for a package
    inner = sys.modules.get("wandb.sdk.wandb_init")
    _put([inner, sdk, module], "init", wandb_.started, before=wandb_.starting)
    _put([run], "log", wandb_.logged)
    _put([run], "define_metric", wandb_.defined)
    _put([run], "finish", wandb_.finished)
    _put([run], "__exit__", wandb_.left)
    config = getattr(sdk, "Config", None)
    if config is not None:
        same = vars(config).get("__setattr__") is vars(config).get("__setitem__")
        _put([config], "__setitem__", wandb_.configured)
        if same:
            _alias(config, "__setattr__", "__setitem__")
        for name in ("update", "setdefaults", "update_locked", "merge_locked"):
            _put([config], name, wandb_.configured)
    # `wandb.log` before `init` only holds the documentation of `Run.log`; after `init` it is bound to the class's.


def _alias(owner: Any, name: str, of: str) -> None:
    original, ours = vars(owner)[name], vars(owner)[of]
    setattr(owner, name, ours)
    _WRAPPED.append((owner, name, original, ours))


def _mlflow(module: Any) -> None:
    client = getattr(module, "MlflowClient", None)
    if client is None:
        return
    _put([client], "create_run", mlflow_.created)
    _put([client], "log_metric", mlflow_.metric)
    _put([client], "log_batch", mlflow_.batch, mlflow_.batch_refused)
    _put([client], "log_param", mlflow_.param, mlflow_.param_refused)
    _put([client], "set_tag", mlflow_.tag)
    _put([client], "set_terminated", mlflow_.ended)
    _put([sys.modules.get("mlflow.tracking.fluent"), module], "start_run", mlflow_.entered)


def _torch(module: Any) -> None:
    inner = sys.modules.get("torch.serialization")
    _put([inner, module], "save", files.torch_saved)
    _put([inner, module], "load", files.torch_loaded)


def _dcp(module: Any) -> None:
    saver, loader = sys.modules.get(f"{DCP}.state_dict_saver"), sys.modules.get(f"{DCP}.state_dict_loader")
    whole: dict[str, Any] = {"before": files.entering}
    _put([saver, module], "save", files.folder_saved, files.leaving, **whole)
    _put([saver, module], "async_save", files.folder_staged)
    _put([loader, module], "load", files.folder_loaded, files.leaving, **whole)


def _safetensors(module: Any) -> None:
    _put([module], "save_file", files.safetensors_saved)
    _put([module], "load_file", files.safetensors_loaded)


_WRAPPERS: dict[str, Callable[[Any], None]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "torch": _torch,
    DCP: _dcp,
    "safetensors.torch": _safetensors,
    "safetensors.numpy": _safetensors,
}
