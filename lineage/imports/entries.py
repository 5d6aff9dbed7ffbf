"""One entry of a logbook, read field by field: what cannot be read is kept as it stands, and said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from uuid6 import uuid7

from .._rooms import schemas
from ..capture import plain, secrets

FIELDS = {
    "run": ("run", "run_name", "experiment", "run_id"),
    "step": ("step", "when_step", "iteration", "update", "global_step"),
    "date": ("date", "when_date", "when", "time", "timestamp", "day"),
    "concept": ("concept", "what", "setting", "parameter", "key", "category"),
    "before": ("before", "old", "from", "old_value", "value_before"),
    "after": ("after", "new", "to", "new_value", "value_after", "value"),
    "restart_from": ("restart_from", "restart_from_step", "restarted_from", "resume_from", "rollback_to"),
    "source": ("source", "where", "reference", "link", "url"),
    "authority": ("authority",),
}
"""Field of an entry -> the names under which it is found, the first that is there."""

TEXT = ("text", "symptom", "action", "note", "notes", "comment", "message", "description", "why")
"""Fields of prose. They are kept and shown, and never judged."""

_NUMBER = re.compile(
    r"^(?:about|approx\.?|around|circa|~|step|iter(?:ation)?)?\s*([\d][\d,_ ]*(?:\.\d+)?)\s*([km])?$", re.I
)
_DATE = re.compile(r"^(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?$")
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000}


class ImportTrouble(ValueError):
    """A source cannot be read at all: which, why, and what to do next."""


@dataclass
class Book:
    """What was read of one run: its entries in the order of the source, and the configs where there were any."""

    run: str
    entries: list[schemas.Reported] = field(default_factory=list)
    configs: list[tuple[int, schemas.Config]] = field(default_factory=list)
    """number of entries that came before -> the config from there on"""
    problems: list[str] = field(default_factory=list)


def entry(
    raw: object, order: int, source: str, authority: Literal["machine", "person"] = "person"
) -> tuple[str | None, schemas.Reported]:
    """Read one entry; return the run that it names, and the entry.

    Raises nothing for bad content: a field that is not what it should be goes to `problems` and `extra`.
    """
    if not isinstance(raw, Mapping):
        text = raw if isinstance(raw, str) else json.dumps(raw, default=str)
        found = schemas.Reported(
            uid=str(uuid7()),
            order=order,
            concept="unstated",
            text=_masked(text),
            problems=["the entry has no fields: it is kept as text"],
            source=schemas.Source(name=source, place=f"entry {order + 1}", authority=authority),
        )
        return None, found
    rest = {str(k): v for k, v in raw.items()}
    problems: list[str] = []
    step = _whole(_take(rest, "step"), "step", problems, rest)
    when = _date(_take(rest, "date"), problems)
    restart = _whole(_take(rest, "restart_from"), "restart_from", problems, rest)
    concept = _take(rest, "concept")
    if not isinstance(concept, str) or not concept.strip():
        problems.append(f"no concept is named ({concept!r}): nothing can be concluded from the entry")
        concept = "unstated"
    before, after = (_value(name, _take(rest, name)) for name in ("before", "after"))
    run, cited, said_by = _take(rest, "run"), _take(rest, "source"), _take(rest, "authority")
    text = "\n".join(str(rest.pop(name)) for name in TEXT if rest.get(name))
    if step is None and when is None and restart is None:
        problems.append("no step, date or restart is given: placed by its neighbours")
    if restart is not None and step is not None and restart > step + 1:
        problems.append(f"it restarts from {restart}, which is after its own step {step}")
    return (str(run) if run else None), schemas.Reported(
        uid=str(uuid7()),
        order=order,
        step=step,
        date=_masked(when) if when else None,
        restart_from=restart,
        concept=_masked(concept.strip()) or "unstated",
        before=before,
        after=after,
        text=_masked(text) or None,
        problems=[_masked(p) for p in problems],
        source=schemas.Source(
            name=_masked(str(cited)) if cited else source,
            place=f"{source}, entry {order + 1}",
            authority="machine" if said_by == "machine" else authority,
        ),
        extra={_masked(k): _value(k, v) or schemas.Scalar(type="null") for k, v in rest.items() if v != ""},
    )


def _take(rest: dict[str, Any], name: str) -> Any:
    """Take the first filled field of that name; every name of it is removed."""
    found = None
    for alias in FIELDS[name]:
        if alias in rest and found in (None, ""):
            found = rest.pop(alias)
    return None if found == "" else found


def _whole(value: object, name: str, problems: list[str], rest: dict[str, Any]) -> int | None:
    """A count of updates; text such as `about 56.4k` is read and said to be approximate."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, float) and value >= 0 and value == int(value):
        return int(value)
    found = _NUMBER.match(str(value).strip())
    if found and not isinstance(value, bool):
        number = round(float(re.sub(r"[,_ ]", "", found[1])) * _SCALE[(found[2] or "").lower()])
        if str(number) != str(value).strip():
            problems.append(f"{name} is written as {value!r}: read as {number}")
        return number
    problems.append(f"{name} is {value!r}, which is no count of updates: kept as text")
    rest[f"{name}_as_written"] = value
    return None


def _date(value: object, problems: list[str]) -> str | None:
    """The date as written; what is no date of the calendar is kept and said."""
    if value is None:
        return None
    text = str(value).strip()
    found = _DATE.match(text)
    try:
        if found is None:
            raise ValueError
        date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        problems.append(f"date {text!r} is no date of the calendar (YYYY-MM-DD): it orders nothing")
    return text


def _value(name: str, value: object) -> schemas.Scalar | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = json.dumps(value, sort_keys=True, default=str)
    return plain.scalar(name, value)[0]


def _masked(text: str) -> str:
    return str(secrets.mask(text)[0])
