"""Reading journal files line by line, with their damage named: file, line and kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .._rooms import schemas
from . import layout
from .blanked import unblanked
from .journal import line_digest

_CODE = {"bad_json": "LIN-J002", "unknown_schema": "LIN-J005", "invalid": "LIN-J006"}


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a ledger."""

    code: str
    file: str
    line: int
    text: str

    @property
    def title(self) -> str:
        """The code in words."""
        return schemas.CODES[self.code]


def journal_files(ledger: Path) -> list[Path]:
    """All journal files, oldest segment first (segment uids are UUIDv7 and sort by time)."""
    return sorted(layout.journal_folder(ledger).glob("*/*.jsonl"))


def raw_lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (line number from 1, raw bytes without newline, whether it ends with a newline)."""
    with path.open("rb") as f:
        for number, line in enumerate(f, 1):
            yield number, line.rstrip(b"\n"), line.endswith(b"\n")


def read_record(raw: bytes, file: str, line: int) -> schemas.Record:
    """Read a line, also one that a tracker had without its words. Raises `schemas.RecordError`."""
    try:
        plain, _, blanked = unblanked(raw)
    except ValueError as e:
        raise schemas.RecordError("invalid", str(e)) from None
    record = schemas.read_line(plain, file=file, line=line)
    return replace(record, raw=raw) if blanked else record


def digest_of(raw: bytes) -> str:
    """The digest of a line as it was written; of one without its words, as the tracker gives it."""
    try:
        return unblanked(raw)[1]
    except ValueError:
        return line_digest(raw)


def read_file(path: Path, ledger: Path) -> tuple[list[schemas.Record], list[Damage]]:
    """Read one journal file: every good record, and every damage with its line.

    A chain break is named at the line whose `prev` does not fit the line before.
    """
    name = str(path.relative_to(layout.journal_folder(ledger)))
    records: list[schemas.Record] = []
    damage: list[Damage] = []
    prev: str | None = None
    seq = 0
    try:
        for number, raw, whole in raw_lines(path):
            if not whole:
                damage.append(
                    Damage(
                        "LIN-J001",
                        name,
                        number,
                        f"{len(raw)} bytes without a newline: the writer was killed inside this line, which "
                        "it had not acknowledged. The lines before it are whole; the line is set aside.",
                    )
                )
                break
            try:
                record = read_record(raw, name, number)
                if record.at.tzinfo is None:
                    raise schemas.RecordError("invalid", "at: a time without its zone cannot be put in order")
            except schemas.RecordError as e:
                damage.append(Damage(_CODE[e.kind], name, number, str(e)))
                prev, seq = digest_of(raw), seq + 1
                continue
            if record.prev != prev:
                damage.append(
                    Damage(
                        "LIN-J003",
                        name,
                        number,
                        f"prev is {_short(record.prev)}, the line before has {_short(prev)}: a line before "
                        "this one was changed, removed or put in after it was written",
                    )
                )
            if record.seq != seq:
                damage.append(
                    Damage("LIN-J004", name, number, f"sequence number {record.seq}, {seq} is due here")
                )
                seq = record.seq
            records.append(record)
            prev, seq = digest_of(raw), seq + 1
    except OSError as e:
        damage.append(Damage("LIN-J007", name, 0, f"cannot be read: {e}"))
    return records, damage


def _short(digest: str | None) -> str:
    return "null" if digest is None else digest[:19] + "..."


def head_of(path: Path, ledger: Path) -> tuple[schemas.Head | None, bool]:
    """Return the newest whole line of a file as a head, and whether a torn line follows it."""
    with path.open("rb") as f:
        size = f.seek(0, os.SEEK_END)
        window = min(size, 1 << 16)
        while True:
            f.seek(size - window)
            tail = f.read(window)
            body = tail[: tail.rfind(b"\n") + 1].rstrip(b"\n")
            if b"\n" in body or window == size:
                break
            window = min(size, window * 4)
    torn = bool(tail) and not tail.endswith(b"\n")
    line = body.rpartition(b"\n")[2]
    if not line:
        return None, torn
    name = str(path.relative_to(layout.journal_folder(ledger)))
    try:
        seq = read_record(line, name, 0).seq
    except schemas.RecordError:
        return None, torn
    return schemas.Head(file=name, seq=seq, digest=digest_of(line)), torn


def heads(ledger: Path) -> tuple[list[schemas.Head], list[str]]:
    """Return the heads of all journal files, and the names of those with a torn last line."""
    found, torn = [], []
    for path in journal_files(ledger):
        try:
            head, is_torn = head_of(path, ledger)
        except OSError:
            continue  # `verify` names it; the other files' heads are still worth sealing
        if head:
            found.append(head)
        if is_torn:
            torn.append(str(path.relative_to(layout.journal_folder(ledger))))
    return found, torn
