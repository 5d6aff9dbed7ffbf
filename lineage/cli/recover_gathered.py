"""What the commands of a recovery ask the ledger for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from .._rooms import schemas
from ..judge import quarantined, recovery, trajectory, validity
from ..judge.first_hour import Facts, resumed
from ..judge.graph import Stretch
from ..judge.incident_life import Life
from ..ledger import curves
from . import incident_facts, judging
from .common import CliError, Exit, Subject

SIGNALS = ("loss", "grad_norm")
Horizons = Annotated[
    str | None,
    typer.Option(
        "--at",
        help=f"Updates after the restart to look at; {','.join(map(str, trajectory.HORIZONS))} by default.",
        show_default=False,
    ),
]


def horizons(text: str | None) -> Sequence[int]:
    """The horizons that were asked for. Raises `CliError`."""
    if text is None:
        return trajectory.HORIZONS
    try:
        found = sorted({int(x.replace("_", "")) for x in text.split(",")})
    except ValueError:
        raise CliError(f"--at takes numbers of steps, such as 10,100,1000; not {text!r}") from None
    if not found or found[0] < 1:
        raise CliError("--at takes numbers of steps from 1 on")
    return found


def bad_step(life: Life, bad: schemas.FirstBad | None) -> int | None:
    """The first bad step of an incident, as far as it is known."""
    return bad.cell.step if bad and bad.cell else life.latest.first_bad_step


def restart(subject: Subject, life: Life, checkpoint: str | None) -> schemas.RestartPoint:
    """The restart point. Raises `CliError` where there is none."""
    bad = incident_facts.bad_of(subject, life)
    found = quarantined.quarantine(
        subject.ledger.records, graph=subject.graph, bads=judging.first_bads(subject)
    )
    point = recovery.restart_point(subject.graph, found, bad, checkpoint, life.segment)
    if point is None:
        raise CliError(
            "no checkpoint of this run is sound: nothing complete was saved before the first bad step. Start anew, or "
            "name one of another run with --from",
            Exit.CANNOT_TELL,
        )
    return point


def effective(subject: Subject, segment: str, concept: str) -> schemas.Scalar | None:
    """What the live objects of a segment held of a concept, as last read."""
    for r in reversed(subject.ledger.of("effective", segment)):
        held = r.payload.values.get(concept)
        if held is not None:
            value: schemas.Scalar = held.value
            return value
    return None


def now(subject: Subject, point: schemas.RestartPoint) -> schemas.Verdict:
    """What may be concluded from the restart point, today."""
    return validity.verdict(
        subject.ledger.records,
        checkpoint=point.checkpoint,
        bad=judging.first_bads(subject),
        graph=subject.graph,
        damage=judging.damage(subject),
    )


def work(subject: Subject, life: Life, point: schemas.RestartPoint) -> recovery.Work:
    """How much was done since the restart point, and how long a step takes."""
    step = bad_step(life, incident_facts.bad_of(subject, life))
    info = subject.graph.segments.get(life.segment)
    upto = None if step is None else step - 1
    return recovery.Work(
        devices=info.world_size if info else 1,
        restart=point.step,
        last=subject.graph.last_step.get(life.segment),
        bad=step,
        times=curves.step_times(subject.ledger.path, life.segment, upto),
    )


@dataclass(frozen=True)
class Compared:
    """A comparison, and what it is about."""

    record: schemas.Trajectory
    segment: int
    """number of the segment that the repaired run began with"""


def compare(subject: Subject, life: Life, facts: Facts, segment: int | None, at: Sequence[int]) -> Compared:
    """Hold the repaired run against the pre-incident one. Raises `CliError` where nothing was resumed."""
    graph = subject.graph
    first = _repaired(subject, facts, segment)
    info = graph.segments[first]
    start = info.parent_step or 0
    step = bad_step(life, facts.bad)
    last_healthy = graph.last_step.get(life.segment, 0) if step is None else step - 1
    before = graph.path_to_segment(life.segment, last_healthy)
    after = _onwards(subject, first)
    old = curves.along(subject.ledger.path, before, SIGNALS)
    new = curves.along(subject.ledger.path, after, SIGNALS)
    if not new:
        raise CliError(
            f"segment {graph.number(first)} has no loss and no gradient norm on record, so it cannot be compared. Add "
            "`st.loss(loss)` to the loop",
            Exit.CANNOT_TELL,
        )
    given = trajectory.Given(old, new, start, last_healthy)
    decision = facts.life.recoveries[-1].payload.uid if facts.life.recoveries else None
    record = schemas.Trajectory(
        incident=life.uid,
        recovery=decision,
        segment=first,
        before=[s.segment for s in before if s.segment],
        from_step=start,
        reached=max((max(c.values) for c in new), default=start),
        horizons=trajectory.horizons(given, at),
        same_steps=trajectory.same_steps(given),
        parameters=trajectory.parameters(),
        limits=list(trajectory.LIMITS),
    )
    return Compared(record, graph.number(first))


def _repaired(subject: Subject, facts: Facts, number: int | None) -> str:
    """The segment that the repaired run began with."""
    graph = subject.graph
    if number is not None:
        found = next((uid for uid in graph.segments if graph.number(uid) == number), None)
        if found is None:
            raise CliError(f"this run has segments 1 to {len(graph.segments)}; not {number}")
        return found
    carried = resumed(facts)
    if carried is not None:
        return carried.segment
    life = facts.life
    later = [
        uid
        for uid, info in graph.segments.items()
        if uid != life.segment and info.parent_checkpoint in graph.nodes and info.start != "fork"
    ]
    order = list(graph.segments)
    later = [uid for uid in later if order.index(uid) > order.index(life.segment)]
    if not later:
        raise CliError(
            "no segment began after the one that broke, so there is nothing to compare yet; --segment N names one",
            Exit.CANNOT_TELL,
        )
    return later[0]


def _onwards(subject: Subject, first: str) -> list[Stretch]:
    """The path of the repaired run, from its first segment to the newest state that descends from it."""
    graph = subject.graph
    for tip in reversed(graph.tips()):
        path = graph.path_to_segment(tip)
        at = next((i for i, s in enumerate(path) if s.segment == first), None)
        if at is not None:
            return path[at:]
    return graph.path_to_segment(first)[-1:]
