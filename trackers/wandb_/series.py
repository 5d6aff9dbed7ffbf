"""The regime as a series, so that every chart can be read against it, without disturbing the user's rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from ..base import PREFIX


class Points:
    """Points (training step, regime index) in the run's history.

    W&B collects values into one open row. With `step=` a row of ours would close the user's row and their
    next values for it would be dropped; committing would do the same and use up a step. So a point joins
    the open row (`commit=False`) and travels with it. A row holds one point: while the row with the last
    point is still open, further points wait, up to `close`, when the newest is written over the last one
    (each regime also stands in the config, so none is lost).
    """

    def __init__(self, run: Any, *, shown: Iterable[str] = (), sole_writer: bool = False) -> None:
        self.shown = list(shown)
        """ids of the regime records whose points are in the history, also from earlier processes"""
        self.index: int | None = None
        """the newest regime that this process has shown"""
        self._run = run
        self._commit = sole_writer  # nobody else has an open row
        self._waiting: deque[tuple[int, int, str]] = deque(maxlen=1024)
        self._passing: set[str] = set()
        self._row: int | None = None
        self._row_begins = False
        """whether the last point written is a regime's first"""

    def begin(self, step: int, index: int, record: str) -> None:
        """Give the first point of a regime, once per record over all processes of the run."""
        self.index = index
        if record not in self.shown:
            self._add(step, index, record)

    def during(self, step: int, record: str) -> None:
        """Give a point within the newest regime, so that its line goes on; once per record."""
        if self.index is not None and record not in self._passing:
            self._passing.add(record)
            self._add(step, self.index, record)

    def flush(self) -> None:
        """Write the next waiting points, as far as there are rows for them."""
        while self._waiting:
            row = self._open_row()
            if row is not None and row == self._row:
                return
            self._write(self._waiting[0])
            self._waiting.popleft()
            # Asked again: the user's thread may have closed the row meanwhile, and the point is in the next.
            self._row = self._open_row()

    def close(self) -> None:
        """Write the newest waiting point over the open row's, whatever it is.

        Where a regime began counts more than that it went on: a point within one never replaces a first one.
        """
        self.flush()
        begun = [p for p in self._waiting if p[2] not in self._passing]
        if begun:
            self._write(begun[-1])
        elif self._waiting and not self._row_begins:
            self._write(self._waiting[-1])
        self._waiting.clear()

    def _add(self, step: int, index: int, record: str) -> None:
        if not any(waiting[2] == record for waiting in self._waiting):
            self._waiting.append((step, index, record))
        self.flush()

    def _open_row(self) -> int | None:
        """The number of the row that W&B has open; None where rows are not collected (shared mode)."""
        if self._commit or getattr(self._run.settings, "mode", None) == "shared":
            return None
        return int(self._run.step)

    def _write(self, point: tuple[int, int, str]) -> None:
        step, index, record = point
        self._run.log({f"{PREFIX}regime": index, f"{PREFIX}step": step}, commit=self._commit)
        self._row_begins = record not in self._passing
        if self._row_begins:
            self.shown.append(record)
