"""What the commands of an incident ask the ledger and the disk for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from .._rooms import schemas
from ..bundle import MANIFEST as BUNDLE_MANIFEST
from ..judge import gate as gate_
from ..judge import quarantined
from ..judge.first_hour import Facts
from ..judge.incident_life import Life, lives
from ..ledger import evidence, evidence_store
from ..ledger.reader import Ledger
from . import events, judging
from .common import CliError, Exit, Subject

Which = Annotated[
    str | None,
    typer.Option(
        "--incident",
        help="Which incident: its uid or the end of it; the newest open one by default.",
        show_default=False,
    ),
]


def command_name(subject: Subject, run: str | None) -> str:
    """How the run is named in the commands that are shown: as it was named, else by its folder."""
    return shlex.quote(run or str(subject.ledger.path))


def choose(subject: Subject, which: str | None, run: str) -> Life:
    """The incident that is meant. Raises `CliError` that says what to do where there is none."""
    found = lives(subject.ledger.records)
    if which is not None:
        fitting = [x for x in found if x.uid == which or (len(which) >= 6 and x.uid.endswith(which))]
        if len(fitting) != 1:
            known = ", ".join(x.uid[-8:] for x in found) or "none"
            raise CliError(f"no incident of this ledger is {which}; there are: {known}")
        return fitting[0]
    still = [x for x in found if x.is_open]
    if still or found:
        return (still or found)[-1]
    bads = judging.first_bads(subject)
    if bads:
        cell = next(iter(bads.values())).cell
        where = f"rank {cell.rank} at step {cell.step:,} is abnormal" if cell else "something is abnormal"
        raise CliError(
            f"no incident is on record in {subject.ledger.path}, and {where}: `lineage incident open {run}` opens one",
            Exit.CANNOT_TELL,
        )
    raise CliError(
        f"no incident is on record in {subject.ledger.path}, and nothing in it is abnormal. If something is wrong all "
        f"the same: lineage incident open {run} --title 'WHAT IS WRONG' --step STEP",
        Exit.CANNOT_TELL,
    )


def others(subject: Subject, life: Life) -> list[Life]:
    """Further incidents that are open."""
    return [x for x in lives(subject.ledger.records) if x.is_open and x.uid != life.uid]


def bad_of(subject: Subject, life: Life) -> schemas.FirstBad | None:
    """The first bad cell that an incident is about; where a person named a step of their own, what lies around it."""
    found = judging.first_bads(subject).get(life.segment)
    step = life.latest.first_bad_step
    by_hand = life.latest.opened_by == "person" and step is not None
    if (
        step is None
        or not by_hand
        or (found is not None and found.cell is not None and found.cell.step == step)
    ):
        return found
    before = subject.graph.before(life.segment, step - 1)
    after = [
        n
        for n in subject.graph.nodes.values()
        if n.segment == life.segment and n.checkpoint.step >= step and n.checkpoint.status != "incomplete"
    ]
    first = min(after, key=lambda n: n.checkpoint.step, default=None)
    return schemas.FirstBad(
        cell=None,
        last_good_step=step - 1,
        last_good_checkpoint=before[0].uid if before else None,
        first_bad_checkpoint=first.uid if first else None,
    )


def about(subject: Subject) -> tuple[str, schemas.FirstBad] | None:
    """(segment, first bad cell) whose evidence is to be kept: of the newest open incident, else of the newest bad cell.

    For an incident that names no step, the newest complete checkpoint stands in for the last good one.
    """
    found = judging.first_bads(subject)
    still = [x for x in lives(subject.ledger.records) if x.is_open]
    if still:
        life = still[-1]
        bad = bad_of(subject, life)
        if bad is None:
            before = subject.graph.before(life.segment, subject.graph.last_step.get(life.segment, 0))
            bad = schemas.FirstBad(cell=None, last_good_checkpoint=before[0].uid if before else None)
        return life.segment, bad
    return list(found.items())[-1] if found else None


def held(ledger: Ledger) -> gate_.Held:
    """What of the evidence is on the disk. Its digests are `lineage verify`'s to check."""
    root = ledger.path

    def stored(p: schemas.Preserved) -> bool:
        if not (root / p.location / evidence.MANIFEST).is_file():
            return False
        return p.at is None or evidence_store.is_url(p.at) or Path(p.at).exists()

    return gate_.Held(
        stored=stored,
        bundle=lambda b: (root / b.location / BUNDLE_MANIFEST).is_file(),
        captured=lambda segment: any((root / "captured" / segment).glob("*")),
        there=lambda path: evidence_store.is_url(path) or Path(path).exists(),
    )


def gate(subject: Subject, life: Life, run: str) -> gate_.Gate:
    """The evidence of an incident."""
    bad = bad_of(subject, life)
    return gate_.gate(subject.ledger.records, life, subject.graph, bad, held(subject.ledger), run)


def facts(subject: Subject, life: Life, run: str) -> Facts:
    """All that the checklist needs."""
    bad = bad_of(subject, life)
    records = subject.ledger.records
    found = quarantined.quarantine(records, graph=subject.graph, bads=judging.first_bads(subject))
    cell = bad.cell if bad else None
    near = events.near(subject, cell.segment, cell.rank, cell.step) if cell else []
    return Facts(
        run=run,
        life=life,
        graph=subject.graph,
        records=records,
        gate=gate_.gate(records, life, subject.graph, bad, held(subject.ledger), run),
        bad=bad,
        unmarked=len(found.unmarked),
        bundle=_bundle(subject, life, cell),
        bundles=_bundles(subject, life, cell),
        others=len({r.rank for r in _of_step(subject, life, cell)}) > 1,
        events=tuple(near),
    )


def _there(subject: Subject, life: Life) -> list[schemas.Record]:
    """The records of the incident's bundles that are there."""
    root = subject.ledger.path
    found = subject.ledger.of("bundle", life.segment)
    return [r for r in found if (root / r.payload.location / BUNDLE_MANIFEST).is_file()]


def _of_step(subject: Subject, life: Life, cell: schemas.Cell | None) -> list[schemas.Record]:
    """Of them, those of the first bad step."""
    step = cell.step if cell else life.latest.first_bad_step
    return [r for r in _there(subject, life) if r.payload.first_bad_step == step]


def _bundle(subject: Subject, life: Life, cell: schemas.Cell | None) -> str | None:
    """The folder of the bundle to make the step again from: the first bad rank's, else another's of that step."""
    rank, step = (cell.rank, cell.step) if cell else (life.latest.first_bad_rank, life.latest.first_bad_step)
    mine = _there(subject, life)
    best = sorted(mine, key=lambda r: (r.payload.first_bad_step != step, r.rank != rank, r.at))
    return shlex.quote(str(subject.ledger.path / best[0].payload.location)) if best else None


def _bundles(subject: Subject, life: Life, cell: schemas.Cell | None) -> str | None:
    """The folder with a bundle of the first bad step of every rank, for a replay at the run's size."""
    mine = _of_step(subject, life, cell)
    info = subject.graph.segments.get(life.segment)
    world = (info.world_size if info else None) or 1
    if world < 2 or {r.rank for r in mine} != set(range(world)):
        return None
    return shlex.quote(str((subject.ledger.path / mine[0].payload.location).parent))
