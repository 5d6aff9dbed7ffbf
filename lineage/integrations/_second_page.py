"""A page in a second tracker, where a framework reports to W&B and to MLflow at once.

The recorder has one page. What goes to it goes to the second one too, on a thread of its own, so that neither waits
for the other; what could not be shown is noted for each, and `lineage sync` shows it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._rooms import schemas, trackers
from ..ledger import scan
from ..recorder.contain import log
from ..recorder.delivery import Delivered, file_note
from ..recorder.recorder import Recorder
from ..recorder.writer import Writer
from ._wrapped import Wrapped


def add(rec: Recorder, run: Any, wrapped: Wrapped) -> None:
    """Show everything in `run`'s tracker too, from the beginning of this segment. Opens the ledger.

    Raises what the tracker's adapter raises; the recorder goes on without the second page then.
    """
    writer, kind = rec.begin(), trackers.kind_of(run)
    if writer is None or writer.outbox is None or kind in (None, writer.outbox.tracker.kind):
        return
    page = _Page(writer, trackers.adapter(str(kind), run))
    page.follow(wrapped)
    if writer.world.rank == 0:
        writer.write(
            schemas.Run(uid=writer.ids.run, name=rec.name, aliases=[page.alias], source=writer.ids.source)
        )


class _Page:
    def __init__(self, writer: Writer, tracker: trackers.Tracker) -> None:
        self._writer, self._tracker, self.alias = writer, tracker, tracker.alias()
        self._delivered = Delivered(writer.ledger, self.alias)
        known = trackers.Page(
            writer.ids.run, share=frozenset(writer.settings.share), ledger=str(writer.ledger)
        )
        for segment in sorted({f.parent.name for f in scan.journal_files(writer.ledger)}):
            known.number(segment)
        self._outbox = trackers.Outbox(
            tracker,
            known,
            on_shown=self._shown,
            on_published=self._published,
            on_trouble=writer._tracker_trouble,
        )
        self._lock = threading.Lock()
        self._put: set[str] = set()

    def follow(self, wrapped: Wrapped) -> None:
        """Take what the first page gets from now on, after what this process wrote before."""
        assert self._writer.outbox is not None
        with self._lock:
            wrapped.wrap(self._writer.outbox, "put", self._watch_put)
            wrapped.wrap(self._writer.outbox, "close", self._watch_close)
            for record in scan.read_file(self._writer.journal.path, self._writer.ledger)[0]:
                self._take(record)

    def _take(self, item: Any) -> None:
        uid = getattr(item, "id", None)
        if uid is None or uid not in self._put:
            self._put.add(str(uid))
            self._outbox.put(item)

    def _watch_put(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(original)
        def put(item: Any) -> None:
            original(item)
            with self._lock:
                self._take(item)

        return put

    def _watch_close(self, original: Callable[[float], int]) -> Callable[[float], int]:
        @functools.wraps(original)
        def close(timeout: float) -> int:
            left = original(timeout)
            late = self._outbox.close(timeout)
            if late:
                kind = self._tracker.kind
                log.warning("lineage: %d items are not on the %s page yet: lineage sync", late, kind)
            with contextlib.suppress(Exception):
                self._tracker.close()
            return left

        return close

    def _shown(self, record: trackers.Shown, where: str | None) -> None:
        self._delivered.add(record.id)
        payload = record.payload
        if isinstance(payload, schemas.Seal) and where is not None:
            where = trackers.text.anchor_place(where, self.alias)
            anchor = schemas.Anchor(root=payload.root, tracker=self._tracker.kind, place=where)
            self._writer.journal.append(anchor, step=record.step, caused_by=[record.id])

    def _published(self, file: Path, name: str) -> None:
        self._delivered.add(file_note(file, name))
