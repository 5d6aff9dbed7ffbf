"""Which format a file is of, by what stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import documents, prefix, tables, tensorboard, text
from .keyed import LlmC, Modded, NanoGpt, Torchtitan
from .line_format import LineFormat
from .megatron import Megatron
from .pairs import Pairs
from .rows import Format, ImportTrouble, Row, Told

LOOKED_AT = 200_000
"""Lines of a file that are looked at for a row of a known format: some jobs say a lot before they train."""
BYTES = 1 << 26
"""The same in bytes, of a file that has no rows by then."""
SURE = 12
"""Rows of one format after which no more are looked at."""
LINE_FORMATS: tuple[type[LineFormat], ...] = (Megatron, Torchtitan, LlmC, NanoGpt, Modded)


def detect(path: Path) -> Format | None:
    """A reader for the file, or None where it is no log that is known. Raises `ImportTrouble` if it cannot be read."""
    if not path.is_file():
        raise ImportTrouble(f"{path} is no file")
    start = text.head(path)
    if tensorboard.is_events(start):
        return tensorboard.TensorBoard()
    if not start.strip() or _binary(start):
        return None
    return _document(path, start) or _table(path) or _lines(path)


def _binary(start: bytes) -> bool:
    """Whether the first line is no text; a hole of zeros further on may be what a crash left in a log."""
    return b"\0" in start.partition(b"\n")[0] and start[:2] not in (b"\xff\xfe", b"\xfe\xff")


def _document(path: Path, start: bytes) -> Format | None:
    """A JSON document with the keys of a log; a large file is parsed only where its beginning looks like one."""
    if not start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    if not any(
        mark in start for mark in (b'"log_history"', b'"step_interval"', b'"global_step"', b'"best_metric"')
    ):
        return None
    found = documents.load(path)
    if documents.is_trainer_state(found):
        return documents.TrainerState()
    return documents.Golden() if documents.is_golden(found) else None


def _table(path: Path) -> Format | None:
    """A table whose first rows have a step and a loss, a norm or a rate."""
    told = Told()
    first: list[str] = []
    for line in text.lines(path, told):
        if line.text.strip():
            first.append(line.text.lstrip("\ufeff"))
        if len(first) == 8 or line.number > 64:
            break
    if not first:
        return None
    if first[0].lstrip().startswith("{"):
        rows = [r for r in map(_object, first) if r is not None]
        return tables.JsonLines() if any(tables.is_table(list(r), r) for r in rows) else None
    delimiter = tables.delimiter_of(first[0])
    if len(first) < 2 or delimiter not in first[0]:
        return None
    cells = [tables.cells_of(x, delimiter) for x in first]
    row = dict(zip(cells[0], cells[1], strict=False))
    return tables.Csv() if len(cells[1]) == len(cells[0]) and tables.is_table(cells[0], row) else None


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _lines(path: Path) -> Format | None:
    """The format of lines of which the most rows are found."""
    readers = [f() for f in LINE_FORMATS]
    rows = [0] * len(readers)
    pairs, plain, others = Pairs(), 0, 0
    told = Told()
    size = 0
    for line in text.lines(path, Told()):
        size += len(line.text)
        if not line.text.strip():
            continue
        if not others:
            found = pairs.parse(prefix.Prefix(line.text), line, told)
            plain, others = (plain + 1, others) if found else (plain, 1)
        p: prefix.Prefix | None = None
        for i, reader in enumerate(readers):
            if any(h in line.text for h in reader.hints):
                p = p or prefix.split(line.text)
                found = reader.parse(prefix.Prefix(p.rest), line, told)
                started = reader.wraps(p.rest)
                rows[i] += isinstance(found, Row) or started
        if max(rows) >= SURE or line.number >= LOOKED_AT or size > BYTES or (plain >= 64 and not others):
            break
    if plain >= 2 and not others and not max(rows):
        return Pairs()
    best = max(range(len(rows)), key=lambda i: rows[i])
    return LINE_FORMATS[best]() if rows[best] else None
