"""One entry of a logbook, read field by field: what cannot be read is kept as it stands, and said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import Any, Literal

from uuid6 import uuid7

from .._rooms import schemas
from ..capture import documents, plain, secrets

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
MOST_UPDATES = 10**12
"""A step beyond this is no count of updates: no run has made as many."""
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
        held = bounded(raw)
        text = held if isinstance(held, str) else json.dumps(held, default=str)
        found = schemas.Reported(
            uid=str(uuid7()),
            order=order,
            concept="unstated",
            text=_masked(text),
            problems=["the entry has no fields: it is kept as text"],
            source=schemas.Source(name=source, place=f"entry {order + 1}", authority=authority),
        )
        return None, found
    problems: list[str] = []
    rest = _fields(raw, problems)
    step = _whole(_take(rest, "step"), "step", problems, rest)
    when = _date(_take(rest, "date"), problems)
    restart = _whole(_take(rest, "restart_from"), "restart_from", problems, rest)
    concept = _words(_take(rest, "concept"))
    if not isinstance(concept, str) or not concept.strip():
        problems.append(f"no concept is named ({concept!r}): nothing can be concluded from the entry")
        concept = "unstated"
    before, after = (_value(name, _take(rest, name)) for name in ("before", "after"))
    run, cited, said_by = _take(rest, "run"), _take(rest, "source"), _take(rest, "authority")
    text = "\n".join(str(rest.pop(name)) for name in TEXT if rest.get(name))
    if step is None and when is None and restart is None:
        problems.append("no step, date or restart is given: placed by its neighbours")
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


MOST_VALUES = 10_000
"""Values inside one field of an entry; a field of more, or one that holds itself, is cut, and said."""


def _fields(raw: Mapping[Any, Any], problems: list[str]) -> dict[str, Any]:
    """The fields of an entry; what stands twice is kept beside the value that is used."""
    rest: dict[str, Any] = {}
    for key, value in raw.items():
        rest[str(key)] = held = bounded(value)
        if held is not value:
            problems.append(f"{key} {held}")
    if isinstance(raw, documents.Doubled):
        others: dict[str, list[Any]] = {}
        for key, value in raw.again:
            others.setdefault(str(key), []).append(bounded(value))
        for name, values in others.items():
            rest[f"{name}_also"] = values[0] if len(values) == 1 else values
            problems.append(
                f"{name} stands {len(values) + 1} times: the last, {rest[name]!r}, is used; the others are kept as "
                f"{name}_also"
            )
    return rest


def bounded(value: object) -> object:
    """The value itself, or a sentence in its place where it has too many parts or holds itself."""
    seen = 0
    stack = [value]
    while stack:
        part = stack.pop()
        seen += 1
        if seen > MOST_VALUES:
            return f"holds more than {MOST_VALUES:,} values, or itself: left out"
        if isinstance(part, Mapping):
            stack.extend(islice(part.values(), MOST_VALUES + 1))
        elif isinstance(part, list | tuple | set | frozenset):
            stack.extend(islice(part, MOST_VALUES + 1))
    return value


def _words(concept: object) -> object:
    """A list of words as one concept of several."""
    if (
        isinstance(concept, list | tuple)
        and concept
        and all(isinstance(c, str) and c.strip() for c in concept)
    ):
        return " + ".join(c.strip() for c in concept)
    return concept


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
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and 0 <= value <= MOST_UPDATES and value == int(value):  # type: ignore[operator, call-overload]
        return int(value)  # type: ignore[call-overload, no-any-return]
    found = _NUMBER.match(str(value).strip())
    number = round(float(re.sub(r"[,_ ]", "", found[1])) * _SCALE[(found[2] or "").lower()]) if found else -1
    if 0 <= number <= MOST_UPDATES and not isinstance(value, bool):
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
