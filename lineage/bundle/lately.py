"""The rows of the last steps, kept in memory, so that evidence around a bad step needs no file to be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from ..ledger.columns import Columns

STEPS = 24
"""Steps whose rows are kept."""
TABLES = ("probes", "batches", "tensors")


class Lately:
    """Takes what is written to the series. Keeping it costs an append; nothing is copied."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[Any]] = {name: deque(maxlen=STEPS) for name in TABLES}

    def add(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        """Take the rows of one step, by table."""
        for name, rows in tables.items():
            if rows and name in self._kept:
                self._kept[name].append(rows)

    def add_columns(self, table: str, columns: Columns) -> None:
        """Take the many rows of one step."""
        if table in self._kept:
            self._kept[table].append(columns)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All kept rows of a table, in the order in which they came. Any thread may ask."""
        out: list[dict[str, Any]] = []
        for found in list(self._kept[table]):
            out += found if isinstance(found, list) else rows_of(found)
        return out


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """Columns, some of which may be one value for all rows, as rows."""
    length = next(len(c) for c in columns.values() if isinstance(c, list))
    return [{k: c[i] if isinstance(c, list) else c for k, c in columns.items()} for i in range(length)]
