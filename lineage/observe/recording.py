"""The recorder and the ledger writer as the observer uses them: on its own thread, and without a tracker's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._rooms import schemas, trackers
from ..capture.watched import Watched
from ..recorder import boundary
from ..recorder.identity import Ids, World
from ..recorder.recorder import Recorder
from ..recorder.settings import Settings
from ..recorder.worker import Worker
from ..recorder.writer import Writer


class Inline(Worker):
    """Runs each task at once, on the thread that brings it: the observer has a thread of its own already."""

    def put(self, task: Callable[[], None]) -> None:
        """Run a task."""
        try:
            task()
        except Exception as e:
            self._on_error(e)

    def drain(self, timeout: float) -> bool:
        """Nothing ever waits."""
        return True

    def close(self, timeout: float) -> bool:
        """Nothing ever waits."""
        return True


class ObservedWriter(Writer):
    """A writer that shows nothing in a tracker: the observer is read-only there. `lineage sync` shows it later."""

    def __init__(self, settings: Settings, world: World, ids: Ids) -> None:
        super().__init__(settings, world, ids, None)
        self.tasks = Inline(
            "lineage-tasks", lambda e: self.trouble("tasks", e, "a later step of a record is missing")
        )
        self._lines._thread = Inline(
            "lineage-series", lambda e: self.trouble("series", e, "logged values are not kept")
        )

    def _open_outbox(self, tracker: trackers.Tracker | None) -> trackers.Outbox | None:
        return None


class ObservedRecorder(Recorder):
    """A recorder whose run, segment and parent were found by observation, and that holds no live object."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        ids: Ids,
        *,
        aliases: Sequence[schemas.TrackerAlias],
        start: str,
        parent: boundary.Parent | None,
        name: str | None,
    ) -> None:
        values = {**settings.values, "observed": True}
        super().__init__(
            Settings(values, settings.sources),
            world,
            Watched(),
            parent=parent,
            fork=start == "fork",
            name=name,
        )
        self._given, self._names, self._began = ids, list(aliases), start

    def _ids(self) -> Ids:
        return self._given

    def _open(self, ids: Ids) -> Writer:
        return ObservedWriter(self.settings, self.world, ids)

    def _aliases(self) -> list[schemas.TrackerAlias]:
        return self._names

    def _start(self) -> str:
        return self._began

    def segment_record(self) -> str | None:
        """The record in which the segment stands."""
        return self._segment_record

    def write(self, payload: Any, **more: Any) -> schemas.Envelope | None:
        """Write a record once the ledger is open; None where it is not."""
        w = self.begin()
        return w.write(payload, **more) if w is not None else None
