"""The page of a rank other than 0: its own, or rank 0's, where rank 0 alone writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._rooms import schemas, trackers
from ..ledger import layout, scan
from .delivery import key

WAIT = 20.0
"""Seconds, on the worker thread, that a rank looks for what rank 0 calls its page."""


class RankPage:
    """A rank's tracker, which shows nothing where it is rank 0's page.

    Two processes that number tags, or set the config of one run, would write over each other. Rank 0 shows the
    alarms, incidents and restores of all ranks, which it reads from the ledger. Whose page it is says the ledger too:
    rank 0's `run` record names it. Where that cannot be seen (ledgers on the nodes' own disks), the page is taken
    for rank 0's: nothing is shown, and the rank's own ledger has everything.
    """

    def __init__(
        self, tracker: trackers.Tracker, folder: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tracker, self._folder, self._clock = tracker, folder, clock
        self.kind = tracker.kind
        self._own: bool | None = False if getattr(tracker, "secondary", False) else None

    def alias(self) -> schemas.TrackerAlias:
        """Name the run."""
        return self._tracker.alias()

    def requested(self) -> Mapping[str, Any] | None:
        """The run's config."""
        return self._tracker.requested()

    def show(self, record: trackers.Shown, page: trackers.Page) -> str | None:
        """Show a record on a page of this rank's own. Raises `NotMine` on rank 0's."""
        if not self._is_own():
            raise trackers.NotMine
        return self._tracker.show(record, page)

    def publish(self, file: Path, name: str) -> None:
        """Publish a file on a page of this rank's own. Raises `NotMine` on rank 0's."""
        if not self._is_own():
            raise trackers.NotMine
        self._tracker.publish(file, name)

    def close(self) -> None:
        """Let go of the tracker: what it would still write belongs on a page of its own alone."""
        if self._own:
            self._tracker.close()

    def _is_own(self) -> bool:
        end = self._clock() + WAIT
        while self._own is None:
            named = self._of_rank_zero()
            if named is not None:
                self._own = key(self._tracker.alias()) not in named
            elif self._clock() >= end:
                self._own = False
            else:
                time.sleep(0.25)
        return self._own

    def _of_rank_zero(self) -> list[tuple[str, ...]] | None:
        """What rank 0 of this segment calls its pages; None while its record is not to be seen."""
        for path in sorted(self._folder.glob("*.jsonl")):
            who = layout.writer_of(path.name)
            if who is None or who[1] != 0:
                continue
            records, _ = scan.read_file(path, self._folder.parent.parent)
            for r in records:
                if isinstance(r.payload, schemas.Run):
                    return [key(a) for a in r.payload.aliases]
        return None
