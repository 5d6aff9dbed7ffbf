"""Reading a ledger: all records of a run in order, with the damage that was met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import layout, scan


class LedgerNotFound(FileNotFoundError):
    """There is no ledger where one was looked for."""


@dataclass(frozen=True)
class SegmentView:
    """One segment as read: its number, its record, and the ranks that wrote in it."""

    number: int
    uid: str
    record: schemas.Record
    ranks: tuple[int, ...]

    @property
    def info(self) -> schemas.Segment:
        """The segment's payload, as its lowest rank wrote it."""
        segment: schemas.Segment = self.record.payload
        return segment


class Ledger:
    """A run's ledger folder, read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[scan.Damage] = []
        records: list[schemas.Record] = []
        for file in scan.journal_files(path):
            found, damage = scan.read_file(file, path)
            records += found
            self.damage += damage
        self.records = sorted(records, key=lambda r: (r.at, r.file, r.seq))

    @property
    def run(self) -> str:
        """The lineage run id."""
        return self.records[0].run if self.records else self.path.name

    def of(self, kind: str, segment: str | None = None) -> list[schemas.Record]:
        """All records of a kind, oldest first, of one segment or of all."""
        return [r for r in self.records if r.kind == kind and segment in (None, r.segment)]

    def last(self, kind: str) -> schemas.Record | None:
        """The newest record of a kind."""
        found = self.of(kind)
        return found[-1] if found else None

    @cached_property
    def segments(self) -> list[SegmentView]:
        """All segments in the order in which they began, numbered from 1."""
        by_uid: dict[str, list[schemas.Record]] = {}
        for r in self.of("segment"):
            by_uid.setdefault(r.segment, []).append(r)
        ordered = sorted(by_uid.items(), key=lambda item: min(r.at for r in item[1]))
        return [
            SegmentView(n, uid, _standing(found), tuple(sorted({r.rank for r in found})))
            for n, (uid, found) in enumerate(ordered, 1)
        ]

    @cached_property
    def reached(self) -> dict[str, int]:
        """Segment -> the last step of which a value is recorded, see `series.reached`."""
        from . import series  # Arrow, which takes longer to import than most commands take

        return series.reached(self.path)

    def series(self, table: str, columns: Iterable[str] | None = None) -> Any:
        """A series table over all writers, as a `pyarrow.Table`."""
        from . import series

        return series.read(self.path, table, columns)


def _standing(found: list[schemas.Record]) -> schemas.Record:
    """Of the records of a segment, oldest first, the lowest rank's newest: it supersedes the earlier ones."""
    return min(reversed(found), key=lambda r: r.rank)


def open_ledger(path: str | Path) -> Ledger:
    """Open a run's ledger folder.

    Raises `LedgerNotFound` where the folder holds no journal.
    """
    folder = Path(path)
    if not layout.is_ledger(folder):
        raise LedgerNotFound(
            f"{folder} holds no ledger (no journal/ in it). Name a run's folder, such as "
            f"{layout.DEFAULT_ROOT}/<run id>, or run `lineage show --all` to list the runs that are here."
        )
    return Ledger(folder)


def find(root: Path) -> list[Path]:
    """All ledgers under a root, the one written to last first."""
    if layout.is_ledger(root):
        return [root]
    found = [p for p in root.glob("*") if p.is_dir() and layout.is_ledger(p)]
    return sorted(found, key=_last_written, reverse=True)


def _last_written(ledger: Path) -> float:
    return max((f.stat().st_mtime for f in scan.journal_files(ledger)), default=0.0)
