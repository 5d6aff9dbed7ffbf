"""At the end of a segment: whether its logged series show what happened, written down once."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..judge.series_health import Health
from ..ledger import health
from ..ledger.reader import Ledger
from .findings import say
from .writer import Writer


def observer() -> Any:
    """The observing part of the layer, where this process is under observation; it may still hold logged rows."""
    return sys.modules.get(f"{(__package__ or '').rpartition('.')[0]}.observe")


def at_end(w: Writer, observer: Any = None) -> Health | None:
    """Judge the series of this segment on the worker thread, write what is found, and say what is worth a look.

    Rank 0 does, for all ranks whose rows it sees, within about `exit_timeout` seconds; series without a turn by then
    are named. None where it was not done; `lineage check` still can. `observer` is asked for the rows that it holds.
    """
    if w.world.rank != 0:
        return None
    done: list[Health] = []
    w.tasks.put(lambda: _judge(w, observer, done))
    w.tasks.drain(w.settings.exit_timeout * 2)
    return done[0] if done else None


def _judge(w: Writer, observer: Any, done: list[Health]) -> None:
    end = time.monotonic() + w.settings.exit_timeout
    if observer is not None:
        observer.catch_up()
    w._lines.drain(w.settings.exit_timeout)
    ledger = Ledger(w.ledger)
    segment = next((s for s in ledger.segments if s.uid == w.ids.segment), None)
    if segment is None:
        return
    try:
        found = health.check(ledger, segment, lambda: time.monotonic() < end)
    except Exception as e:  # the end of a run waits for nothing, and no judgement is worth its last records
        w.trouble("series", e, "the logged series were not judged", remedy="lineage check")
        return
    for f in health.said(segment.uid, found):
        say(w, f.payload, f.step)
    done.append(found)
