"""The queue between the wrapped calls, on the callers' threads, and the observer's own thread."""

from __future__ import annotations

import os
import sys
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from collections.abc import Callable
    from typing import Any

FEW = 1_000
"""Copies that wait while nothing records them: the files that a process read before its tracker was imported."""

EVENTS: deque[tuple[Any, ...]] = deque()
"""(kind, seconds since the epoch, ...), in the order of the calls."""


class Switch:
    """What the wrapped calls look at: plain attributes, since a log call has microseconds."""

    on = False
    recording = False
    """whether `lineage.observe` is there to empty the queue"""
    refused = False
    """whether it cannot be: said once"""
    limit = FEW
    """Copies that wait at most. Further ones are counted and dropped: memory is the training's."""
    dropped = 0
    failures = 0
    first_failure = ""
    memory_saves = 0
    later: Callable[[Any], Any] | None = None
    """reads a value off an accelerator without waiting; set by `lineage.observe`"""
    before: Callable[[dict[str, Any]], Any] | None = None
    """reads what W&B holds of a run that is about to be resumed; set by `lineage.observe`"""
    held: Any = None
    """what it has read"""
    attached: Callable[[], bool] | None = None
    """whether a recorder of `lineage.attach` is live, which records files itself; set by `lineage.observe`"""
    wake: Callable[[], None] | None = None
    """starts the recording thread in a forked child; set by `lineage.observe`"""


SWITCH = Switch()


def put(event: tuple[Any, ...]) -> None:
    """Leave a copy. Never waits."""
    if len(EVENTS) < SWITCH.limit:
        EVENTS.append(event)
    else:
        SWITCH.dropped += 1


def put_start(event: tuple[Any, ...]) -> None:
    """Leave the copy of a run's start, and see to it that somebody records it, also in a child of a process."""
    if not SWITCH.recording:
        from . import recording

        recording()
    if SWITCH.wake is not None and not SWITCH.limit:
        SWITCH.wake()
    put(event)


def unhandled() -> int:
    """The identity of the exception that the interpreter printed last, 0 where there is none.

    Taken when a run starts, so that one that is printed later is known to be the run's own.
    """
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return id(last) if last is not None else 0


def failed(error: BaseException) -> None:
    """Count a failure of ours; keep the words and the place of the first. The caller's call is done and unharmed."""
    SWITCH.failures += 1
    if SWITCH.failures == 1:
        SWITCH.first_failure = f"{type(error).__name__}: {error}"[:400] + _place(error)


def _place(error: BaseException) -> str:
    """The file and line that raised it: an assertion has no words of its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"


def _in_child() -> None:
    """A forked child starts without its parent's copies, and without the thread that empties the queue."""
    EVENTS.clear()
    SWITCH.dropped = SWITCH.failures = SWITCH.memory_saves = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
