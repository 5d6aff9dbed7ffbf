"""The rows of a site's table: of CSV, of a list of JSON objects, of an object in each line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...capture import documents
from ..entries import ImportTrouble

_MOST_LINES = 50
"""Lines that one row of a CSV spans before a quote is taken for one that was never closed."""


@dataclass
class Rows:
    """What a table holds, before anything is made of it."""

    columns: list[str] = field(default_factory=list)
    entries: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """(line, or place in the list, from 1; column -> value)"""
    problems: list[str] = field(default_factory=list)


def counted(n: int, one: str, many: str) -> str:
    """`1 row has`, `2 rows have`."""
    return f"{n:,} row {one}" if n == 1 else f"{n:,} rows {many}"


def of_csv(text: str) -> Rows:
    """Rows under a header. Raises `ImportTrouble` for what is no CSV."""
    rows = csv.reader(io.StringIO(text), dialect=_dialect(text))
    try:
        head = [c.strip() for c in next(rows)]
        entries: list[tuple[int, dict[str, Any]]] = []
        short, long_, swallowed, last = 0, 0, [], rows.line_num
        for cells in rows:
            first, last = last + 1, rows.line_num
            if not any(c.strip() for c in cells):
                continue
            short += len(cells) < len(head)
            long_ += any(c.strip() for c in cells[len(head) :])
            if last - first >= _MOST_LINES or (last > first and len(cells) < len(head)):
                swallowed.append(f"line {first:,} to {last:,}")
            entries.append((first, dict(zip(head, cells, strict=False))))
    except csv.Error as e:
        raise ImportTrouble(f"LIN-E004: line {rows.line_num} is no CSV: {e}") from None
    found = Rows(head, entries)
    if short:
        found.problems.append(
            f"LIN-E006: {counted(short, 'has', 'have')} fewer cells than the header; read as far as they go"
        )
    if long_:
        found.problems.append(
            f"LIN-E006: {counted(long_, 'has', 'have')} more cells than the header; what is beyond it is left out"
        )
    if swallowed:
        found.problems.append(
            f"LIN-E006: {counted(len(swallowed), 'spans', 'span')} many lines ({', '.join(swallowed[:3])}): a quote "
            "may not be closed there, and what follows it is read as one text"
        )
    return found


def _dialect(text: str) -> type[csv.Dialect]:
    """Quotes as RFC 4180 has them, which a header alone does not show; the delimiter that the header has most of."""
    head = text.partition("\n")[0]

    class Found(csv.excel):
        delimiter = max(",;\t|", key=head.count)

    return Found


def of_json(text: str) -> Rows:
    """Objects, with the fields of those one level down. Raises `ImportTrouble`."""
    problems: list[str] = []
    entries = _entries(text, problems)
    return Rows(list(dict.fromkeys(k for _, e in entries for k in e)), entries, problems)


def _entries(text: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    try:
        whole = documents.read_json(text)
    except ValueError:
        return _lines(text, problems)
    except RecursionError:
        raise ImportTrouble("LIN-E004: it is nested too deeply to be read") from None
    if isinstance(whole, Mapping):
        lists = [v for v in whole.values() if isinstance(v, list)]
        whole = lists[0] if len(lists) == 1 else [whole]
    if not isinstance(whole, list):
        raise ImportTrouble(f"LIN-E004: it holds {type(whole).__name__}; a list of events is due")
    out = [(n, _flat(e)) for n, e in enumerate(whole, 1) if isinstance(e, Mapping)]
    if len(out) < len(whole):
        problems.append(f"{len(whole) - len(out)} entries are no objects; left out")
    return out


def _lines(text: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    out: list[tuple[int, dict[str, Any]]] = []
    bad: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = documents.read_json(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, Mapping):
            out.append((number, _flat(entry)))
        else:
            bad.append(number)
    if bad and not out:
        raise ImportTrouble(f"LIN-E004: it begins as JSON and is none: line {bad[0]} cannot be read")
    if bad:
        shown = ", ".join(map(str, bad[:5]))
        problems.append(f"LIN-E006: {len(bad)} lines are no JSON objects (line {shown}); left out")
    return out


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the fields of the objects in it, one level down, such as `labels` and `annotations`."""
    out: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            for inner, held in value.items():
                out.setdefault(str(inner), held)
        else:
            out[str(key)] = value
    return out
