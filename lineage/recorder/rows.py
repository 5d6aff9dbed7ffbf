"""The rows of the series on their way to the operating system."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ..ledger.columns import Columns, joined
from ..ledger.series import SeriesWriter
from .worker import Worker

FAST = 0.02
"""Seconds between two steps: where one of the last eight came sooner, the training thread writes itself."""
STALLED = 0.25
"""Seconds of such a write after which the disk counts as stalled, and is left to the thread."""
PATIENCE = 60.0
"""Seconds for which a stalled disk is left to the thread."""
TOGETHER = 0.05
"""Seconds for which the many rows of tensors and samples are kept together at most, where steps are shorter: a batch
costs by itself."""


class Rows:
    """Writes the series of one process, so that a kill loses no more than the step in flight.

    A thread that wants to write waits for the interpreter's lock, and a busy training thread gives it up every
    five milliseconds only. Slow steps leave the thread all the time it needs; fast ones would run ahead of it by
    dozens. So rows of a fast loop are written where they arise: about 0.1 ms, taken by the operating system
    without a wait for the disk. The training thread never waits for the other one, and where the disk keeps it
    waiting it leaves the writing to the other one for a minute.
    """

    def __init__(
        self, open_table: Callable[[str], SeriesWriter], on_error: Callable[[Exception], None]
    ) -> None:
        self._open, self._on_error = open_table, on_error
        self._thread = Worker("lineage-series", on_error)
        self._queue: deque[tuple[str, list[dict[str, Any]]]] = deque()
        self._writing = threading.Lock()
        self._tables: dict[str, SeriesWriter] = {}
        self._columns: deque[tuple[str, Columns]] = deque()
        self._columns_at = 0.0
        self._columns_wait = False
        # The many rows have a lock and tables of their own: while they are written, the few must not wait.
        self._writing_columns = threading.Lock()
        self._wide: dict[str, SeriesWriter] = {}
        self._last = time.monotonic()
        self._gaps = deque([0.0], maxlen=8)
        self._stalled_until = 0.0

    def put(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        """Take the rows of one step or several, by table. Never raises, never waits for the thread."""
        found = [(name, rows) for name, rows in tables.items() if rows]
        if not found:
            return
        self._queue.extend(found)
        now = time.monotonic()
        fast = min(self._gaps) < FAST
        self._gaps.append(now - self._last)
        self._last = now
        if fast and now >= self._stalled_until and self._writing.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._writing.release()
            if time.monotonic() - now > STALLED:
                self._stalled_until = time.monotonic() + PATIENCE
        else:
            self._thread.put(self._on_thread)

    def put_aside(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Take rows of another thread than the training one: they are always written on the thread of the series."""
        self._queue.append((table, rows))
        self._thread.put(self._on_thread)

    def put_columns(self, table: str, columns: Columns) -> None:
        """Take the many rows of one step. They are written on the thread, and of short steps together."""
        self._columns.append((table, columns))
        if self._columns_wait:
            return
        since = time.monotonic() - self._columns_at
        if since > TOGETHER:
            self._columns_at = time.monotonic()
            self._thread.put(self._columns_on_thread)
        else:  # no row waits for a next one, which may never come: a loop that hangs is one that people look at
            self._columns_wait = True
            self._thread.put_later(self._columns_on_thread, TOGETHER - since)

    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all is written."""
        return self._thread.drain(timeout)

    def gone(self) -> set[str]:
        """Tables that rows were written to, and whose file is not there any more, as a stream or sealed."""
        tables = [*self._tables.items(), *self._wide.items()]
        return {n for n, t in tables if not t.path.exists() and not t.path.with_suffix(".parquet").exists()}

    def close(self, timeout: float, on_kept: Callable[[str, Exception], None]) -> None:
        """Write what waits and seal the tables, within `timeout` seconds; `on_kept` gets what could not be sealed."""

        def seal() -> None:
            with self._writing, self._writing_columns:
                self._flush()
                self._flush_columns()
                for name, table in [*self._tables.items(), *self._wide.items()]:
                    try:
                        table.close()
                    except Exception as e:
                        on_kept(name, e)

        self._thread.put(seal)
        self._thread.close(timeout)

    def _on_thread(self) -> None:
        with self._writing:
            self._flush()
        self._columns_on_thread()

    def _columns_on_thread(self) -> None:
        self._columns_at, self._columns_wait = time.monotonic(), False
        with self._writing_columns:
            self._flush_columns()

    def _flush(self) -> None:
        """Write all that waits, in order. Rows that the disk refuses are lost; later ones are tried again."""
        while self._queue:
            self._write(self._tables, *self._queue.popleft())

    def _flush_columns(self) -> None:
        tables: dict[str, list[Columns]] = {}
        for _ in range(len(self._columns)):
            table, columns = self._columns.popleft()
            tables.setdefault(table, []).append(columns)
        for table, found in tables.items():
            self._write(self._wide, table, joined(found))

    def _write(
        self, tables: dict[str, SeriesWriter], name: str, rows: list[dict[str, Any]] | Columns
    ) -> None:
        try:
            if name not in tables:
                tables[name] = self._open(name)
            tables[name].write(rows)
        except Exception as e:
            self._on_error(e)
