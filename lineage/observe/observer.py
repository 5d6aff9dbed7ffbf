"""The observer of a process: one thread that takes what the wrapped calls left, and gives it to the observed runs."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from ..capture.later import Later
from ..recorder.contain import log
from ..recorder.identity import TakenOver, world
from ..recorder.settings import Settings, resolve
from . import before, ranks
from ._light import light
from .observation import Shared
from .runs import Runs, contained

EVERY = 0.05
"""Seconds between two looks at the queue: no wrapped call ever wakes the thread."""
BATCH = 5_000
"""Copies that are handled before the lock is let go."""
LIMIT = 100_000
"""Copies that wait at most."""
_SILENT = logging.NullHandler()


@dataclass
class Options:
    """How a process is observed."""

    dir: str | None = None
    """folder of all ledgers; by default the usual setting, else the one that `lineage run` was started with"""
    quiet: bool = False
    """no lines in the log, none at exit"""
    capture: bool = True
    """whether code and environment are captured"""
    inline: bool = False
    """no thread but the observer's own"""
    timeout: float = 3.0
    """seconds that the end of the process waits for the last records"""


def settings(options: Options) -> Settings:
    """The settings of all runs that this process will show."""
    found = resolve({"dir": options.dir, "exit_timeout": 1.0})
    values = {**found.values, "report": False, "quiet": True}
    if options.inline:
        values["hardware_every"] = 0.0  # the watch is a thread
    folder = ranks.meeting()
    if found.sources.get("dir") == "default" and folder is not None:
        values["dir"] = folder.parent.parent  # <ledgers>/.observe/<launch>
    values["dir"] = os.path.abspath(os.path.expanduser(str(values["dir"])))
    return Settings(values, found.sources)


class Observer:
    """The thread that empties the queue, from the first tracker's import to the end of the process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.shared = Shared(settings(options), capture=options.capture, inline=options.inline)
        self.enabled = bool(self.shared.settings.enabled)
        self.runs = Runs(self.shared, options.timeout)
        self.lock = threading.RLock()
        self.handled = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed = False
        self._pid = os.getpid()
        self._propagated = log.propagate
        if options.quiet:
            log.addHandler(_SILENT)
            log.propagate = False

    def start(self) -> None:
        """Begin to look at the queue. Never waits."""
        switch = light.events.SWITCH
        switch.later, switch.wake, switch.limit = Later, self.wake, LIMIT
        switch.before = (lambda given: before.held(given, self.shared.settings)) if self.enabled else None
        switch.attached = lambda: self.runs.attached()  # noqa: PLW0108 - a forked child has other runs
        me = world()
        if self.enabled and me.world_size > 1 and me.rank != 0 and ranks.meeting() is not None:
            self.runs.further_rank()
        self._run_thread()

    def _run_thread(self) -> None:
        self._closing.clear()
        self._thread = threading.Thread(target=self._work, name="lineage-observer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """In a forked child: a run begins in it, so it is observed from here on."""
        if self._thread is None and not self._closed:
            light.events.SWITCH.limit = LIMIT
            self._run_thread()
            with contextlib.suppress(Exception):
                from multiprocessing import util

                util.Finalize(None, self.at_exit, exitpriority=10)

    def in_child(self) -> None:
        """After a fork: the parent's runs are the parent's to record, and no thread came along."""
        foreign = frozenset(self.runs.of) | self.runs.handed | self.runs.foreign
        self.shared = Shared(self.shared.settings, capture=False, inline=self.options.inline)
        self.runs = Runs(self.shared, self.options.timeout)
        self.runs.foreign = foreign
        self.lock, self._closing, self._thread = threading.RLock(), threading.Event(), None
        self._pid = os.getpid()
        light.events.SWITCH.limit = 0

    def _work(self) -> None:
        closing = self._closing
        while not closing.wait(EVERY):
            contained(self.turn)
        contained(self._finish)

    def turn(self) -> None:
        """Handle what is in the queue, and what is due."""
        events = light.events.EVENTS
        with self.lock:
            for _ in range(BATCH):
                try:
                    event = events.popleft()
                except IndexError:
                    break
                self.handled += 1
                if self.enabled:
                    contained(functools.partial(self.runs.take, event))
            self.runs.due()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait up to `timeout` seconds until the queue is empty and checkpoints are digested."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self.turn()
            with self.lock:
                waits = self.runs.pending()
            if not light.events.EVENTS and not waits:
                return True
            time.sleep(EVERY)
        return False

    def hand_over(self, run: Any, recorder: Any) -> TakenOver | None:
        """Let `lineage.attach` take a run over. Waits two seconds at most for what is just being written."""
        if not self.lock.acquire(timeout=2.0):
            return None
        try:
            self.turn()
            return self.runs.hand_over(run, recorder)
        finally:
            self.lock.release()

    def catch_up(self) -> None:
        """Handle what is in the queue now, for a recorder that is about to end. Waits a second at most."""
        if os.getpid() == self._pid and self.lock.acquire(timeout=1.0):
            try:
                self.turn()
            finally:
                self.lock.release()

    def at_exit(self) -> None:
        """The process ends."""
        if os.getpid() == self._pid and self._thread is not None:
            self.close(self.options.timeout)

    def close(self, timeout: float) -> None:
        """Finish within about `timeout` seconds; what is stuck by then is left to die with the process."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._closing.set()
        if self._thread is None:
            return
        self._thread.join(timeout * 2)
        lines = self.runs.lines
        if self._thread.is_alive():
            late = "the last records of the observer were not written in time, and the exit does not wait for them"
            lines = [f"lineage: {late}"]
        if self.options.quiet:
            log.removeHandler(_SILENT)
            log.propagate = self._propagated
        elif not resolve().quiet:
            for line in lines:
                log.warning("%s", line)

    def _finish(self) -> None:
        self.turn()
        with self.lock:
            self.runs.finish()
