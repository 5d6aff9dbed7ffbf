"""The observer: records what W&B, MLflow, `torch.save` and their like are called with. The calls stay as they are.

    lineage run -- torchrun train.py     # no change to the code

It is read-only: the original is called first, what went in and came out is copied into a queue, and a thread of the
observer's own does the rest. It never raises into a call, never changes a result, and writes to no tracker: what it
sees stands in the ledger. What it cannot see is said: the values in effect need `lineage.attach`.

    import lineage.observe
    lineage.observe.install()            # the same without the command, before the tracker is imported
    lineage.observe.uninstall()
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from typing import Any

from .._rooms import trackers
from ..recorder.identity import TakenOver
from ._light import light
from .observer import Observer, Options

_LOCK = threading.Lock()
_OBSERVER: Observer | None = None


def _at_exit() -> None:
    if _OBSERVER is not None:
        _OBSERVER.at_exit()


def _in_child() -> None:
    if _OBSERVER is not None:
        _OBSERVER.in_child()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def install(options: Options | None = None) -> None:
    """Watch W&B, MLflow, torch and safetensors, those that are imported already and those to come. Idempotent.

    Of a W&B run that began before it, `run.log` is seen and `wandb.log` is not: it was bound to the original.
    Never raises.
    """
    try:
        record(options)
        light.install()
    except Exception as error:
        light.events.failed(error)


def uninstall(timeout: float = 5.0) -> None:
    """Put every original back, finish what was observed within `timeout` seconds, and stop. Idempotent."""
    global _OBSERVER
    with _LOCK:
        observer, _OBSERVER = _OBSERVER, None
    light.events.SWITCH.on = False
    if observer is not None:
        observer.close(timeout)
    light.events.SWITCH.recording = False
    light.uninstall()


def installed() -> bool:
    """Whether calls are being watched."""
    return bool(light.events.SWITCH.on)


def record(options: Options | None = None) -> None:
    """Start the thread that records what the wrapped calls leave. Idempotent."""
    global _OBSERVER
    with _LOCK:
        if _OBSERVER is None:
            # Tests that compare the threads before and after themselves shall see none of ours come.
            _OBSERVER = Observer(options or Options(inline=light.place.is_test_session()))
            _OBSERVER.start()
    light.events.SWITCH.recording = True


def prepare(kind: str) -> None:
    """Import what the recording of a tracker's run needs, on the thread that has just imported the tracker.

    The observer's own thread imports nothing: a process that forks while a module is being imported leaves its
    child with a lock that nobody opens.
    """
    for name in ("capture.code", "capture.environment", "ledger.series", "judge.validity"):
        importlib.import_module(f"..{name}", __package__)
    module, _, _ = trackers.ADAPTERS[kind][0].partition(":")
    importlib.import_module(f"{trackers.__name__}.{module}")


def observer() -> Observer | None:
    """The observer of this process, where there is one."""
    return _OBSERVER


def hand_over(run: Any, recorder: Any) -> TakenOver | None:
    """`lineage.attach` takes a run over: the observer records nothing more of it. Never raises.

    Returns the run and segment in which it had begun to record, None where it had not.
    """
    if _OBSERVER is None:
        return None
    try:
        return _OBSERVER.hand_over(run, recorder)
    except Exception as error:
        light.events.failed(error)
        return None


def catch_up() -> None:
    """Handle what is in the queue now, for a recorder that is about to end. Never raises, waits a second at most."""
    if _OBSERVER is not None:
        try:
            _OBSERVER.catch_up()
        except Exception as error:
            light.events.failed(error)


__all__ = [
    "Options",
    "catch_up",
    "hand_over",
    "install",
    "installed",
    "light",
    "observer",
    "prepare",
    "record",
    "uninstall",
]
