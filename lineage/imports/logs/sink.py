"""The rows of logs on their way into the series of a ledger, a batch at a time, so that a log of any size fits."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ..._rooms import schemas
from ...capture import pseudonym
from ...ledger.series import SeriesWriter
from .rows import Row

TOGETHER = 16_384
"""Values that are kept until they are written as one batch."""
MOST = 1_000_000
"""Values of one file of the series; sealing it takes them all into memory at once."""


class Sink:
    """Writes the tables `metrics`, `probes` and `sources` of an imported run, one writer per segment and rank."""

    def __init__(self, ledger: Path, run: str) -> None:
        self._ledger, self._run = ledger, run
        self._open: dict[tuple[str, int, str | None, str], _Table] = {}
        self._start = 0

    def row(
        self, segment: str, rank: int, row: Row, step: int, *, tracker: str, axis: str, file: str, place: str
    ) -> None:
        """Write the values of a row as they were logged, and where they stand."""
        metrics = self._table(segment, rank, row.node, "metrics")
        metrics.add(
            len(row.values), step, row.at, row.values.values(), key=row.values, tracker=tracker, axis=axis
        )
        sources = self._table(segment, rank, row.node, "sources")
        sources.add(1, step, None, (), tracker=tracker, kind=row.kind, file=file, place=place, line=row.line)

    def signals(
        self,
        segment: str,
        rank: int,
        node: str | None,
        step: int,
        at: datetime | None,
        values: Mapping[str, float],
    ) -> None:
        """Write the values whose meaning is known."""
        probes = self._table(segment, rank, node, "probes")
        probes.add(len(values), step, at, values.values(), signal=values)

    def close(self) -> None:
        """Write what is left and seal all files."""
        for table in self._open.values():
            table.close()
        self._open = {}

    def _table(self, segment: str, rank: int, node: str | None, name: str) -> _Table:
        key = (segment, rank, node, name)
        table = self._open.get(key)
        if table is not None and table.written >= MOST:
            table.close()
            table = None
        if table is None:
            self._start = max(time.time_ns() // 1000, self._start + 1)
            place = pseudonym.node(self._run, node) if node else schemas.IMPORTED
            writer = f"{place}-{rank:05d}-{os.getpid()}-{self._start}"
            made = SeriesWriter(self._ledger, segment, writer, name)
            table = self._open[key] = _Table(made, {"segment": segment, "rank": rank})
        return table


class _Table:
    """The columns of one writer's table until they are written."""

    def __init__(self, writer: SeriesWriter, always: Mapping[str, Any]) -> None:
        self._writer, self._always = writer, always
        self._columns: dict[str, list[Any]] = {}
        self._waiting = 0
        self.written = 0

    def add(self, rows: int, step: int, at: datetime | None, values: Collection[float], **more: Any) -> None:
        """So many rows of one step. `more`: column -> its values, or one that stands in all of these rows."""
        held = self._columns
        if not held:
            held.update({name: [] for name in ("step", *(("at", "value") if values else ()), *more)})
        held["step"].extend([step] * rows)
        if values:
            held["at"].extend([at] * rows)
            held["value"].extend(values)
        for name, found in more.items():
            held[name].extend(found if isinstance(found, Mapping) else [found] * rows)
        self._waiting += rows
        if self._waiting >= TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        columns = self._columns
        if "value" in columns:
            columns["n_nan"] = [int(v != v) for v in columns["value"]]  # noqa: PLR0124
            columns["n_posinf"] = [int(v == math.inf) for v in columns["value"]]
            columns["n_neginf"] = [int(v == -math.inf) for v in columns["value"]]
        self._writer.write({**self._always, **columns})
        self.written += self._waiting
        self._columns, self._waiting = {}, 0

    def close(self) -> None:
        """Write what waits, and seal."""
        self._flush()
        self._writer.close()
