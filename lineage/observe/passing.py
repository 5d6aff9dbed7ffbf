"""The logged values of a run that `lineage.attach` records: passed on to its recorder, beside its own signals."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from .rows import Rows


class Passing:
    """Gives what the training code logs to the recorder's series, so that both can be held against each other."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = weakref.ref(recorder)
        self._rows = Rows(judged=False)

    def logged(self, tracker: str, at: float, step: int, axis: str, row: Mapping[Any, Any]) -> None:
        """A row of values was logged."""
        if self._recorder() is not None:
            self._rows.logged(tracker, at, step, axis, row)

    def flush(self) -> None:
        """Write what is there, once the recorder's ledger is open."""
        rec = self._recorder()
        w = rec._writer if rec is not None else None
        if w is None or w._closed:
            return
        self._rows.arrived()
        found = self._rows.metrics(w.ids.segment, w.world.rank)
        if found:
            w.metrics(found)
