"""A tracker of one's own, in one SQLite file, and its adapter for Lineage.

    run = SqliteRun("runs.db", "pretrain", config={"lr": 3e-4})
    rec = lineage.attach(run)              # found by the entry point in pyproject.toml
    run.log({"loss": 2.3}, step=1)

`SqliteRun` stands for a tracker that was there before. Everything below it is the adapter.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from lineage import schemas, trackers


class SqliteRun:
    """A run of the tracker: a config, and values by step."""

    def __init__(self, file: str | Path, name: str, config: dict[str, Any] | None = None) -> None:
        self.file, self.name, self.config = Path(file).absolute(), name, config or {}
        with self.connected() as db:
            db.execute("CREATE TABLE IF NOT EXISTS logged (run, step, key, value)")

    def log(self, values: dict[str, float], step: int) -> None:
        """Log values of a step."""
        with self.connected() as db:
            rows = [(self.name, step, key, value) for key, value in values.items()]
            db.executemany("INSERT INTO logged VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with closing(sqlite3.connect(self.file, timeout=1)) as db, db:
            yield db


TABLES = """
CREATE TABLE IF NOT EXISTS lineage_records (
  number INTEGER PRIMARY KEY, run TEXT, id TEXT, kind TEXT, segment TEXT, step INTEGER, at TEXT, body TEXT,
  UNIQUE (run, id)
);
CREATE TABLE IF NOT EXISTS lineage_page (run TEXT, key TEXT, record TEXT, value TEXT, PRIMARY KEY (run, key));
CREATE TABLE IF NOT EXISTS lineage_files (run TEXT, name TEXT, content BLOB, PRIMARY KEY (run, name));
"""


class SqliteTracker:
    """Shows records in the tables `lineage_*` beside the run's own; `lineage_page` is what one reads first.

    Every call is on one worker thread, may come again for the same record, and may come late.
    """

    kind = "sqlite_sink"

    def __init__(self, run: SqliteRun) -> None:
        self._run = run

    @classmethod
    def reopen(cls, alias: schemas.TrackerAlias) -> SqliteTracker:
        """Open a page from its alias: for `lineage sync`."""
        return cls(SqliteRun(str(alias.uri), alias.id))

    @classmethod
    def held(cls, where: str) -> SqliteHeld:
        """Open a page for reading: `lineage pull sqlite_sink://FILE#RUN`."""
        file, _, run = where.rpartition("#")
        if not file or not Path(file).is_file():
            raise trackers.TrackerRefused(f"{where} names no file and run: sqlite_sink://FILE#RUN")
        return SqliteHeld(Path(file).absolute(), run)

    def alias(self) -> schemas.TrackerAlias:
        """Name the run. Nothing is opened for it."""
        return schemas.TrackerAlias(tracker=self.kind, id=self._run.name, uri=str(self._run.file))

    def requested(self) -> dict[str, Any]:
        """The config that the run holds."""
        return dict(self._run.config)

    def show(self, record: trackers.Shown, page: trackers.Page) -> str | None:
        """Keep the record once, and on the page what is newest of its kind."""
        payload = record.payload
        if payload.kind in ("journal_header", "anchor"):
            return None  # about the ledger's own files
        body = json.dumps(trackers.plain(record, page), ensure_ascii=False)
        said = {str(payload.kind): body}
        if isinstance(payload, schemas.Verdict):
            said = {"status": payload.status, "verdict": trackers.headline(payload)}
        elif isinstance(payload, schemas.Seal):
            said = {"anchor": payload.root}
        elif isinstance(payload, schemas.Run):
            said = {"run": payload.uid}
        with self._tables() as db:
            row = (self._run.name, record.id, payload.kind, record.segment, record.step, str(record.at), body)
            db.execute(
                "INSERT OR IGNORE INTO lineage_records (run, id, kind, segment, step, at, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            for key, value in said.items():
                db.execute(
                    "INSERT INTO lineage_page VALUES (?, ?, ?, ?) ON CONFLICT (run, key) DO UPDATE"
                    " SET record = excluded.record, value = excluded.value"
                    " WHERE excluded.record > record",  # record ids sort by time: what comes late replaces nothing
                    (self._run.name, key, record.id, value),
                )
        return f"{self._run.file}#lineage_page/{next(iter(said))}"

    def publish(self, file: Path, name: str) -> None:
        """Keep a file under its name; the newest content counts."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not file.is_file():
            raise trackers.TrackerRefused(
                f"{file} cannot be kept as {name!r}: give a file, and a relative name"
            )
        with self._tables() as db:
            content = file.read_bytes()
            db.execute(
                "INSERT OR REPLACE INTO lineage_files VALUES (?, ?, ?)", (self._run.name, name, content)
            )

    def close(self) -> None:
        """Nothing stays open between calls."""

    @contextmanager
    def _tables(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._run.connected() as db:
                for statement in TABLES.split(";"):
                    db.execute(statement)
                yield db
        except (sqlite3.OperationalError, OSError) as e:  # locked, full, gone: later
            raise trackers.TrackerUnavailable(f"{self._run.file}: {e}") from e
        except sqlite3.DatabaseError as e:  # not a database: never
            raise trackers.TrackerRefused(f"{self._run.file}: {e}") from e


class SqliteHeld:
    """A page read back: what `lineage pull` needs to rebuild the ledger on another machine."""

    tracker = SqliteTracker.kind

    def __init__(self, file: Path, run: str) -> None:
        self._file, self.id = file, run
        self.place, self.source = str(file), f"{self.tracker}://{file}#{run}"

    def run(self) -> str | None:
        """The lineage run id."""
        return next((value for _, value in self._page("run")), None)

    def about(self) -> trackers.About:
        """What the tracker says of the run beside its values."""
        return trackers.About(name=self.id)

    def anchors(self) -> list[trackers.HeldRoot]:
        """The newest root."""
        place = f"{self._file}#lineage_page/anchor"
        return [trackers.HeldRoot(root, place) for _, root in self._page("anchor")]

    def files(self) -> list[trackers.HeldFile]:
        """The journal's chunks."""
        return [trackers.HeldFile(name, len(content)) for name, content in self._chunks()]

    def fetch(self, folder: Path) -> None:
        """Put them into a folder."""
        for name, content in self._chunks():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def rows(self) -> Iterator[trackers.Logged]:
        """What the training code logged."""
        found: dict[int, dict[str, float]] = {}
        for step, key, value in self._ask("SELECT step, key, value FROM logged WHERE run = ? ORDER BY rowid"):
            found.setdefault(step, {})[key] = float("nan") if value is None else value  # SQLite has no NaN
        for number, (step, values) in enumerate(found.items(), start=1):
            yield trackers.Logged(step, "step of log", values, None, number)

    def configs(self) -> list[trackers.Asked]:
        """The config is not kept by this tracker."""
        return []

    def others(self) -> list[SqliteHeld]:
        """The other runs of the file that bear the same lineage run id."""
        same = "SELECT run FROM lineage_page WHERE key = 'run' AND value = ? AND run != ?"
        return [SqliteHeld(self._file, name) for (name,) in self._ask(same, self.run(), self.id)]

    def _page(self, key: str) -> list[tuple[str, str]]:
        return self._ask("SELECT record, value FROM lineage_page WHERE run = ? AND key = ?", self.id, key)

    def _chunks(self) -> list[tuple[str, bytes]]:
        return self._ask("SELECT name, content FROM lineage_files WHERE run = ? AND name LIKE 'journal/%'")

    def _ask(self, query: str, *values: Any) -> list[Any]:
        try:
            with closing(sqlite3.connect(self._file, timeout=1)) as db:
                return db.execute(query, values or (self.id,)).fetchall()
        except sqlite3.OperationalError as e:
            raise trackers.TrackerUnavailable(f"{self._file}: {e}") from e
