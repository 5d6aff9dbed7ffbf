"""A learning-rate schedule by its future: what it will give at coming steps, and what it is made of."""

from __future__ import annotations

import copy
import functools
import hashlib
import types
from typing import Any

HORIZONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
"""How many updates ahead the learning rate is predicted."""

_PROGRESS = {
    "last_epoch",
    "_step_count",
    "_last_lr",
    "_get_lr_called_within_step",
    "_is_initial",
    "verbose",
    "best",
    "num_bad_epochs",
    "cooldown_counter",
    "T_cur",
    "T_i",
}
_BASE = {"base_lrs", "optimizer", "lr_lambdas", "_initial_step", "_initial_lr"}
_TRUSTED = ("torch.optim", "transformers.")


def ahead(scheduler: Any, step: int, *, upto: int = HORIZONS[-1]) -> dict[int, list[float]]:
    """Predict the learning rates per group that the scheduler will set, by step (completed updates).

    A copy of the scheduler is stepped on a stand-in optimizer; the live objects are not touched. Schedulers
    whose next value depends on metrics, and those of unknown make, give an empty answer: stepping a copy of
    somebody's own class could have effects outside it.
    """
    kind = type(scheduler)
    if not kind.__module__.startswith(_TRUSTED) or not hasattr(scheduler, "get_lr"):
        return {}
    import torch

    live = scheduler.optimizer
    groups = [
        {"params": [torch.zeros(1)], **{k: v for k, v in g.items() if k != "params"}}
        for g in live.param_groups
    ]
    stand_in = torch.optim.SGD([{"params": g["params"], "lr": 0.0} for g in groups], lr=0.0)
    for group, source in zip(stand_in.param_groups, groups, strict=True):
        group.update({k: v for k, v in source.items() if k != "params"})
    twin = copy.copy(scheduler)
    twin.__dict__ = {
        k: (stand_in if v is live else v if k == "lr_lambdas" else copy.deepcopy(v, {id(live): stand_in}))
        for k, v in scheduler.__dict__.items()
        if not callable(v) or k == "lr_lambdas"
    }
    stand_in.step = _no_step
    stand_in._opt_called = True  # what the scheduler looks for before it warns of a wrong order
    out = {step: [float(g["lr"]) for g in live.param_groups]}
    for n in range(1, upto + 1):
        kind.step(twin)
        if n in HORIZONS:
            out[step + n] = [float(g["lr"]) for g in stand_in.param_groups]
    return out


def _no_step(*_: Any, **__: Any) -> None:
    """The stand-in's step: nothing to do, and no warning from a scheduler that looks for its mark."""


_no_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def describe(scheduler: Any) -> str:
    """What a schedule is made of, without where it stands: class, shape parameters, and its functions."""
    state = {
        k: v
        for k, v in vars(scheduler).items()
        if k not in _PROGRESS | _BASE and isinstance(v, int | float | str | bool | list | tuple | dict)
    }
    parts = [f"{k}={_text(v)}" for k, v in sorted(state.items())]
    parts += [_function(f) for f in getattr(scheduler, "lr_lambdas", ())]
    inner = getattr(scheduler, "_schedulers", ())
    parts += [describe(s) for s in inner]
    return f"{type(scheduler).__name__}({', '.join(parts)})"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(v) for v in value) + "]"
    return str(value) if isinstance(value, int | str | bool) else type(value).__name__


def _function(f: Any) -> str:
    """Name a function with its bound arguments, its closure's plain values and a digest of its code."""
    if isinstance(f, functools.partial):
        bound = [_text(a) for a in f.args] + [f"{k}={_text(v)}" for k, v in sorted(f.keywords.items())]
        return f"{_function(f.func)}({', '.join(bound)})"
    if isinstance(f, types.FunctionType):
        cells = [_text(c.cell_contents) for c in f.__closure__ or () if _plain(c)]
        constants = [c for c in f.__code__.co_consts if isinstance(c, int | float | str | None)]
        code = hashlib.sha256(f.__code__.co_code + repr(constants).encode()).hexdigest()[:8]
        return f"{f.__qualname__.rpartition('.')[2]}@{code}" + (f"{{{','.join(cells)}}}" if cells else "")
    held = [f"{k}={_text(v)}" for k, v in sorted(getattr(f, "__dict__", {}).items())]
    return f"{type(f).__name__}({', '.join(held)})"


def _plain(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, int | float | str | bool)
    except ValueError:  # an empty cell
        return False
