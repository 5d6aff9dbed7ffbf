"""The contract of the adapter: `python -m pytest test_contract.py`, where runlineage and sqlite_sink are installed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_sink import SqliteHeld, SqliteRun, SqliteTracker

from trackers.contract import Seen, TrackerContract


class TestSqlite(TrackerContract):
    kind = "sqlite_sink"

    def open(self, place: Path) -> SqliteTracker:
        place.mkdir(parents=True, exist_ok=True)
        return SqliteTracker(SqliteRun(place / "runs.db", "pretrain"))

    def seen(self, place: Path) -> Seen:
        with closing(sqlite3.connect(place / "runs.db")) as db:
            page = db.execute("SELECT key, value FROM lineage_page ORDER BY key").fetchall()
            records = db.execute("SELECT id, kind, body FROM lineage_records ORDER BY number").fetchall()
            files = dict(db.execute("SELECT name, content FROM lineage_files"))
        text = "\n".join(" ".join(row) for row in [*page, *records])
        return Seen(text, [record for record, kind, _ in records if kind == "regime"], files)

    @contextmanager
    def dead(self, place: Path) -> Iterator[None]:
        """Another process holds the file."""
        with closing(sqlite3.connect(place / "runs.db", isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            yield
            lock.execute("ROLLBACK")

    def held(self, place: Path) -> SqliteHeld:
        return SqliteTracker.held(f"{place / 'runs.db'}#pretrain")
