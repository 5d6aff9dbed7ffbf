"""Writing down what a person says of an incident: masked, durable, in a journal file of this process's own.

It may be done on any machine that sees the ledger, and while training writes to it: nobody shares a file.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from .._rooms import schemas
from ..imports.events import times
from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder.mitigations import text
from .common import CliError, Subject
from .preserving import open_journal

By = Annotated[
    str | None,
    typer.Option("--by", help="Who says this; the name of your account by default.", show_default=False),
]
Told = Annotated[
    list[str] | None,
    typer.Option(
        "--told",
        help="Who was told, as 'WHO: WHAT' or 'WHO'; repeatable. Nothing is sent.",
        show_default=False,
    ),
]
Links = Annotated[
    list[str] | None,
    typer.Option("--link", help="A ticket, thread or dashboard; repeatable.", show_default=False),
]
Despite = Annotated[
    str | None,
    typer.Option(
        "--despite",
        help="Go on although something is missing, with this reason, which the audit shows.",
        show_default=False,
    ),
]


PLACEHOLDERS = (
    "NAME",
    "WHO",
    "WHO: WHAT",
    "HOW IT WAS STOPPED",
    "WHAT WAS TRIED",
    "WHAT BROKE IT",
    "WHAT WAS LEARNT",
    "WHAT IS WRONG",
    "REASON",
)
"""What stands in the commands that are shown where a person has the word."""


def filled(**said: str | Sequence[str] | None) -> None:
    """Refuse what was copied with a command and not filled in. Raises `CliError`.

    Args:
        said: option, without its dashes -> what was given.
    """
    for option, value in said.items():
        for one in [value] if isinstance(value, str) else value or ():
            if one.strip() in PLACEHOLDERS:
                raise CliError(f"--{option} {one!r} stands for words of yours; write them in its place")


def who(by: str | None) -> str | None:
    """The name that stands in the record."""
    if by:
        return text(by)
    try:
        return text(getpass.getuser())
    except (OSError, KeyError):  # an account without a name, as in some containers
        return None


def messages(told: Sequence[str] | None) -> list[schemas.Message]:
    """`WHO: WHAT` as messages. Raises `CliError`."""
    out = []
    for one in told or ():
        to, _, what = one.partition(":")
        if not to.strip():
            raise CliError(f"--told {one!r} names nobody; write 'WHO: WHAT'")
        out.append(schemas.Message(to=text(to.strip()) or "", text=text(what.strip()) or None))
    return out


def links(found: Sequence[str] | None) -> list[str]:
    """Links without secrets."""
    return [text(x.strip()) or "" for x in found or () if x.strip()]


def moment(option: str, told: str | None) -> datetime | None:
    """A time with its zone. Raises `CliError`."""
    if told is None:
        return None
    found = times.parse(told)
    if found.at is None or found.at.tzinfo is None:
        raise CliError(f"{option} {told} is no time with a zone; write 2026-11-30T02:51:27Z")
    return found.at


def write(
    subject: Subject,
    segment: str,
    payloads: Iterable[Any],
    *,
    caused_by: Sequence[str] = (),
) -> list[schemas.Envelope]:
    """Write records, durable when this returns, and seal the ledger as it then stands."""
    journal = open_journal(subject, segment)
    out = [journal.append(p, caused_by=caused_by) for p in payloads]
    journal.append(seal(heads(subject.ledger.path)[0], "incident"))
    left = journal.close()
    if left:
        raise CliError(f"{journal.path} did not take {left} records; make room and say it again")
    return out
