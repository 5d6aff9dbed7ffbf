"""`lineage incident cause`: what broke it, where a replay shows it; else that it is unknown, and what was tried."""

from __future__ import annotations

from typing import Annotated, get_args

import typer
from pydantic import ValidationError
from rich.markup import escape
from uuid6 import uuid7

from .._rooms import schemas
from ..judge.cause import NotAdmissible, proof
from ..recorder.mitigations import text
from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, Subject, console, emit, ending, find, short
from .incident_facts import Which
from .incident_writing import By, Links, filled, links, who, write

NAME = "cause"
FAMILIES = get_args(schemas.Family)


def command(
    run: Run = None,
    said: Annotated[str, typer.Option("--text", help="The cause in words; or what was tried.")] = "",
    replay: Annotated[
        str | None,
        typer.Option(
            help="The replay with one condition changed that flips the symptom: its uid.", show_default=False
        ),
    ] = None,
    family: Annotated[str | None, typer.Option(help=f"{', '.join(FAMILIES)}.", show_default=False)] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Nobody knows. It is a good answer.")] = False,
    link: Links = None,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Write down the cause of an incident, apart from its recovery.

    A cause needs a replay in which one condition was changed and the symptom came or went. That training ran after a
    restart, with or without a change, is no evidence of a cause, and cannot be written down as one.
    """
    if unknown == (replay is not None):
        raise CliError(
            "give --replay, the uid of a replay in which one changed condition flips the symptom, or --unknown. That "
            "it ran after a restart is not admissible"
        )
    if not said.strip():
        raise CliError("--text says what broke it, or what was tried")
    filled(text=said, by=by)
    subject = find(run)
    life = incident_facts.choose(subject, which, incident_facts.command_name(subject, run))
    payloads: list[schemas.Model] = []
    shown, raised = "unknown", list[str]()
    if replay is not None:
        if family not in FAMILIES:
            raise CliError(f"--family takes {', '.join(FAMILIES)}; not {family!r}")
        cause = _cause(subject, life.uid, replay, family, said, by)
        payloads.append(cause)
        raised = _raised(subject, cause)
        shown = f"{family}: {said}"
    payloads.append(life.adds("diagnosed", note=text(said), links=links(link), by=who(by)))
    write(subject, life.segment, payloads, caused_by=life.records[-1:])
    if as_json:
        emit({"incident": life.uid, "records": payloads})
    else:
        console.print(f"incident {short(life.uid)} is diagnosed as far as it goes: {escape(shown)}")
        if raised and family not in raised:
            console.print(f"the replay itself raises {', '.join(raised)}: that it is {family} is said by you")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def _cause(
    subject: Subject, incident: str, name: str, family: str | None, said: str, by: str | None
) -> schemas.RootCause:
    """The record of the cause. Raises `CliError` where the replay is no proof."""
    try:
        found = proof(subject.ledger.records, name)
        return schemas.RootCause.model_validate(
            {
                "uid": str(uuid7()),
                "incident": incident,
                "family": family,
                "text": text(said),
                "proof": found,
                "by": who(by),
            }
        )
    except (NotAdmissible, ValidationError) as e:
        raise CliError(
            f"{e} So it is no proof of a cause; --unknown writes down what was tried instead", Exit.FOUND
        ) from None


def _raised(subject: Subject, cause: schemas.RootCause) -> list[str]:
    """The families that the proving replay raises."""
    of = [r.payload for r in subject.ledger.of("replay") if r.payload.uid == cause.proof.replay]
    return list(dict.fromkeys(e.family for p in of for e in p.effects if e.direction == "raises"))


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
