"""What is read of a tracker's run when it starts: local knowledge only, no call leaves the process."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .._rooms import schemas, trackers
from .observation import Key, Start


def wandb_run(run: Any, asked: dict[str, Any]) -> Start:
    """Of a W&B run: its alias, and what was asked of `wandb.init`."""
    alias = trackers.adapter("wandb", run).alias()
    facts = {k: asked[k] for k in ("resume", "resume_from", "fork_from") if asked.get(k)}
    if asked.get("resumed") or facts.get("resume_from"):
        facts["resumed"] = True
    return Start(
        alias,
        name=asked.get("name"),
        asked=facts,
        held=asked.get("held"),
        unhandled=asked.get("unhandled", 0),
    )


def wandb_config(config: Any) -> dict[str, Any]:
    """A copy of a W&B config without W&B's own key. It may be changed meanwhile on another thread."""
    for _ in range(3):
        try:
            return {str(k): copy.deepcopy(v) for k, v in dict(config.items()).items()}
        except RuntimeError:  # a dictionary changed its size while it was read
            continue
    return {}


def mlflow_run(
    uri: str,
    run_id: str,
    experiment: Any,
    name: Any,
    parent: Any,
    params: Mapping[str, Any] | None,
    *,
    new: bool,
) -> Start:
    """Of an MLflow run: its alias, and the params that it held before, where it goes on."""
    alias = trackers.adapter("mlflow", (SimpleNamespace(tracking_uri=uri), run_id)).alias()
    if experiment is not None:
        alias = schemas.TrackerAlias.model_validate(alias.model_dump() | {"project": str(experiment)})
    asked = {} if new else {"resumed": True}
    return Start(alias, name=name, asked=asked, parent=parent, held=None if new else params)


def key_of(run: Any) -> Key | None:
    """The key under which a run that is given to `lineage.attach` is observed; None for no run."""
    kind = trackers.kind_of(run) if run is not None else None
    if kind == "wandb":
        return ("wandb", str(run.id))
    if kind == "mlflow":
        if isinstance(run, tuple):
            return ("mlflow", str(run[0].tracking_uri), str(run[1]))
        import mlflow

        return ("mlflow", str(mlflow.get_tracking_uri()), str(run.info.run_id))
    return None
