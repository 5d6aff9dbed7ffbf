"""`lineage postmortem`: one incident as a page that people read, and write their part into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from . import incident_facts, judging
from .common import CliError, Exit, Json, Run, Subject, console, emit, ending, find, short
from .incident_facts import Which

if TYPE_CHECKING:
    from ..report import postmortem

NAME = "postmortem"


def command(
    run: Run = None,
    which: Which = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder to write to; postmortem/INCIDENT in the ledger by default.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write postmortem.md and postmortem.html of one incident: what happened, why as far as shown, and what was done.

    What people wrote into the marked parts of postmortem.md is kept when it is made again, and stands in the HTML too.
    What cannot be kept in place is kept in a file beside it, and said.
    """
    from ..report import postmortem

    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    folder = out or subject.ledger.path / "postmortem" / short(life.uid)
    try:
        kept = postmortem.write(gather(_anywhere(subject), life.uid), folder)
    except postmortem.Foreign as e:
        raise CliError(f"{e}, not of {life.uid}. Name another folder with --out.") from None
    except ImportError as e:
        raise CliError(f"{e} {folder / 'postmortem.md'} is written.") from None
    except OSError as e:
        raise CliError(f"the post-mortem cannot be written: {e}. Name another folder with --out.") from None
    if as_json:
        emit({"incident": life.uid, **vars(kept)})
    else:
        _say(kept)
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def _anywhere(subject: Subject) -> Subject:
    """The same ledger by its absolute path: the commands of a page are read in other folders, months later."""
    place = subject.ledger.path.absolute()
    return subject if place == subject.ledger.path else Subject(type(subject.ledger)(place))


def gather(subject: Subject, incident: str) -> postmortem.Given:
    """All that the page is made of: the report's facts, the checklist's, the suspects and the audit."""
    from .. import report
    from ..judge import audit as audit_
    from ..judge import suspects as suspects_
    from ..ledger import audited, health, pulled
    from ..ledger import suspects as ledger_suspects
    from ..report import postmortem

    name = incident_facts.command_name(subject, None)
    life = incident_facts.choose(subject, incident, name)
    hour = incident_facts.facts(subject, life, name)
    found = None
    if hour.bad is not None and hour.bad.cell is not None:
        path = str(subject.ledger.path)
        found = suspects_.suspects(
            ledger_suspects.gather(subject.ledger, subject.graph, subject.cells, hour.bad, path)
        )
    judged = health.findings(subject.ledger)
    checked = audited.gather(subject.ledger, subject.graph, subject.cells, name, judged)
    from_tracker = (subject.ledger.path / pulled.NAME).is_file()
    partial = bool(checked.unread)
    stands, _ = pulled.judged(audit_.audit(checked), pulled=from_tracker, partial=partial)
    facts = report.gather(subject.ledger, subject.cells, judged)
    not_judged = {
        **(pulled.NOT_FROM_A_TRACKER if from_tracker else {}),
        **(pulled.NOT_FROM_A_PART if partial else {}),
    }
    return postmortem.Given(facts, hour, found, stands, not_judged)


def _say(kept: postmortem.Kept) -> None:
    for path in kept.written:
        console.print(f"written: {escape(str(path))}")
    if kept.parts:
        console.print(f"kept in place, as people wrote it: {escape(', '.join(kept.parts))}")
    if kept.aside is not None:
        console.print(
            "[bold yellow]something was changed outside of the parts that people write[/]; the file as it was: "
            f"{escape(str(kept.aside))}"
        )
    for key in kept.lost:
        console.print(f"  the part {escape(key)} was not found in it: what stood there is in that file alone")
