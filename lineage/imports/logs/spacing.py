"""How far the logged steps lie apart, and where some are missing."""

from __future__ import annotations

from collections import Counter

MOST = 64


class Spacing:
    """Follows the steps of one series of rows as they come."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self._apart: Counter[int] = Counter()
        self._before: int | None = None
        self._open: tuple[int, int] | None = None
        self.gaps: list[tuple[int, int]] = []
        self.missing = 0
        """gaps in all, also those beyond the `MOST` that are kept"""

    def add(self, step: int) -> None:
        """The next step; one that is not larger than the last is passed over."""
        if self.last is None:
            self.first = self.last = step
            return
        apart = step - self.last
        if apart <= 0:
            return
        self._close(apart)
        if self._before is not None and apart > 1.5 * self._before:
            self._open = (self.last, step)
        else:
            self._count(apart)
        self._before, self.last = apart, step

    def _count(self, apart: int) -> None:
        if len(self._apart) < 256 or apart in self._apart:
            self._apart[apart] += 1

    def _close(self, apart: int) -> None:
        """A wider space is a gap where the next one is narrower again; else the rhythm of logging changed."""
        if self._open is None:
            return
        after, until = self._open
        self._open = None
        if until - after > 1.5 * apart:
            self._gap(after, until)
        else:
            self._count(until - after)

    def _gap(self, after: int, until: int) -> None:
        self.missing += 1
        if len(self.gaps) < MOST:
            self.gaps.append((after, until))

    def done(self) -> None:
        """No more steps come."""
        if self._open is not None:
            after, until = self._open
            self._open = None
            self._gap(after, until)

    @property
    def interval(self) -> int:
        """From one row to the next, in most of the steps that lie between rows; 1 where there is only one row."""
        return max(self._apart, key=lambda a: a * self._apart[a], default=1)
