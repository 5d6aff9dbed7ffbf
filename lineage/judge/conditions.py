"""The conditions at one point of a segment: config, live values, code and environment, and where each was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .._rooms import schemas
from .drift import Side
from .graph import Graph, latest

SETTLED = ("after_first_step", "in_run", "save")
"""Moments at which live values hold what a step was made under."""


@dataclass(frozen=True)
class Conditions:
    """What held at a point, and the records that say so."""

    side: Side
    sources: Mapping[str, schemas.Record] = field(default_factory=dict)
    """config, effective, code, environment, and `effective.<concept>` where a later change decides"""

    def source(self, concept: str, effective: bool) -> schemas.Record | None:
        """The record that a concept's value was read from."""
        if concept == "code":
            return self.sources.get("code")
        if concept in ("software", "hardware"):
            return self.sources.get("environment")
        if not effective:
            return self.sources.get("config")
        return self.sources.get(f"effective.{concept}") or self.sources.get("effective")


def at_start(records: Sequence[schemas.Record], segment: str) -> Conditions:
    """The conditions under which a segment began: those of its first step. The lowest rank speaks for it."""
    settled = [r for r in records if r.kind != "effective" or r.payload.moment == "after_first_step"]
    sources = {
        kind: found for kind in ("config", "code", "environment") if (found := latest(records, kind, segment))
    }
    held = latest(settled, "effective", segment, first=True)
    if held is not None:
        sources["effective"] = held
    start = latest(records, "effective", segment, first=True)
    return Conditions(_side(sources, dict(start.payload.lr_ahead) if start else {}), sources)


def at(
    records: Sequence[schemas.Record],
    graph: Graph,
    segment: str,
    step: int | None = None,
    checkpoint: str | None = None,
) -> Conditions:
    """The conditions at the end of a step of a segment (None: at its end).

    The live values of the segment's first step, and each change in its course up to the step.
    """
    mine = [r for r in records if r.segment == segment]
    early = [r for r in mine if step is None or r.step is None or r.step <= step]
    sources = {
        kind: found
        for kind in ("config", "code", "environment")
        if (found := latest(early, kind, segment) or latest(mine, kind, segment, first=True))
    }
    held = _held(mine, early, segment)
    if held is not None:
        sources["effective"] = held
    if _imported(graph, segment) and "effective" not in sources:
        _add_reported(records, graph, segment, step, sources)
    node = graph.nodes.get(checkpoint or "")
    start = latest(mine, "effective", segment, first=True)
    ahead = node.checkpoint.lr_ahead if node and node.checkpoint.lr_ahead else None
    if ahead is None:
        ahead = start.payload.lr_ahead if start else {}
    side = _side(sources, dict(ahead))
    for r in _moved(mine, held, step):
        side = _with_changes(side, r, sources)
    return Conditions(side, sources)


def _imported(graph: Graph, segment: str) -> bool:
    info = graph.segments.get(segment)
    return info is not None and info.place.node == schemas.IMPORTED


def _add_reported(
    records: Sequence[schemas.Record],
    graph: Graph,
    segment: str,
    step: int | None,
    sources: dict[str, schemas.Record],
) -> None:
    """What a source reports of an imported run, beside its config: asked for, as far as anybody says."""
    path = graph.path_to_segment(segment, step)
    bounds = {s.segment: s.upto for s in path}
    order = {s.segment: i for i, s in enumerate(path)}
    opened = [
        r
        for r in records
        if r.kind == "regime"
        and r.segment in bounds
        and (bounds[r.segment] is None or r.payload.from_step <= (bounds[r.segment] or 0))
    ]
    if not opened:
        return
    newest = max(opened, key=lambda r: (order[r.segment], r.payload.from_step, r.at, r.seq))
    config = sources["config"].payload if "config" in sources else None
    values = dict(config.values) if config else {}
    catalogue = schemas.catalogue()
    for concept, value in newest.payload.values.items():
        values = {k: v for k, v in values.items() if getattr(catalogue.of_key(k), "id", None) != concept}
        values[concept] = value
    told = schemas.Config(source="reported", values=values, digest=newest.payload.id)
    sources["config"] = replace(newest, payload=told)


def _held(
    mine: Sequence[schemas.Record], early: Sequence[schemas.Record], segment: str
) -> schemas.Record | None:
    """The newest settled live values by then, else the segment's first ones."""
    settled = [r for r in early if r.kind != "effective" or r.payload.moment in SETTLED]
    after = [r for r in mine if r.kind != "effective" or r.payload.moment in SETTLED]
    return (
        latest(settled, "effective", segment)
        or latest(after, "effective", segment, first=True)
        or latest(mine, "effective", segment)
    )


def _moved(
    mine: Sequence[schemas.Record], held: schemas.Record | None, step: int | None
) -> list[schemas.Record]:
    """Changes within the segment, later than its live values were read, up to the step."""
    found = [
        r
        for r in mine
        if r.kind == "drift"
        and r.payload.moment == "in_run"
        and (held is None or held.at <= r.at)
        and (step is None or r.payload.from_step <= step)
    ]
    return sorted(found, key=lambda r: (r.payload.from_step, r.at))


def _with_changes(side: Side, record: schemas.Record, sources: dict[str, schemas.Record]) -> Side:
    values = dict(side.effective.values) if side.effective else {}
    for c in record.payload.changes:
        if c.effective_after is not None:
            read_from = c.read_from or "a change in the segment's course"
            values[c.concept] = schemas.EffectiveValue(value=c.effective_after, read_from=read_from)
            sources[f"effective.{c.concept}"] = record
    unseen = side.effective.unseen if side.effective else {}
    effective = schemas.Effective(
        moment="in_run", values=values, unseen={k: v for k, v in unseen.items() if k not in values}
    )
    return Side(side.config, effective, side.code, side.environment, side.lr_ahead)


def _side(sources: Mapping[str, schemas.Record], ahead: dict[int, list[float]]) -> Side:
    def payload(kind: str) -> object:
        return sources[kind].payload if kind in sources else None

    return Side(
        config=payload("config"),  # type: ignore[arg-type]
        effective=payload("effective"),  # type: ignore[arg-type]
        code=payload("code"),  # type: ignore[arg-type]
        environment=payload("environment"),  # type: ignore[arg-type]
        lr_ahead=ahead,
    )
