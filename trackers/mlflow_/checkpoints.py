"""Checkpoints as LoggedModels without weights, and the edges between them and the run."""

from __future__ import annotations

from typing import Any

from .._rooms import schemas
from ..base import Shown
from . import layout
from .limits import dumps, key
from .store import ModelsUnsupported, RunFacts, Store

UID_TAG = "lineage/uid"


def show(store: Store, facts: RunFacts, record: Shown, segment: int) -> str | None:
    """Show a checkpoint that is complete as a LoggedModel, one that is not as a tag; pending ones not yet."""
    payload: Any = record.payload
    if payload.status == "pending":
        return None
    if payload.status == "incomplete":
        return _as_tag(store, facts, payload, segment)
    try:
        return _as_model(store, facts, record, segment)
    except ModelsUnsupported:
        return _as_tag(store, facts, payload, segment)


def _as_model(store: Store, facts: RunFacts, record: Shown, segment: int) -> str:
    """Create the LoggedModel, or take up the one that an earlier try left behind."""
    payload: Any = record.payload
    name = f"ckpt-step-{payload.step}"
    model = store.find_model(facts.experiment, payload.uid)
    if model is None:
        known = layout.checkpoint(payload, segment)
        tags = {
            "mlflow.model.isExternal": "true",  # MLflow looks for no weights
            UID_TAG: payload.uid,
            "lineage/run": record.run,
            "lineage/step": str(payload.step),
        }
        if payload.manifest:
            tags["lineage/manifest"] = payload.manifest.root
        if payload.parents:
            tags["lineage/parents"] = " ".join(payload.parents)
        params = {k: str(v) for k, v in known.items()}
        model = store.create_model(facts.experiment, name, params, tags)
    store.finish_model(model)
    if model not in facts.outputs:
        store.add_output(model, payload.step)
    for parent in payload.parents:
        _add_parent(store, facts, parent, own=facts.outputs | {model})
    return f"LoggedModel {name} ({model})"


def _add_parent(store: Store, facts: RunFacts, uid: str, own: frozenset[str]) -> None:
    """Add a parent that another run wrote as an input of this run. Parents of its own are outputs already."""
    parent = store.find_model(facts.experiment, uid)
    if parent is not None and parent not in facts.inputs and parent not in own:
        store.add_input(parent)


def resumed_from(store: Store, facts: RunFacts, uid: str) -> str | None:
    """Add the LoggedModel that a segment resumed from as an input of the run; return its id, if any.

    One that this run wrote itself stays its output alone: MLflow's page has one row per model, and as an
    input it would lose its step. The segment's tag names it.
    """
    try:
        model = store.find_model(facts.experiment, uid)
    except ModelsUnsupported:
        return None
    if model is not None and model not in facts.inputs | facts.outputs:
        store.add_input(model)
    return model


def mark(store: Store, facts: RunFacts, payload: schemas.CheckpointMark) -> str | None:
    """Tag the LoggedModel of a checkpoint with a later fact about it."""
    return tag(store, facts, payload.checkpoint, {f"lineage/{payload.mark}": "true"})


def tag(store: Store, facts: RunFacts, uid: str, tags: dict[str, str]) -> str | None:
    """Tag the LoggedModel of a checkpoint; None where there is none."""
    try:
        model = store.find_model(facts.experiment, uid)
    except ModelsUnsupported:
        return None
    if model is None:
        return None
    store.tag_model(model, tags)
    return f"LoggedModel {model}"


def _as_tag(store: Store, facts: RunFacts, payload: schemas.Checkpoint, segment: int) -> str:
    """Show a checkpoint as `lineage/checkpoint/<step>`; a second one of that step has its uid in the key."""
    text = dumps(layout.checkpoint(payload, segment))
    name = key("checkpoint", str(payload.step))
    if payload.uid not in facts.tags.get(name, payload.uid):
        name = key("checkpoint", f"{payload.step}-{payload.uid}")
    store.log({name: text})
    return f"tag {name}"
