"""The writing side of a recorder: journal, series and tracker, and what happens when one of them fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._rooms import schemas, trackers
from ..bundle.lately import Lately
from ..ledger import chunks, layout, scan
from ..ledger.columns import Columns
from ..ledger.journal import Journal
from ..ledger.reader import Ledger
from ..ledger.seal import seal
from ..ledger.series import SeriesWriter
from .contain import describe, log
from .delivery import Delivered, file_note
from .identity import Ids, World, place
from .rank_page import RankPage
from .rows import Rows
from .settings import Settings
from .worker import Worker

if TYPE_CHECKING:
    from .webhook import Webhook

CODES = {"tracker": "LIN-L002", "journal": "LIN-J012", "capture": "LIN-L004"}


class Writer:
    """Writes the records of one process. Opened once the run id is known.

    Records go to the journal first, on the calling thread, and are durable when `write` returns; the tracker
    is fed from them on its own thread, the series on another.
    """

    def __init__(self, settings: Settings, world: World, ids: Ids, tracker: trackers.Tracker | None) -> None:
        self.settings, self.world, self.ids = settings, world, ids
        self.place = place(ids.run, world.local_rank)
        self.failures: dict[str, int] = {}
        self.unwritten = 0
        self.step: int | None = None
        self.regime: str | None = None
        self.quarantined: str | None = None
        """the quarantined checkpoint that this segment descends from, in words"""
        self.warned: set[str] = set()
        """checkpoints of which it was said that they are quarantined"""
        self._pid = os.getpid()
        self._closed = False
        root = Path(settings.dir).expanduser().absolute()
        self.ledger = self.asked = root / ids.run
        """the folder that records were asked to be in; they may be elsewhere, where it cannot be written"""
        heads, torn = self._previous()
        self.journal = Journal(
            self.ledger,
            ids.run,
            ids.segment,
            world.rank,
            self.place,
            previous=heads,
            set_aside=torn,
            on_trouble=self._journal_trouble,
        )
        if self.journal.waiting():
            self.ledger = layout.fallback_root() / ids.run
            self.journal.move_to(self.ledger)
        self._sent = chunks.written(self.ledger) if world.rank == 0 else {}
        self._notice_twin()
        self._lines = Rows(
            lambda table: SeriesWriter(self.ledger, ids.segment, self.journal.path.stem, table),
            lambda e: self.trouble("series", e, "step values are not kept"),
        )
        self.lately = Lately()
        """the rows of the last steps, for the evidence of a bad one"""
        self.tasks = Worker(
            "lineage-tasks", lambda e: self.trouble("tasks", e, "a later step of a record is missing")
        )
        self.bundles = Worker(
            "lineage-bundles", lambda e: self.trouble("bundle", e, "the evidence of a bad step is not kept")
        )
        """evidence must not wait behind the files of a checkpoint that are digested"""
        self.outbox = self._open_outbox(tracker)
        self._webhook = self._open_webhook()

    def _notice_twin(self) -> None:
        """Another process that writes for the same rank is said; both records are kept.

        In this segment any other one; in an earlier segment of the run one that still lives.
        """
        mine = self.journal.path
        same_process = layout.writer_of(mine.name)  # the observer's, before it handed over
        found = sorted(mine.parent.parent.glob(f"*/*-{self.world.rank:05d}-*.jsonl"))
        others = [p for p in found if layout.writer_of(p.name) != same_process]
        twins = [f"{p.parent.name}/{p.name}" for p in others if p.parent == mine.parent or layout.held(p)]
        if twins:
            text = (
                f"another process also writes for rank {self.world.rank} of this run: {', '.join(twins[:3])}"
            )
            log.warning("lineage: LIN-J011: %s. Both are kept; check how ranks are started.", text)
            self.journal.append(
                schemas.Degraded(
                    code="LIN-J011",
                    part="journal",
                    error=text,
                    consequence="values of both processes stand under one rank",
                    remedy="end the other process, or give each its own RANK or run id",
                )
            )

    def _previous(self) -> tuple[list[schemas.Head], list[str]]:
        """The heads of earlier files: rank 0 names them, so that a file that goes missing is noticed."""
        if self.world.rank != 0:
            return [], []
        with contextlib.suppress(OSError):
            return scan.heads(self.ledger)
        return [], []

    def _open_outbox(self, tracker: trackers.Tracker | None) -> trackers.Outbox | None:
        if tracker is None and self.world.rank == 0:
            tracker = trackers.adapter("local", self.ledger / "view")
        if tracker is None:
            return None
        if self.world.rank != 0:
            tracker = RankPage(tracker, self.journal.path.parent)
        page = trackers.Page(self.ids.run, share=frozenset(self.settings.share), ledger=str(self.ledger))
        for file in sorted({f.parent.name for f in scan.journal_files(self.ledger)}):
            page.number(file)
        self._delivered = Delivered(self.ledger, tracker.alias())
        return trackers.Outbox(
            tracker,
            page,
            on_shown=self._shown,
            on_published=lambda file, name: self._delivered.keep(file_note(file, name)),
            on_trouble=self._tracker_trouble,
        )

    def _open_webhook(self) -> Webhook | None:
        """The webhook of the setting. Rank 0 alone posts: it sees the other ranks' alarms too."""
        address = self.settings.values.get("webhook")
        if not address or self.world.rank != 0:
            return None
        from .webhook import Webhook  # with what speaks HTTP: not for runs that post nothing

        return Webhook(
            str(address),
            self.ids.run,
            str(self.ledger),
            text="text" in self.settings.share,
            on_trouble=lambda e: self.trouble("webhook", e, "some alarms are not posted; the ledger has all"),
        )

    def write(
        self,
        payload: Any,
        *,
        step: int | None = None,
        caused_by: Sequence[str] = (),
        supersedes: str | None = None,
    ) -> schemas.Envelope:
        """Write a record; it is durable when this returns. The tracker shows it when it can."""
        record = self._keep(payload, step, caused_by, supersedes)
        self._tell(record)
        return record

    def _keep(
        self,
        payload: Any,
        step: int | None = None,
        caused_by: Sequence[str] = (),
        supersedes: str | None = None,
    ) -> schemas.Envelope:
        record = self.journal.append(
            payload, step=self.step if step is None else step, caused_by=caused_by, supersedes=supersedes
        )
        if isinstance(payload, schemas.Regime):
            self.regime = payload.id
        return record

    def _tell(self, record: trackers.Shown) -> None:
        if self.outbox is not None:
            self.outbox.put(record)
        if self._webhook is not None:
            self._webhook.look(record)

    def show(self, record: schemas.Record) -> None:
        """Show another writer's record in this process's tracker, and tell the webhook."""
        self._tell(record)

    def rows(self, **tables: list[dict[str, Any]]) -> None:
        """Write the rows of one step or several, by table."""
        if os.getpid() == self._pid:
            self.lately.add(tables)
            self._lines.put(tables)

    def metrics(self, rows: list[dict[str, Any]]) -> None:
        """Write rows of what the training code logged, as the observer saw it. Any thread may."""
        if os.getpid() == self._pid:
            self._lines.put_aside("metrics", rows)

    def columns(self, table: str, columns: Columns) -> None:
        """Write the many rows that one step has in a table: all tensors that were read, all samples."""
        if os.getpid() == self._pid:
            self.lately.add_columns(table, columns)
            self._lines.put_columns(table, columns)

    def series_kept(self) -> bool:
        """Whether this process's step values are on the disk: some file, and each that signals and batches went to."""
        folder = layout.series_folder(self.ledger) / self.ids.segment
        mine = layout.writer_of(self.journal.path.name)
        there = any(layout.writer_of(p.name) == mine for p in folder.glob("*"))
        return there and not {"probes", "batches"} & self._lines.gone()

    def seal(self, why: Literal["checkpoint", "incident", "close"]) -> None:
        """Seal the heads of all chains. Only rank 0 does; its tracker anchors the root and gets the journal."""
        if self.world.rank != 0:
            return
        sealed = seal(scan.heads(self.ledger)[0], why)
        record = self._keep(sealed)
        try:
            if self.outbox is not None and self.outbox.tracker.kind != "local":
                # With the line of the seal itself: only so can the anchor be found again in what the tracker has.
                heads = chunks.with_seal(sealed.heads, self.journal.file, record.seq)
                for item in chunks.write(self.ledger, heads, self._sent, text="text" in self.settings.share):
                    self.outbox.put(item)
        finally:  # after its chunk: an anchor whose line is not there looks like a ledger that was cut
            self._tell(record)

    def publish(self, file: Path, name: str) -> None:
        """Put a file on the run's page."""
        if self.outbox is not None:
            self.outbox.put((file, name))

    def _shown(self, record: trackers.Shown, where: str | None) -> None:
        self._delivered.keep(record.id)
        payload = record.payload
        if isinstance(payload, schemas.Seal) and where is not None and self.outbox is not None:
            tracker = self.outbox.tracker
            where = trackers.text.anchor_place(where, tracker.alias())
            anchor = schemas.Anchor(root=payload.root, tracker=tracker.kind, place=where)
            self.journal.append(anchor, step=record.step, caused_by=[record.id])

    def _tracker_trouble(self, error: Exception, item: Any, final: bool) -> None:
        what = "one record was refused by the tracker" if final else "the tracker's page is behind"
        self.trouble("tracker", error, f"{what}; the ledger has everything", remedy="lineage sync")

    def _journal_trouble(self, error: Exception, where: Path) -> None:
        log.warning(
            "lineage: the journal %s cannot be written (%s). Records wait in memory and are written as soon as "
            "the disk takes them; training goes on.",
            where,
            describe(error),
        )

    def trouble(self, part: str, error: BaseException, consequence: str, remedy: str | None = None) -> None:
        """Count a failure; say the first of each part in the log and in the ledger."""
        self.failures[part] = self.failures.get(part, 0) + 1
        if self.failures[part] != 1 or os.getpid() != self._pid:
            return
        text = describe(error)
        log.warning("lineage: %s failed (%s); %s. Training goes on.", part, text, consequence)
        with contextlib.suppress(Exception):
            self._degraded(part, text, consequence, remedy)

    def degraded(self, part: str, error: str, consequence: str) -> None:
        """Record a failure that was said before this writer was there. `error`: type and message, masked."""
        self.failures[part] = self.failures.get(part, 0) + 1
        self._degraded(part, error, consequence)

    def _degraded(self, part: str, error: str, consequence: str, remedy: str | None = None) -> None:
        code = CODES.get(part, "LIN-L001")
        self.write(
            schemas.Degraded(code=code, part=part, error=error, consequence=consequence, remedy=remedy)
        )

    def close(self) -> int:
        """Write what waits, seal the series, let the tracker catch up for a while. Returns what it still lacks."""
        if self._closed or os.getpid() != self._pid:
            return 0
        self._closed = True
        self.bundles.close(self.settings.exit_timeout * 6)
        self.tasks.close(self.settings.exit_timeout * 6)
        last_acts: tuple[Callable[[], None], ...] = (lambda: self.seal("close"), self._report)
        for last in last_acts:
            try:
                last()
            except Exception as e:
                self.trouble("close", e, "the end of the run is not sealed or not reported")
        if self._webhook is not None:
            self._webhook.close(self.settings.exit_timeout)
        self._lines.close(
            self.settings.exit_timeout,
            lambda name, e: self.trouble(
                "series", e, f"the table {name} stays as a stream; it can be read as it is"
            ),
        )
        left = 0
        if self.outbox is not None:
            left = self.outbox.close(self.settings.exit_timeout)
            if left:
                why = TimeoutError(f"{left} items were not shown within {self.settings.exit_timeout:g} s")
                self._tracker_trouble(why, None, False)
        self._finish_journal()
        return left

    def _report(self) -> None:
        """The report on the run's page: Markdown always, HTML where its libraries are installed.

        A tracker gets a copy without the messages of exceptions; the local one has them, masked.
        """
        if self.world.rank != 0 or not self.settings.report:
            return
        from .. import report

        local, folder = self.outbox is None or self.outbox.tracker.kind == "local", self.ledger / "report"
        with contextlib.suppress(ImportError):
            if local:
                report.write(Ledger(self.ledger), folder)
            else:
                report.write_for_tracker(Ledger(self.ledger), folder, messages="text" in self.settings.share)
        for path in sorted((folder if local else folder / "tracker").glob("report.*")):
            self.publish(path, path.name)

    def _finish_journal(self) -> None:
        if self.journal.close():
            self.journal.move_to(layout.fallback_root() / self.ids.run)
            self.unwritten = self.journal.close()
            where = (
                f"{self.unwritten} records are lost" if self.unwritten else f"they are in {self.journal.path}"
            )
            log.warning("lineage: the disk never took the last records; %s", where)
