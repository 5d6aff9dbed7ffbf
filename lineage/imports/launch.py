"""The history of a launch script: each version's arguments, and what changed from one to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from .._rooms import schemas
from ..capture import config as config_
from .configs import changes
from .entries import Book, ImportTrouble, bounded

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_DATES = ("%Y-%m-%d %H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


def read_launch(rows: Sequence[Mapping[str, Any]], source: str, run: str) -> Book:
    """Read versions `{date, commit, args: {flag: value}}` in any order; they are put in the order of their dates.

    Where a date is missing or no date, the order of the source stands and the book says so.
    """
    book = Book(run)
    whole = [r for r in rows if isinstance(r, Mapping) and isinstance(r.get("args"), Mapping)]
    if len(whole) < len(rows):
        book.problems.append(f"{len(rows) - len(whole)} of {len(rows)} versions have no arguments: left out")
    if not whole:
        raise ImportTrouble(
            f"{source} holds no version with `args`: see docs/import.md for the form of a history"
        )
    versions = _in_order(whole, book)
    before: schemas.Config | None = None
    for row in versions:
        after = config_.capture(resolved(row["args"]), name="launch")
        book.configs.append((len(book.entries), after))
        place = str(bounded(row.get("commit") or row.get("version") or f"version {len(book.configs)}"))
        if before is not None:
            when = _day(row.get("date"))
            origin = schemas.Source(name=source, place=place, authority="machine")
            book.entries += changes(before, after, len(book.entries), origin, when)
        before = after
    return book


def resolved(args: Mapping[str, Any]) -> dict[str, Any]:
    """Put the values of the script's own variables in place of `$NAME`; what it does not set stays as written.

    A variable that other arguments are made of is the script's means, and says nothing besides them: it is left
    out. One that nothing refers to is kept, since the training code may read it.
    """
    variables = {str(k)[4:]: v for k, v in args.items() if str(k).startswith("env:")}

    def value(match: re.Match[str], depth: int) -> str:
        name = match[1] or match[2]
        return _resolve(str(variables[name]), depth - 1) if name in variables and depth else match[0]

    def _resolve(text: str, depth: int) -> str:
        return _REFERENCE.sub(lambda m: value(m, depth), text)

    used = {a or b for v in args.values() if isinstance(v, str) for a, b in _REFERENCE.findall(v)}
    kept = {str(k): v for k, v in args.items() if str(k)[4:] not in used & variables.keys()}
    return {plain_flag(k): _resolve(v, 8) if isinstance(v, str) else v for k, v in kept.items()}


def plain_flag(flag: str) -> str:
    """`--lr` is the key `lr`, `sbatch:--nodes` the key `sbatch.nodes`."""
    return flag.lstrip("-").replace(":--", ".").replace(":", ".", 1)


def _in_order(rows: Sequence[Mapping[str, Any]], book: Book) -> list[Mapping[str, Any]]:
    dates = [_moment(r.get("date")) for r in rows]
    if all(d is not None for d in dates):
        numbered = sorted(enumerate(rows), key=lambda item: (dates[item[0]], -item[0]))
        return [row for _, row in numbered]
    missing = sum(d is None for d in dates)
    book.problems.append(f"{missing} of {len(rows)} versions have no date: the order of the source stands")
    return list(rows)


def _moment(value: object) -> datetime | None:
    for form in _DATES if isinstance(value, str | date) else ():
        try:
            found = datetime.strptime(str(value), form)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=schemas.now().tzinfo)
    return None


def _day(value: object) -> str | None:
    found = _moment(value)
    return f"{found:%Y-%m-%d}" if found else None
