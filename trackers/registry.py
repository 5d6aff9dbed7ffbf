"""Which adapter goes with which run object: looked up lazily, so that no tracker is imported for nothing.

Ours first; then what other distributions bring (`plugins`).
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import Any

from . import plugins
from .base import Tracker

ADAPTERS = MappingProxyType(
    {
        "wandb": ("wandb_.adapter:WandbTracker", "pip install 'runlineage[wandb]'"),
        "mlflow": ("mlflow_.adapter:MlflowTracker", "pip install 'runlineage[mlflow]'"),
        "local": ("local:LocalTracker", ""),
    }
)
"""kind -> (module:class relative to this package, what installs it)"""


def kind_of(run: object) -> str | None:
    """Tell which tracker a run object belongs to, from the module of its class; None if none is known.

    A `wandb.Run`, an `mlflow.ActiveRun` or `mlflow.entities.Run`, an `(MlflowClient, run_id)` pair; a run of a
    module that an installed adapter is named after; an adapter itself.
    """
    subject = run[0] if isinstance(run, tuple) and len(run) == 2 else run
    tops = [cls.__module__.partition(".")[0] for cls in type(subject).__mro__]
    ours = next((top for top in tops if top in ADAPTERS), None)
    if ours is not None:
        return ours
    if plugins.is_tracker(run):
        return str(run.kind)  # type: ignore[attr-defined]
    theirs = plugins.installed()
    return next((top for top in tops if top in theirs), None)


def adapter(kind: str, run: Any, **options: Any) -> Tracker:
    """Build the adapter of a kind around a run object.

    Raises `ImportError` naming what installs the tracker, `KeyError` for an unknown kind.
    """
    if plugins.is_tracker(run):
        return run  # type: ignore[no-any-return]
    if kind not in ADAPTERS:
        return plugins.built(kind, run, **options)
    path, hint = ADAPTERS[kind]
    module, _, name = path.partition(":")
    try:
        cls = getattr(importlib.import_module(f".{module}", __package__), name)
    except ImportError as e:
        raise ImportError(f"the {kind} adapter needs {e.name}: {hint}") from e
    tracker: Tracker = cls(run, **options)
    return tracker
