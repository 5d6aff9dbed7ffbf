"""Appends per second: the ledger's journal beside what a user would write records with instead."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from uuid6 import uuid7

import schemas
from lineage.ledger.journal import Journal

from .table import SPREAD, Column, Table
from .timing import Variant, summary, take_turns, timed

NAME = "journal"
COLUMNS = (
    Column("what", "one record appended by"),
    Column("durable", "waits for the disk"),
    *SPREAD,
    Column("rate", "per second", "rate"),
    Column("ratio", "time, journal = 1", "ratio"),
)
DURABLE, QUICK = "journal, fsync (what the layer does)", "journal, no fsync"


def payload(number: int) -> schemas.Mitigation:
    """A record of ordinary size."""
    return schemas.Mitigation(
        uid=str(uuid7()),
        concept="learning_rate",
        before=schemas.Scalar.of(3e-4),
        after=schemas.Scalar.of(1e-4),
        why=f"the loss rose for {number} steps after the data mix changed",
        hypothesis="the step is too large for the new mix",
    )


def _journal(folder: Path, *, fsync: bool) -> Callable[[int], object]:
    place = schemas.Place(node="bench", pid=os.getpid())
    journal = Journal(folder / f"ledger-{fsync}", "bench", str(uuid7()), 0, place, fsync=fsync)
    return lambda i: journal.append(payload(i), step=i)


def _line(i: int) -> str:
    """What the alternatives write: the same payload as JSON, without envelope, id or chain."""
    return json.dumps({"step": i, **payload(i).model_dump(mode="json")})


def _plain(folder: Path, *, fsync: bool) -> Callable[[int], object]:
    file = (folder / f"plain-{fsync}.jsonl").open("a", encoding="utf-8")

    def append(i: int) -> None:
        file.write(_line(i) + "\n")
        file.flush()
        if fsync:
            os.fdatasync(file.fileno())

    return append


def _sqlite(folder: Path, synchronous: str) -> Callable[[int], object]:
    connection = sqlite3.connect(folder / f"{synchronous}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, step INTEGER, line TEXT)")
    return lambda i: connection.execute("INSERT INTO records (step, line) VALUES (?, ?)", (i, _line(i)))


def _logging(folder: Path) -> Callable[[int], object]:
    logger = logging.Logger("bench")  # no parent: the record goes to this one handler only
    logger.addHandler(logging.FileHandler(folder / "training.log"))
    return lambda i: logger.info("%s", _line(i))


def run(*, rounds: int = 8, appends: int = 40) -> Table:
    """Each variant appends `appends` records in a turn, one write and commit per record, for `rounds` turns."""
    table = Table(NAME, "appending one record of about a kilobyte or less", COLUMNS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        writers: dict[str, tuple[bool, Callable[[int], object]]] = {
            DURABLE: (True, _journal(folder, fsync=True)),
            "json.dumps + write + fdatasync, no chain": (True, _plain(folder, fsync=True)),
            "sqlite3, WAL, synchronous=FULL": (True, _sqlite(folder, "FULL")),
            QUICK: (False, _journal(folder, fsync=False)),
            "json.dumps + write + flush, no chain": (False, _plain(folder, fsync=False)),
            "sqlite3, WAL, synchronous=NORMAL": (False, _sqlite(folder, "NORMAL")),
            "logging.FileHandler": (False, _logging(folder)),
        }

        def turn(append: Callable[[int], object]) -> Variant:
            return lambda: [timed(partial(append, i)) for i in range(appends)]

        samples = take_turns({name: turn(write) for name, (_, write) in writers.items()}, rounds)
        _rows(table, samples, {name: durable for name, (durable, _) in writers.items()})
        for kind in (True, False):
            file = next((folder / f"ledger-{kind}").rglob("*.jsonl"))
            count = len(file.read_bytes().splitlines())
            table.notes.append(
                f"journal {'with' if kind else 'without'} fsync: {count:,} lines read back (header included), "
                f"{file.stat().st_size / count:,.0f} bytes each"
            )
        with closing(sqlite3.connect(folder / "FULL.db")) as connection:
            size = connection.execute("SELECT avg(length(line)) FROM records").fetchone()[0]
            table.notes.append(f"the alternatives' lines hold {size:,.0f} bytes each")
    return table


def _rows(table: Table, samples: dict[str, list[float]], durable: dict[str, bool]) -> None:
    for name, found in samples.items():
        s: dict[str, Any] = summary(found)
        reference = summary(samples[DURABLE if durable[name] else QUICK])
        table.add(
            what=name,
            durable="yes" if durable[name] else "no",
            **s,
            rate=1.0 / s["median"],
            ratio=s["median"] / reference["median"],
        )
    table.notes.append("ratios compare with the journal of the same durability; the rate is 1 / median")
