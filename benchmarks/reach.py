"""Timing of calls, and seeing whether they reach for the network on the calling thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .timing import summary

Key: TypeAlias = tuple[str, str, str]
"""(state of the tracker, call, who makes it)"""


@dataclass
class Samples:
    """What was seen of one call: seconds of each, connections opened in all, and how many raised."""

    seconds: list[float] = field(default_factory=list)
    connects: int = 0
    raised: int = 0

    def summary(self) -> dict[str, float | int]:
        """See `timing.summary`."""
        return summary(self.seconds)

    def outcome(self) -> str:
        """Words for calls that raised into the caller."""
        return f" (raises {self.raised} of {len(self.seconds)})" if self.raised else ""


class Sample:
    """One call under way. `pause` and `resume` take the training's own work out of it."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.connects = 0
        self.running = False
        self._began = 0.0
        self.resume()

    def pause(self) -> None:
        """Stop the clock."""
        self.spent += time.perf_counter() - self._began
        self.running = False

    def resume(self) -> None:
        """Let the clock go on."""
        self.running = True
        self._began = time.perf_counter()


class Reach:
    """Samples of many calls. Its audit hook stays for the life of the process, so one process makes one."""

    def __init__(self) -> None:
        self.found: dict[Key, Samples] = {}
        self._thread = threading.get_ident()
        self._now: Sample | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: Any) -> None:
        if event == "socket.connect" and threading.get_ident() == self._thread:
            now = self._now
            if now is not None and now.running:
                now.connects += 1

    @contextmanager
    def sample(self, key: Key) -> Iterator[Sample]:
        """Time the block as one call; what it raises is counted and passes through."""
        now = self._now = Sample()
        kept = self.found.setdefault(key, Samples())
        try:
            yield now
        except Exception:
            kept.raised += 1
            raise
        finally:
            now.pause()
            self._now = None
            kept.seconds.append(now.spent)
            kept.connects += now.connects

    def timed(self, key: Key, action: Callable[[], Any]) -> Any:
        """Time one call and return its result."""
        with self.sample(key):
            return action()

    def attempted(self, key: Key, action: Callable[[], Any]) -> None:
        """Time one call that may raise, as a user's call to a dead tracker does."""
        try:
            self.timed(key, action)
        except Exception:
            return  # counted in `raised`

    def ordered(self, calls: Sequence[str]) -> list[tuple[Key, Samples]]:
        """All samples: by state in order of measuring, then by call as given, then as measured."""
        states = list(dict.fromkeys(state for state, _, _ in self.found))
        return sorted(self.found.items(), key=lambda kv: (states.index(kv[0][0]), calls.index(kv[0][1])))
