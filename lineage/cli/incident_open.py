"""`lineage incident open`: something is wrong, whatever the detectors say."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from uuid6 import uuid7

from .._rooms import schemas
from ..recorder.mitigations import concept_of, text
from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, Subject, console, emit, ending, find, short
from .incident_writing import By, Links, Told, filled, links, messages, who, write
from .preserving import name_later, open_journal

NAME = "open"


def command(
    run: Run = None,
    title: Annotated[
        str | None,
        typer.Option(
            help="What is wrong. Without it, the bad cell that the ledger shows.", show_default=False
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Who looks after it.", show_default=False)] = None,
    step: Annotated[
        int | None, typer.Option(help="The first update that is thought to be bad.", show_default=False)
    ] = None,
    rank: Annotated[int | None, typer.Option(help="The rank it began on.", show_default=False)] = None,
    concept: Annotated[
        str | None, typer.Option(help="The training condition that it is about.", show_default=False)
    ] = None,
    told: Told = None,
    link: Links = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Open an incident by hand. It stops no training: that is yours, or `on_alarm="request_stop"`."""
    filled(title=title, owner=owner, told=told, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    if not subject.ledger.segments:
        raise CliError(
            f"{subject.ledger.path} holds no segment: an incident belongs to one", Exit.CANNOT_TELL
        )
    if title is None:
        uid = _by_the_ledger(subject, owner, by)
    else:
        incident = schemas.Incident(
            uid=str(uuid7()),
            title=text(title) or "",
            opened_by="person",
            owner=text(owner),
            concept=None if concept is None else concept_of(concept, "it stands there as it was written"),
            first_bad_step=step,
            first_bad_rank=rank,
            by=who(by),
            messages=messages(told),
            links=links(link),
        )
        write(subject, subject.tip, [incident])
        uid = incident.uid
    if as_json:
        emit({"incident": uid})
    else:
        console.print(f"incident {short(uid)} is open in segment {subject.graph.number(subject.tip)}")
        console.print(f"next: [bold]lineage incident {escape(name)}[/]")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def _by_the_ledger(subject: Subject, owner: str | None, by: str | None) -> str:
    """Open the incidents of bad cells that no process named while it ran; returns the newest one's uid."""
    bads = judging.first_bads(subject)
    named = {r.payload.cell.segment for r in subject.ledger.of("first_bad") if r.payload.cell is not None}
    left = {uid: bad for uid, bad in bads.items() if uid not in named and bad.cell is not None}
    if not left:
        there = f"; {len(named)} incidents of bad cells are open or were" if named else ""
        raise CliError(f"no bad cell is without an incident{there}. --title says what is wrong instead")
    journal = open_journal(subject, list(left)[-1])
    name_later(subject, journal, left)
    journal.close()
    from ..judge.incident_life import lives
    from ..ledger.reader import Ledger

    life = lives(Ledger(subject.ledger.path).records)[-1]
    if owner or by:
        write(subject, life.segment, [life.adds(owner=text(owner), by=who(by))], caused_by=life.records[-1:])
    return life.uid


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
