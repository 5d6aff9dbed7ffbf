"""The outbox: what the thread that trains asks of it never waits for a tracker."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from schemas import TrackerAlias
from trackers import NotMine, Outbox, Page


class Recorded:
    """A tracker that notes which thread calls it, and hangs or declines on request."""

    kind = "mine"

    def __init__(self) -> None:
        self.shown: list[int] = []
        self.closed: list[int] = []
        self.asked = threading.Event()
        self.hanging: threading.Event | None = None
        self.declines = False

    def alias(self) -> TrackerAlias:
        return TrackerAlias(tracker="mine", id="r1")

    def requested(self) -> None:
        return None

    def show(self, record: Any, page: Page) -> str:
        raise AssertionError("only files are published here")

    def publish(self, file: Path, name: str) -> None:
        self.shown.append(threading.get_ident())
        self.asked.set()
        if self.hanging is not None:
            self.hanging.wait()
        if self.declines:
            raise NotMine

    def close(self) -> None:
        self.closed.append(threading.get_ident())


FILE = (Path(__file__), "x.py")


def test_the_tracker_is_closed_on_the_worker_thread_where_its_last_calls_may_hang() -> None:
    tracker = Recorded()
    outbox = Outbox(tracker, Page("r"))
    outbox.put(FILE)
    assert outbox.close(60.0) == 0
    assert tracker.closed == tracker.shown != [threading.get_ident()]


def test_a_call_that_hangs_is_left_behind_and_nothing_of_the_tracker_runs_on_the_caller_s_thread() -> None:
    tracker = Recorded()
    tracker.hanging = threading.Event()
    outbox = Outbox(tracker, Page("r"))
    outbox.put(FILE)
    assert tracker.asked.wait(60.0)
    assert outbox.close(0.05) == 1
    assert tracker.closed == []
    tracker.hanging.set()  # it comes back after all: then it is closed, where it hung
    assert outbox.close(60.0) == 0
    assert tracker.closed == tracker.shown


def test_what_another_process_shows_is_neither_noted_nor_told_as_trouble() -> None:
    tracker = Recorded()
    tracker.declines = True
    told: list[Any] = []
    outbox = Outbox(
        tracker, Page("r"), on_published=lambda *a: told.append(a), on_trouble=lambda *a: told.append(a)
    )
    outbox.put(FILE)
    assert outbox.close(60.0) == 0
    assert (told, len(tracker.shown)) == ([], 1)
