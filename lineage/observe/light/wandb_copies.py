"""What is copied of W&B's calls."""

from __future__ import annotations

import time

from .events import SWITCH, put, put_start, unhandled
from .values import scalars

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from typing import Any

_CHANGED: set[int] = set()
"""ids of configs whose change is in the queue and has not been read yet: a loop of assignments is one event"""


def starting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`wandb.init` is about to be called: the one look at a tracker before an original, bounded in time."""
    SWITCH.held = SWITCH.before(kwargs) if SWITCH.before is not None else None


def started(args: tuple[Any, ...], kwargs: dict[str, Any], run: Any) -> None:
    """`wandb.init` returned a run, perhaps one that was there before."""
    facts: dict[str, Any] = {k: kwargs[k] for k in ("resume", "resume_from", "fork_from") if k in kwargs}
    for name in ("name", "resumed", "starting_step"):
        facts[name] = getattr(run, name, None)
    facts["unhandled"] = unhandled()
    facts["held"], SWITCH.held = SWITCH.held, None
    put_start(("wandb started", time.time(), run, run.config, facts))


def logged(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`run.log(data, step, commit)`, and `wandb.log`, which is bound to it."""
    if len(args) == 2 and not kwargs:
        put(("wandb logged", time.time(), args[0], scalars(args[1]), None, None))
        return
    data = args[1] if len(args) > 1 else kwargs.get("data")
    step = args[2] if len(args) > 2 else kwargs.get("step")
    commit = args[3] if len(args) > 3 else kwargs.get("commit")
    put(("wandb logged", time.time(), args[0], scalars(data), step, commit))


def defined(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`run.define_metric(name, step_metric=...)`."""
    name = args[1] if len(args) > 1 else kwargs.get("name")
    axis = args[2] if len(args) > 2 else kwargs.get("step_metric")
    if axis is not None and not isinstance(axis, str):
        axis = getattr(axis, "name", None)
    put(("wandb defined", time.time(), args[0], name, axis))


def configured(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """A config was updated or a key of it set. The values are read on the observer's thread."""
    config = args[0]
    if id(config) not in _CHANGED:
        _CHANGED.add(id(config))
        put(("wandb configured", time.time(), config))


def read(config: Any) -> None:
    """The change of a config is about to be read: the next one is an event again."""
    _CHANGED.discard(id(config))


def finished(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`run.finish(exit_code)`."""
    code = args[1] if len(args) > 1 else kwargs.get("exit_code")
    put(("wandb finished", time.time(), args[0], code))


def left(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """The end of `with wandb.init() as run:`."""
    put(("wandb finished", time.time(), args[0], 1 if args[1:] and args[1] is not None else 0))
