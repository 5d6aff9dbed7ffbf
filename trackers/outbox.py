"""The outbox: one worker thread that shows records in a tracker, in order, without the training thread.

Interventions and verdicts are never dropped: what could not be shown stays marked as due in the ledger
(`delivered/`), and `lineage sync` shows it later. Scalars, of which there may be many, are dropped
oldest first. A forked child starts without the thread and without the queue.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from .base import NotMine, Page, Shown, Tracker, TrackerRefused, TrackerUnavailable

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between tries while a tracker is unavailable: doubled from the first to the longest."""

Item: TypeAlias = Shown | tuple[Path, str]


class Outbox:
    """A queue and the thread that empties it into one tracker.

    `on_shown(record, place)`, `on_published(file, name)` and `on_trouble(error, item, final)` are called on the
    worker thread.
    """

    def __init__(
        self,
        tracker: Tracker,
        page: Page,
        *,
        on_shown: Callable[[Shown, str | None], None] = lambda record, place: None,
        on_published: Callable[[Path, str], None] = lambda file, name: None,
        on_trouble: Callable[[Exception, Item, bool], None] = lambda error, item, final: None,
    ) -> None:
        self.tracker = tracker
        self.page = page
        self._on_shown, self._on_trouble, self._on_published = on_shown, on_trouble, on_published
        self._queue: deque[Item] = deque()
        self._wake = threading.Condition()
        self._busy = False
        self._closing = False
        self._deadline: float | None = None
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def put(self, item: Item) -> None:
        """Queue a record, or a file with the name it shall have. Never waits."""
        if os.getpid() != self._pid:
            return  # a forked child has no business with the parent's tracker
        with self._wake:
            self._queue.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="lineage-outbox", daemon=True)
                self._thread.start()
            self._wake.notify()

    def pending(self) -> int:
        """How many items have not been shown yet."""
        with self._wake:
            return len(self._queue) + self._busy

    def drain(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for the queue to empty; return how many items are left."""
        if os.getpid() != self._pid:
            return 0
        end = time.monotonic() + timeout
        with self._wake:
            while (self._queue or self._busy) and time.monotonic() < end:
                self._wake.wait(min(0.05, max(0.0, end - time.monotonic())))
            return len(self._queue) + self._busy

    def close(self, timeout: float) -> int:
        """Show what can be shown within `timeout` seconds, close the tracker, then stop.

        The tracker is closed on the worker thread too: its last calls may hang like any other. Returns how many items
        are left.
        """
        if os.getpid() != self._pid:
            return 0
        end = time.monotonic() + timeout
        left = self.drain(timeout)
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            worker = self._thread
        if worker is None:
            self._close_tracker()
        else:
            worker.join(max(0.0, end - time.monotonic()))
        return left

    def _close_tracker(self) -> None:
        with contextlib.suppress(Exception):  # what it had to say stands in the ledger
            self.tracker.close()

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with self._wake:
                while not self._queue and not self._closing:
                    self._wake.wait()
                if self._closing:
                    break
                item = self._queue[0]
                self._busy = True
                self._queue.popleft()
            again = False
            try:
                self._send(item)
                pause = FIRST_PAUSE
            except NotMine:
                pause = FIRST_PAUSE
            except TrackerRefused as e:
                self._on_trouble(e, item, True)
            except TrackerUnavailable as e:
                again = True
                self._on_trouble(e, item, False)
            except Exception as e:
                self._on_trouble(e, item, True)
            with self._wake:
                if again:
                    self._queue.appendleft(item)
                self._busy = False
                self._wake.notify_all()
                if again and not self._closing:
                    self._wake.wait(pause)
            if again:
                pause = min(2 * pause, LONGEST_PAUSE)
        self._close_tracker()

    def _send(self, item: Item) -> None:
        if isinstance(item, tuple):
            self.tracker.publish(*item)
            self._on_published(*item)
        else:
            self.page.know(item)
            self._on_shown(item, self.tracker.show(item, self.page))
