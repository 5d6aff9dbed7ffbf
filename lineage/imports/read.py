"""From a file to reported entries: a team's logbook (JSON, JSON lines, CSV, YAML) or a launch-script history."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..capture import documents
from .entries import Book, ImportTrouble, entry
from .launch import read_launch

MOST_BYTES = 256 * 1024 * 1024
"""Larger files are refused: a logbook is written by people."""

FORMATS = ("auto", "logbook", "launch", "configs", "log")
"""What `lineage import --format` takes; `auto` tells logs, logbooks and launch-script histories by their content."""


def read(path: Path, format_: str = "auto", run: str | None = None) -> list[Book]:
    """Read a file into one book per run that it names, in the order in which they appear.

    `run` names entries that name none; without it the file's name does. Raises `ImportTrouble` for a file that
    cannot be read as any known format, and says what was tried.
    """
    rows = _rows(path)
    if format_ == "launch" or (format_ == "auto" and _is_launch(rows)):
        return [read_launch(rows, path.name, run or path.stem)]
    books: dict[str, Book] = {}
    for i, raw in enumerate(rows):
        named, found = entry(raw, i, path.name)
        name = named or run or path.stem
        books.setdefault(name, Book(name)).entries.append(found)
    if not books:
        raise ImportTrouble(f"{path} holds no entry. A logbook is a list of entries; see docs/import.md.")
    return list(books.values())


def readable(path: Path) -> bool:
    """Whether a logbook may be in a file of that name."""
    return path.suffix.lower() in _READERS


class _Malformed(ValueError):
    """The text is none of what its suffix says."""


def _is_launch(rows: list[Any]) -> bool:
    return any(isinstance(r, Mapping) and isinstance(r.get("args"), Mapping) for r in rows)


def _rows(path: Path) -> list[Any]:
    if not path.is_file():
        raise ImportTrouble(f"{path} is no file")
    if path.stat().st_size > MOST_BYTES:
        raise ImportTrouble(f"{path} has {path.stat().st_size:,} bytes; a logbook has at most {MOST_BYTES:,}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise ImportTrouble(f"{path} is no UTF-8 text: {e}") from None
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ImportTrouble(f"{path}: {path.suffix or 'no suffix'} is none of {', '.join(sorted(_READERS))}")
    try:
        return _as_list(reader(text), path)
    except RecursionError:
        raise ImportTrouble(f"{path} is nested too deeply to be read") from None
    except _Malformed as e:
        raise ImportTrouble(f"{path} is {e}") from None


def _as_list(found: Any, path: Path) -> list[Any]:
    """A list of entries, also where it stands under the one key of a mapping."""
    if isinstance(found, Mapping):
        lists = [v for v in found.values() if isinstance(v, list)]
        if len(lists) != 1:
            raise ImportTrouble(
                f"{path} holds a mapping with {len(lists)} lists; a logbook is one list of entries"
            )
        found = lists[0]
    if not isinstance(found, list):
        raise ImportTrouble(f"{path} holds {type(found).__name__}; a logbook is a list of entries")
    return found


def _json(text: str) -> Any:
    try:
        return documents.read_json(text)
    except ValueError as e:
        raise _Malformed(f"no JSON: {e}") from None


def _json_lines(text: str) -> list[Any]:
    """One entry per line; a line that is no JSON becomes an entry of plain text."""
    out: list[Any] = []
    for line in text.splitlines():
        if line.strip():
            try:
                out.append(documents.read_json(line))
            except ValueError:
                out.append(line)
    return out


def _csv(text: str) -> list[Any]:
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff(text[:8192], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = [row for row in csv.reader(io.StringIO(text), dialect=dialect) if row]
    except csv.Error as e:
        raise _Malformed(f"no CSV: {e}") from None
    return [_row(rows[0], row) for row in rows[1:]]


def _row(head: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """One line under its heads; cells without a head are kept together, a head without a cell is none."""
    filled = [*row, *([None] * (len(head) - len(row)))]
    out = documents.mapping(list(zip(head, filled, strict=False)))
    if len(row) > len(head):
        out["more_cells"] = list(row[len(head) :])
    return out


def _yaml(text: str) -> Any:
    try:
        return documents.read_yaml(text)
    except ValueError as e:
        raise _Malformed(f"no YAML: {e}") from None


_READERS: dict[str, Callable[[str], Any]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".yaml": _yaml,
    ".yml": _yaml,
}
