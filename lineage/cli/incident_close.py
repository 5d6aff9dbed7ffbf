"""`lineage incident close`: the end of an incident, with what was learnt."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..judge.incident_life import Life
from ..recorder.mitigations import text
from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, console, emit, ending, find, short
from .incident_facts import Which
from .incident_writing import By, Despite, Links, Told, filled, links, messages, who, write

NAME = "close"


def command(
    run: Run = None,
    why: Annotated[str, typer.Option(help="What was learnt, or why nothing more is to be done.")] = "",
    despite: Despite = None,
    told: Told = None,
    link: Links = None,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Close an incident. Refused while evidence is missing, or where nothing at all is said of the cause."""
    if not why.strip():
        raise CliError(
            "--why says what was learnt. That training goes on is no reason: it does not tell the cause"
        )
    filled(why=why, despite=despite, told=told, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    if not life.is_open:
        raise CliError(f"incident {short(life.uid)} is closed already")
    missing = lacking(life, [f"{e.what}: {e.text}" for e in incident_facts.gate(subject, life, name).missing])
    if missing and not despite:
        lines = "\n  ".join(missing)
        raise CliError(
            f"incident {short(life.uid)} is not closed, since something is missing:\n  {lines}\n"
            f"`lineage incident {name}` says what to do; --despite REASON closes it all the same, on record",
            Exit.FOUND,
        )
    closed = life.adds(
        "closed",
        note=text(why),
        messages=messages(told),
        links=links(link),
        by=who(by),
        missing=missing or None,
        override=text(despite) if missing else None,
    )
    write(subject, life.segment, [closed], caused_by=life.records[-1:])
    if as_json:
        emit({"incident": life.uid, "missing": missing})
    else:
        console.print(f"incident {short(life.uid)} is closed: {escape(why)}")
        for m in missing:
            console.print(f"[bold red]although missing:[/] {escape(m)}")
        console.print(f"next: [bold]lineage postmortem {escape(name)} --incident {short(life.uid)}[/]")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def lacking(life: Life, evidence: list[str]) -> list[str]:
    """What is missing for an end: evidence, and a word on the cause."""
    out = list(evidence)
    if life.reached("diagnosed") is None:
        out.append(
            "nothing is said of the cause: `lineage incident cause --unknown` is an answer, if it says what was tried"
        )
    return out


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
