"""Several ledgers as one: their records together, and what sidecars tell of ledgers that are not at hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .._rooms import schemas
from .graph import Graph, Stretch, build


@dataclass(frozen=True)
class World:
    """All that is known when states of one or several ledgers are compared or drawn."""

    records: Sequence[schemas.Record]
    graph: Graph
    bad: Mapping[str, schemas.FirstBad] = field(default_factory=dict)
    """segment -> its first bad cell"""
    damage: Sequence[str] = ()
    """what of the ledgers could not be read, in words"""


@dataclass(frozen=True)
class Branch:
    """One state and the path that led to it."""

    name: str
    """run:<id> or checkpoint:<uid>, as verdicts name it"""
    segment: str
    checkpoint: str | None
    path: tuple[Stretch, ...]


def join(
    ledgers: Iterable[Iterable[schemas.Record]],
    *,
    sidecars: Sequence[tuple[schemas.Sidecar, str]] = (),
    ancestors: Mapping[str, Sequence[str]] | None = None,
    reached: Mapping[str, int] | None = None,
    bad: Mapping[str, schemas.FirstBad] | None = None,
    damage: Sequence[str] = (),
) -> World:
    """Put ledgers side by side. Uids are unique, so segments and checkpoints keep theirs.

    `sidecars` (each with where it was read) stand for checkpoints whose ledger is not at hand. `ancestors` maps
    checkpoints to the ancestors that sidecars name, parent first. A record that two copies of one ledger hold
    counts once.
    """
    records = {r.id: r for ledger in ledgers for r in ledger}
    held = {r.segment for r in records.values()}
    known = [(s, place) for s, place in sidecars if s.segment.uid not in held]
    for sidecar, place in known:
        for r in from_sidecar(sidecar, place):
            records.setdefault(r.id, r)
    ordered = sorted(records.values(), key=lambda r: (r.at, r.file, r.seq))
    told = dict(ancestors or {})
    for sidecar, _ in sidecars:
        told |= chain(sidecar.ancestors)
    graph = build(ordered, reached=reached, ancestors=told, unheld=[s.segment.uid for s, _ in known])
    return World(ordered, graph, bad or {}, damage)


def chain(ancestors: Sequence[str]) -> dict[str, Sequence[str]]:
    """Each of a line of ancestors (parent first) with those before it."""
    return {uid: ancestors[i + 1 :] for i, uid in enumerate(ancestors[:-1])}


def branch(world: World, *, segment: str | None = None, checkpoint: str | None = None) -> Branch:
    """A checkpoint, or the newest state of a segment, with its path. Raises `KeyError` for one that is not known."""
    graph = world.graph
    if checkpoint is not None:
        of = graph.nodes[checkpoint].segment
        return Branch(f"checkpoint:{checkpoint}", of, checkpoint, tuple(graph.path_to(checkpoint)))
    if segment is None or segment not in graph.segments:
        raise KeyError(segment)
    return Branch(f"run:{graph.runs[segment]}", segment, None, tuple(graph.path_to_segment(segment)))


def from_sidecar(sidecar: schemas.Sidecar, place: str) -> list[schemas.Record]:
    """What a sidecar tells, as records of the segment that saved its checkpoint.

    Their time is that of the uids, which begin with it; their file is the sidecar.
    """
    found = [
        sidecar.segment,
        sidecar.config,
        sidecar.code,
        sidecar.environment,
        sidecar.effective,
        sidecar.checkpoint,
    ]
    payloads = [p for p in found if p is not None]
    step = sidecar.checkpoint.step
    return [
        _record(
            sidecar, place, seq, p, step if p is not sidecar.segment else sidecar.segment.parent_step or 0
        )
        for seq, p in enumerate(payloads)
    ]


def _record(sidecar: schemas.Sidecar, place: str, seq: int, payload: Any, step: int) -> schemas.Record:
    uid = sidecar.segment.uid if payload is sidecar.segment else sidecar.checkpoint.uid
    return schemas.Record(
        id=_id(sidecar.checkpoint.uid, seq),
        run=sidecar.run,
        segment=sidecar.segment.uid,
        rank=sidecar.rank,
        step=step,
        at=time_of(uid),
        mono=0.0,
        seq=seq,
        prev=None,
        payload=payload,
        raw=b"",
        file=place,
    )


def _id(uid: str, seq: int) -> str:
    """An id that follows from the checkpoint's, so that a sidecar read twice gives each record once."""
    return str(uuid.uuid5(uuid.UUID(uid), str(seq)))


def time_of(uid: str) -> datetime:
    """The time with which a UUIDv7 begins."""
    return datetime.fromtimestamp((uuid.UUID(uid).int >> 80) / 1000, UTC)
