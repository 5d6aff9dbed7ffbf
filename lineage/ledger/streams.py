"""Reading the series that are not sealed yet: streams of many small batches, whose tail may be torn."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from .tables import TABLES


def read_of(file: Any) -> pa.Table:
    """Read every whole batch of an open stream, wherever it lies. Raises `pa.ArrowInvalid`, `OSError`."""
    reader = pa.ipc.open_stream(pa.BufferReader(file.read()))
    batches = []
    with contextlib.suppress(StopIteration, pa.ArrowInvalid, OSError):
        while True:
            batches.append(reader.read_next_batch())
    return pa.Table.from_batches(batches, schema=reader.schema)


KEPT_STREAMS, KEPT_BYTES = 16, 256 << 20
_kept: OrderedDict[tuple[int, int], tuple[tuple[int, int], pa.Table, int]] = OrderedDict()
"""(device, inode) of a stream -> (bytes, nanoseconds of the last change) when it was read, its rows and their bytes"""
_keeping = threading.Lock()


def read_kept(path: Path) -> pa.Table:
    """Read every whole batch of a stream; a torn tail is left out. Raises `pa.ArrowInvalid`, `OSError`.

    The stream of a killed run has a batch for each few steps, and every check of a run reads it: its batches are put
    together once, and what was read is kept for as long as the file stays as it is, within `KEPT_BYTES`.
    """
    stat = path.stat()
    file, state = (stat.st_dev, stat.st_ino), (stat.st_size, stat.st_mtime_ns)
    with _keeping:
        held = _kept.pop(file, None)
    if held is None or held[0] != state:
        table = read(path)
        held = state, table, table.nbytes
    with _keeping:
        _kept[file] = held
        while _kept and (len(_kept) > KEPT_STREAMS or sum(n for *_, n in _kept.values()) > KEPT_BYTES):
            _kept.popitem(last=False)
    return held[1]


TOGETHER = 256
"""Batches that are put together at a time."""


def read(path: Path) -> pa.Table:
    """Read a stream, its batches put together: whatever looks at a table takes its time for each piece of it."""
    schema = _none_yet(path)
    if schema is not None:
        return schema.empty_table()
    parts, few, sound = [], [], True
    with path.open("rb") as f:
        reader = pa.ipc.open_stream(f)
        for batch in _whole(reader):
            few.append(batch)
            sound = sound and _is_sound(batch)
            if sound and len(few) == TOGETHER:
                parts.append(pa.Table.from_batches(few, schema=reader.schema).combine_chunks())
                few = []
        table = pa.concat_tables([*parts, pa.Table.from_batches(few, schema=reader.schema)])
    return table.combine_chunks() if sound else table


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether the parts of a batch fit, so that it can be copied. One that was damaged is left as it is."""
    try:
        batch.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _none_yet(path: Path) -> pa.Schema | None:
    """The schema of a stream whose process was killed before the first batch, else None."""
    schema = TABLES.get(path.stem.rpartition(".")[2])
    with path.open("rb") as f:
        none = schema is not None and schema.serialize().to_pybytes().startswith(f.read(1 << 13))
    return schema if none else None


def _whole(reader: pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    """The whole batches of a stream; a torn tail is left out."""
    while True:
        try:
            yield reader.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return


def fault(path: Path) -> str | None:
    """Say whether a stream goes on behind what can be read of it, None where it does not: a torn tail is no fault.

    Raises `OSError` and `ValueError` where a whole batch is damaged, or nothing can be read.
    """
    end = _sound_until(path)
    with path.open("rb") as f:
        f.seek(end)
        tail = f.read()
    at = tail.find(_CONTINUATION, 1)
    while at >= 0:
        if _is_batch(tail[at:]):
            return f"cannot be read from byte {end:,} on, and whole batches follow: it was changed, not torn"
        at = tail.find(_CONTINUATION, at + 1)
    return None


def _sound_until(path: Path) -> int:
    """Look at every value of a stream. Returns where what can be read of it ends, in bytes. Raises `ValueError`,
    `OSError` where a whole batch is damaged."""
    if _none_yet(path) is not None:
        return path.stat().st_size
    with path.open("rb") as f:
        reader = pa.ipc.open_stream(f)
        end = f.tell()
        for batch in _whole(reader):
            batch.validate(full=True)
            end = f.tell()
    return end


_CONTINUATION = b"\xff\xff\xff\xff"
"""How every message of an Arrow IPC stream begins."""


def _is_batch(data: bytes) -> bool:
    try:
        return bool(pa.ipc.read_message(data).type == "record batch")
    except (OSError, ValueError, EOFError):
        return False
