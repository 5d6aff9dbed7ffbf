"""`lineage incident note`: what was seen, who was told, who looks after it, where it is talked about."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from ..recorder.mitigations import text
from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, console, emit, ending, find, short
from .incident_facts import Which
from .incident_writing import By, Links, Told, filled, links, messages, who, write

NAME = "note"


def command(
    run: Run = None,
    said: Annotated[
        str | None, typer.Option("--text", help="What was seen or done.", show_default=False)
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Who looks after it from now on.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="The first update that is thought to be bad.", show_default=False)
    ] = None,
    rank: Annotated[int | None, typer.Option(help="The rank it began on.", show_default=False)] = None,
    told: Told = None,
    link: Links = None,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Add to an incident. Nothing is taken back, and nothing is sent anywhere."""
    filled(owner=owner, text=said, told=told, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    added: dict[str, Any] = {
        "note": text(said),
        "owner": text(owner),
        "first_bad_step": step,
        "first_bad_rank": rank,
        "messages": messages(told) or None,
        "links": links(link) or None,
    }
    if not any(v is not None for v in added.values()):
        raise CliError("there is nothing to add: give --text, --owner, --told, --link, --step or --rank")
    (record,) = write(subject, life.segment, [life.adds(**added, by=who(by))], caused_by=life.records[-1:])
    if as_json:
        emit({"incident": life.uid, "record": record.id})
    else:
        console.print(f"added to incident {short(life.uid)}: {escape(_words(added))}")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def _words(added: dict[str, Any]) -> str:
    names = {"note": "a note", "first_bad_step": "the first bad step", "first_bad_rank": "the rank"}
    many = {"messages": "message", "links": "link"}
    out = []
    for key, value in added.items():
        if value is None:
            continue
        if key in many:
            out.append(f"{len(value)} {many[key]}{'s' if len(value) > 1 else ''}")
        else:
            out.append(names.get(key, f"{key} {value}"))
    return ", ".join(out)


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
