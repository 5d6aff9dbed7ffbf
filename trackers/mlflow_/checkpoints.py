"""Checkpoints as LoggedModels without weights, and the edges between them and the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import text
from .._rooms import schemas
from ..base import Page, Shown
from . import layout
from .limits import dumps, fit_json, fit_text, key
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


QUARANTINE = {"quarantined": "true", "quarantine_lifted": "lifted"}
"""Mark -> what the tag `lineage/quarantined` of a LoggedModel says then."""


def mark(store: Store, facts: RunFacts, record: Shown, page: Page) -> str:
    """Show a later fact about a checkpoint: on the run as `lineage/mark/<checkpoint>/<mark>`, and on its LoggedModel.

    A quarantine also stands in the run's tag `lineage/quarantined`, in words.
    """
    m: Any = record.payload
    name = key("mark", m.checkpoint, m.mark)
    before = _json(facts.tags.get(name))
    if str(before.get("record", "")) >= record.id:
        return f"tag {name}"
    step = page.step_of(m.checkpoint)
    data = {"record": record.id, "why": text.mark(m, page.share)}
    value, _ = fit_json(data if step is None else {**data, "step": step}, "journal")
    tags = {name: value}
    if m.mark in QUARANTINE:
        tags[key("quarantined")] = fit_text(_quarantined({**facts.tags, **tags}))
    store.log(tags)
    on_model = {f"lineage/{m.mark}": "true"}
    if m.mark in QUARANTINE:
        on_model["lineage/quarantined"] = QUARANTINE[m.mark]
        on_model["lineage/quarantined_why"] = fit_text(data["why"])
    if m.mark == "released":
        on_model["lineage/held"] = "false"
    where = tag(store, facts, m.checkpoint, on_model)
    return f"tag {name}" + (f", {where}" if where else "")


def lifted(tags: Mapping[str, str]) -> set[str]:
    """Return the checkpoints whose quarantine was taken back, by the marks that the run's tags hold."""
    return {
        uid
        for uid, found in _marks(tags).items()
        if str(found.get("quarantine_lifted", {}).get("record", ""))
        > str(found.get("quarantined", {}).get("record", ""))
    }


def _quarantined(tags: Mapping[str, str]) -> str:
    """The line on which checkpoints are not to be resumed from, by the marks that the run's tags hold."""
    held = {uid: found["quarantined"] for uid, found in _marks(tags).items() if "quarantined" in found}
    return text.quarantined({uid: found.get("step") for uid, found in held.items()}, lifted(tags))


def _marks(tags: Mapping[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Checkpoint -> mark -> what its tag holds."""
    marks: dict[str, dict[str, dict[str, Any]]] = {}
    folder = key("mark") + "/"
    for name, value in tags.items():
        if name.startswith(folder):
            uid, _, word = name.removeprefix(folder).partition("/")
            marks.setdefault(uid, {})[word] = _json(value)
    return marks


def _json(value: str | None) -> dict[str, Any]:
    try:
        found = json.loads(value or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
