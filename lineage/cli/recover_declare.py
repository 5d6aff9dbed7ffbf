"""`lineage recover declare`: the run is as it was before. Refused while evidence is missing, or where it is not so."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..judge import trajectory
from ..judge.carried_out import carried_out
from ..judge.first_hour import resumed
from ..recorder.mitigations import text
from . import incident_facts, judging, recover_compare, recover_gathered
from .common import CliError, Exit, Json, Run, console, emit, ending, find, short
from .incident_facts import Which
from .incident_writing import By, Despite, Told, filled, messages, who, write
from .recover_gathered import Horizons

NAME = "declare"


def command(
    run: Run = None,
    at: Horizons = None,
    segment: Annotated[
        int | None,
        typer.Option(help="Number of the repaired run's first segment.", show_default=False),
    ] = None,
    despite: Despite = None,
    told: Told = None,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Declare a run recovered: evidence is held, a decision was made, and it goes on as it went before.

    That it no longer crashes is not enough, and what broke it stays as open as it was.
    """
    filled(despite=despite, told=told, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    facts = incident_facts.facts(subject, life, name)
    missing = [f"{e.what}: {e.text}" for e in facts.gate.missing]
    if not life.recoveries:
        missing.append(f"no decision is on record: lineage recover {name} --owner NAME")
    elif resumed(facts) is None:
        missing.append("no segment started from the restart point since the decision")
    found = recover_gathered.compare(subject, life, facts, segment, recover_gathered.horizons(at))
    if life.recoveries:
        decided = life.recoveries[-1].payload
        missing += [
            f"segment {found.segment} did not do as was decided: {odd}"
            for odd in carried_out(subject.ledger.records, decided, found.record.segment, silent=False)
        ]
    if trajectory.outside(found.record.horizons) or not trajectory.judged(found.record.horizons):
        missing.append(trajectory.summary(found.record.horizons))
    if not as_json:
        recover_compare.show(found.record, found.segment)
    if missing and not despite:
        raise CliError(
            f"incident {short(life.uid)} is not declared recovered:\n  "
            + "\n  ".join(missing)
            + "\n--despite REASON declares it all the same; the reason stands in the record, and the audit shows it",
            Exit.FOUND,
        )
    said = life.adds(
        "recovered",
        note=trajectory.summary(found.record.horizons),
        messages=messages(told),
        by=who(by),
        missing=missing or None,
        override=text(despite) if missing else None,
    )
    write(subject, life.segment, [found.record, said], caused_by=life.records[-1:])
    if as_json:
        emit({"incident": life.uid, "missing": missing, "trajectory": found.record})
    else:
        console.print(f"\nincident {short(life.uid)} is declared recovered. What broke it is another matter")
        for m in missing:
            console.print(f"[bold red]although:[/] {escape(m)}")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def add(app: typer.Typer) -> None:
    """Register it."""
    app.command(NAME)(command)
