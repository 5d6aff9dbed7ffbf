"""Logs that are a table: CSV with a head, or one JSON object per line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ...judge import series_names
from ...observe.steps import COLUMNS
from . import numbers, text
from .documents import value
from .rows import ImportTrouble, Note, Row, Told

STEPS = (*COLUMNS, "global step", "it", "update")
"""Columns that hold the step, the surest first."""
RUNS = ("run", "run_id", "run_name", "experiment", "seed")
TIMES = ("time", "timestamp", "_timestamp", "wall_time", "at", "date")
OF_LOGBOOK = frozenset(
    (
        "concept",
        "what",
        "setting",
        "parameter",
        "before",
        "after",
        "old",
        "new",
        "restart_from",
        "rollback_to",
    )
)
"""Columns of a logbook, which is another thing."""
HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "dev"))


def step_column(names: Sequence[str]) -> str | None:
    """The column that holds the step."""
    low = {n.strip().lower(): n for n in reversed(names)}
    return next((low[s] for s in STEPS if s in low), None)


def is_table(names: Sequence[str], row: Mapping[str, Any]) -> bool:
    """Whether columns and a row of them are a log: a step, a loss, a norm or a rate, and nothing of a logbook."""
    low = {n.strip().lower() for n in names}
    step = step_column(names)
    if step is None or low & OF_LOGBOOK or _number(row.get(step)) is None:
        return False
    return any(_told(n) and _number(row.get(n)) is not None for n in names)


def _told(key: str) -> bool:
    said = set(series_names.words(key))
    return series_names.of(key) is not None or "lr" in said or {"learning", "rate"} <= said or "loss" in said


def _number(found: object) -> float | None:
    if isinstance(found, str):
        read = numbers.value(found)
        return read[0] if read else None
    return value(found)


class _Table:
    place: ClassVar[str] = "line"
    signals: ClassVar[dict[str, str]] = {}
    averaged: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[tuple[str, ...]] = ("what the columns are is told by their names alone",)

    def row(self, found: Mapping[str, Any], names: Sequence[str], line: int, told: Told) -> Row | None:
        """One row; None without a step."""
        column = step_column(names)
        step = _number(found.get(column)) if column is not None else None
        if column is None or step is None or step < 0 or step != int(step):
            told.say(f"line {line:,} and perhaps others have no step: left out")
            return None
        rank = _number(found.get("rank"))
        values = {
            k: v
            for k, x in found.items()
            if k not in (column, "rank") and k.strip().lower() not in (*TIMES, *RUNS)
            and (v := _number(x)) is not None
        }  # fmt: skip
        told.recognised += 1
        held_out = all(set(series_names.words(k)) & HELD_OUT for k in values)
        kind: Any = "eval" if values and held_out else "train"
        return Row(int(step), values, line, kind, None if rank is None else int(rank)) if values else None


class Csv(_Table):
    """A head and rows of numbers."""

    name: ClassVar[str] = "csv"
    axis: ClassVar[str] = "step column"

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all rows in their order. Raises `ImportTrouble` for a table of several runs."""
        source = text.lines(path, told)
        first = next(source)
        delimiter = delimiter_of(first.text)
        names = cells_of(first.text, delimiter)
        run_column = next((n for n in names if n.strip().lower() in RUNS), None)
        runs: set[str] = set()
        for line in source:
            cells = cells_of(line.text, delimiter)
            if not cells:
                continue
            if len(cells) != len(names) or not line.ended:
                told.torn |= not line.ended
                why = (
                    "has no newline and may be cut"
                    if not line.ended
                    else f"has {len(cells)} of {len(names)} cells"
                )
                told.say(f"line {line.number:,} {why}: left out")
                continue
            found = dict(zip(names, cells, strict=True))
            if run_column is not None:
                runs.add(found[run_column])
                if len(runs) > 1:
                    raise ImportTrouble(
                        f"{path} holds rows of several runs (column {run_column}): give the rows of one run"
                    )
            if (row := self.row(found, names, line.number, told)) is not None:
                yield row


class JsonLines(_Table):
    """One object per line."""

    name: ClassVar[str] = "jsonl"
    axis: ClassVar[str] = "step field"

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all objects in their order; a line that is none is left out, and said."""
        for line in text.lines(path, told):
            if not line.text.strip():
                continue
            try:
                found = json.loads(line.text)
            except (ValueError, RecursionError):
                told.torn |= not line.ended
                told.say(
                    f"line {line.number:,} is no JSON object{'' if line.ended else ' (cut off)'}: left out"
                )
                continue
            if (
                isinstance(found, dict)
                and (row := self.row(found, list(found), line.number, told)) is not None
            ):
                yield row


def delimiter_of(head: str) -> str:
    """What divides the columns of a head."""
    return max(",;\t|", key=head.count)


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none where it cannot be divided."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
