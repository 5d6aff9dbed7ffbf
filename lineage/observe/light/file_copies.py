"""What is copied of saves and loads: the path, its file, and the names at the top of what was saved."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from . import place
from .events import SWITCH, put

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from typing import Any

STEP_KEYS = ("global_step", "step", "iteration", "iter", "num_updates", "iter_num", "epoch")
"""Keys of a saved dictionary that tell its step, the surest first; an epoch is none, and is kept as a fact."""
_MOST = 64
_INSIDE = threading.local()


def torch_saved(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`torch.save(obj, f)`."""
    obj = args[0] if args else kwargs.get("obj")
    _file("saved", "torch.save", args[1] if len(args) > 1 else kwargs.get("f"), obj)


def torch_loaded(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`torch.load(f)`."""
    _file("loaded", "torch.load", args[0] if args else kwargs.get("f"), result)


def safetensors_saved(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`save_file(tensors, filename)`, for torch and numpy."""
    name = args[1] if len(args) > 1 else kwargs.get("filename")
    tensors = args[0] if args else kwargs.get("tensors", kwargs.get("tensor_dict"))
    _file("saved", "safetensors save_file", name, tensors)


def safetensors_loaded(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`load_file(filename)`, for torch and numpy."""
    _file("loaded", "safetensors load_file", args[0] if args else kwargs.get("filename"), result)


def _file(kind: str, by: str, target: Any, obj: Any) -> None:
    if getattr(_INSIDE, "folder", None):
        return  # a part of a distributed checkpoint, which is told as a whole
    if SWITCH.attached is not None and SWITCH.attached():
        return
    path = path_of(target)
    if path is None:
        if kind == "saved":
            SWITCH.memory_saves += 1  # into memory: which file it goes to is not seen
        return
    put((kind, time.time(), by, path, _stat(path), summary(obj), None))
    _recording_due(kind)


def folder_saved(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`torch.distributed.checkpoint.save`."""
    _folder("saved", "torch.distributed.checkpoint.save", args, kwargs, None)


def folder_staged(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`torch.distributed.checkpoint.async_save`: it is there when its future is done."""
    future = getattr(result, "upload_completion", result)
    _folder("saved", "torch.distributed.checkpoint.async_save", args, kwargs, future)


def folder_loaded(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`torch.distributed.checkpoint.load`."""
    _folder("loaded", "torch.distributed.checkpoint.load", args, kwargs, None)


def entering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A distributed save or load begins on this thread: single files inside it are parts of it."""
    _INSIDE.folder = True


def leaving(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    """It ended with an exception."""
    _INSIDE.folder = False


def _folder(kind: str, by: str, args: tuple[Any, ...], kwargs: dict[str, Any], future: Any) -> None:
    _INSIDE.folder = False
    target = kwargs.get("checkpoint_id")
    if target is None:
        target = getattr(kwargs.get("storage_writer") or kwargs.get("storage_reader"), "path", None)
    path = path_of(target)
    if path is None or (SWITCH.attached is not None and SWITCH.attached()):
        return
    state = args[0] if args else kwargs.get("state_dict")
    put((kind, time.time(), by, path, _stat(path), summary(state), future))
    _recording_due(kind)


def _recording_due(kind: str) -> None:
    """Bring in the recording part where no tracker does: at a save, and in the further ranks of a launch."""
    if SWITCH.recording or SWITCH.refused:
        return
    further = os.environ.get("RANK", "0") not in ("", "0") and os.environ.get("WORLD_SIZE", "1") != "1"
    if (kind == "saved" and not place.is_child()) or further:
        from . import recording

        recording()


def path_of(target: Any) -> str | None:
    """The absolute path behind what was given as a file; None for memory and for what lies on no file system."""
    if not isinstance(target, str | os.PathLike):
        target = getattr(target, "name", None)
    if not isinstance(target, str | os.PathLike):
        return None
    try:
        path = os.fspath(target)
    except TypeError:
        return None
    if not isinstance(path, str) or "://" in path:
        return None
    return os.path.abspath(path)


def _stat(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def summary(obj: Any) -> dict[str, Any]:
    """The top-level names of a saved object: a step is kept as a number, all else as the name of its type.

    No tensor is touched, and nothing of the object is held.
    """
    if not isinstance(obj, Mapping):
        return {}
    out: dict[str, Any] = {}
    for key in obj:
        if len(out) >= _MOST:
            break
        name = str(key)
        if name in STEP_KEYS and type(obj[key]) is int:
            out[name] = obj[key]
        else:
            out[name] = _kind(obj[key]) if name not in out else out[name]
    return out


def _kind(value: Any) -> str:
    if hasattr(value, "element_size") or type(value).__name__ == "ndarray":
        return "tensor"
    if isinstance(value, Mapping):
        return "optimizer" if "param_groups" in value and "state" in value else "mapping"
    return type(value).__name__
