"""A worker thread that runs small tasks in order, away from the training thread."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable


class Worker:
    """Tasks run one after the other on one daemon thread; a failing task is reported and the next one runs.

    `idle` is called about every `every` seconds while there is nothing to do. A forked child has no thread
    and runs nothing.
    """

    def __init__(
        self,
        name: str,
        on_error: Callable[[Exception], None],
        idle: Callable[[], None] | None = None,
        every: float = 1.0,
    ) -> None:
        self._name, self._on_error, self._idle, self._every = name, on_error, idle, every
        self._tasks: deque[Callable[[], None]] = deque()
        self._later: tuple[float, Callable[[], None]] | None = None
        self._wake = threading.Condition()
        self._running = False
        self._closed = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def put(self, task: Callable[[], None]) -> None:
        """Queue a task. Never waits."""
        if os.getpid() != self._pid:
            return
        with self._wake:
            if self._closed:
                return
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def put_later(self, task: Callable[[], None], seconds: float) -> None:
        """Queue a task when `seconds` have passed, or at once when the queue is drained. One such task may wait at a
        time: of a second one the first is queued now. Never waits."""
        if os.getpid() != self._pid:
            return
        self._take_later()
        with self._wake:
            self._later = time.monotonic() + seconds, task
        self.start()

    def start(self) -> None:
        """Start the thread although nothing is queued, so that `idle` is called."""
        self.put(lambda: None)

    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all queued tasks; tells whether all are done."""
        if os.getpid() != self._pid or self._thread is None:
            return True
        self._take_later()
        end = time.monotonic() + timeout
        with self._wake:
            while self._tasks or self._running:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._wake.wait(min(left, 0.05))
        return True

    def close(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds, then stop."""
        done = self.drain(timeout)
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        return done

    def _take_later(self, due: float = math.inf) -> None:
        """Queue the task that waits for its time, where that is not after `due`."""
        with self._wake:
            if self._later is not None and self._later[0] <= due:
                self._tasks.append(self._later[1])
                self._later = None

    def _work(self) -> None:
        while True:
            with self._wake:
                self._take_later(time.monotonic())
                if not self._tasks and not self._closed:
                    wait = self._every if self._later is None else self._later[0] - time.monotonic()
                    self._wake.wait(min(self._every, max(wait, 0.0)))
                    self._take_later(time.monotonic())
                if self._closed:
                    return
                task = self._tasks.popleft() if self._tasks else self._idle
                self._running = task is not None
            if task is not None:
                try:
                    task()
                except Exception as e:
                    self._on_error(e)
            with self._wake:
                self._running = False
                self._wake.notify_all()
