"""What a rung was made of, under one digest: model, optimizer, config."""

from __future__ import annotations

from typing import Any

from .._rooms import schemas
from ..capture import canonical
from ..capture import config as config_
from ..capture.names import clean


def of(model: Any, optimizer: Any = None, config: Any = None, built_by: str | None = None) -> schemas.Recipe:
    """The recipe of a model and its optimizer.

    Two models with the same names, shapes and types of parameters, the same classes, the same settings of parameter
    groups and the same config have the same digest; what the weights are, and what the model is wrapped in,
    plays no part.
    """
    parameters = list(model.named_parameters())
    shown = config_.capture(config, argv=[]).values if config else {}
    groups = [
        {
            k: v
            for k, v in g.items()
            if k != "params" and isinstance(v, bool | int | float | str | tuple | None)
        }
        for g in getattr(optimizer, "param_groups", ())
    ]
    told = {
        "model": type(_bare(model)).__qualname__,
        "optimizer": type(optimizer).__qualname__ if optimizer is not None else None,
        "groups": groups,
        "parameters": [[clean(n), list(p.shape), str(p.dtype), p.requires_grad] for n, p in parameters],
        "config": {k: v.plain() for k, v in shown.items()},
    }
    return schemas.Recipe(
        digest=canonical.digest(told),
        built_by=built_by,
        model=told["model"],
        optimizer=told["optimizer"],
        parameters=sum(p.numel() for _, p in parameters),
        config=shown,
    )


def _bare(model: Any) -> Any:
    """The module within DDP, FSDP and torch.compile: how a recipe is run is no part of it."""
    while True:
        own = getattr(model, "_modules", None) or {}
        inner = own.get("module") or own.get("_orig_mod") or own.get("_fsdp_wrapped_module")
        if inner is None or len(own) != 1:
            return model
        model = inner
