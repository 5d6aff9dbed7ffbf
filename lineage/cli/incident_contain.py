"""`lineage incident contain`: training was stopped, and what was saved since is not gone on from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder.mitigations import text
from . import incident_facts, judging
from .common import Exit, Json, Run, console, emit, ending, find, short
from .incident_facts import Which
from .incident_writing import By, Links, Told, filled, links, messages, who
from .preserving import name_later, open_journal

NAME = "contain"


def command(
    run: Run = None,
    how: Annotated[
        str | None, typer.Option(help="How it was stopped, such as 'job 4711 cancelled'.", show_default=False)
    ] = None,
    told: Told = None,
    link: Links = None,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Write down that no more harm is done, and quarantine the checkpoints from after the first bad step.

    It stops no job: it records that you did.
    """
    filled(how=how, told=told, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    journal = open_journal(subject, life.segment)
    marked = name_later(subject, journal, judging.first_bads(subject))
    journal.append(
        life.adds("contained", note=text(how), messages=messages(told), links=links(link), by=who(by)),
        caused_by=life.records[-1:],
    )
    journal.append(seal(heads(subject.ledger.path)[0], "incident"))
    journal.close()
    if as_json:
        emit({"incident": life.uid, "quarantined": list(marked)})
    else:
        console.print(f"incident {short(life.uid)} is contained{f': {escape(how)}' if how else ''}")
        if marked:
            console.print(
                f"{len(marked)} checkpoints from after the first bad step are marked as quarantined"
            )
        console.print(f"next: [bold]lineage incident preserve {escape(name)}[/]")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
