"""The series: per-step values of one writer, as an Arrow IPC stream while hot, as Parquet when sealed.

A torn tail of a stream gives back every whole batch, so a killed process loses at most the steps in flight.
Integer counts of NaN and infinities stand beside each value, since query engines differ on NaN.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from . import layout

PROBES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("signal", pa.string()),
        ("value", pa.float64()),
        ("n_nan", pa.int32()),
        ("n_posinf", pa.int32()),
        ("n_neginf", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per step and signal. signal: loss, grad_norm_local, grad_norm, lr, clip_threshold (see the glossary)."""

BATCHES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("micro", pa.int32()),
        ("digest", pa.string()),
        ("samples", pa.int64()),
        ("tokens", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per step and micro-batch: the batch fingerprint of this rank."""

TABLES = {"probes": PROBES, "batches": BATCHES}


class SeriesWriter:
    """Writes one table of one writer. Not thread-safe: the layer's worker thread owns it."""

    def __init__(self, ledger: Path, segment: str, writer: str, table: str) -> None:
        self.path = layout.series_folder(ledger) / segment / f"{writer}.{table}.arrows"
        self._schema = TABLES[table]
        self._sink: Any = None
        self._stream: Any = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows as one record batch and hand it to the operating system. Raises `OSError`."""
        if not rows:
            return
        if self._stream is None:
            layout.make_folder(self.path.parent)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, layout.FILE_MODE)
            self._sink = os.fdopen(fd, "wb")
            self._stream = pa.ipc.new_stream(self._sink, self._schema)
        self._stream.write_batch(pa.RecordBatch.from_pylist(list(rows), schema=self._schema))
        self._sink.flush()

    def close(self) -> Path | None:
        """End the stream and seal it to Parquet. Returns the sealed file, None where nothing was written."""
        if self._stream is None:
            return None
        self._stream.close()
        self._sink.close()
        self._stream = None
        return seal(self.path)


def seal(stream: Path) -> Path:
    """Turn a stream file into Parquet (zstd, byte-stream-split), then drop the stream."""
    table = read_stream(stream)
    target = stream.with_suffix(".parquet")
    temporary = target.with_name(f".{target.name}.tmp")
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type)]
    pq.write_table(
        table,
        temporary,
        compression="zstd",
        use_dictionary=[f.name for f in table.schema if pa.types.is_string(f.type)],
        use_byte_stream_split=floats,
    )
    os.chmod(temporary, layout.FILE_MODE)
    os.replace(temporary, target)
    stream.unlink()
    return target


def read_stream(path: Path) -> pa.Table:
    """Read every whole batch of a stream; a torn tail is left out. Raises `pa.ArrowInvalid` if none can be read."""
    batches = []
    with path.open("rb") as f:
        reader = pa.ipc.open_stream(f)
        schema = reader.schema
        while True:
            try:
                batches.append(reader.read_next_batch())
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError):
                break
    return pa.Table.from_batches(batches, schema=schema)


def read_one(path: Path) -> pa.Table:
    """Read one series file, sealed or hot. Raises `OSError` or `pa.ArrowInvalid` (a `ValueError`)."""
    return pq.read_table(path) if path.suffix == ".parquet" else read_stream(path)


def files(ledger: Path, table: str) -> list[Path]:
    """The series files of a table: sealed ones, and streams that are not sealed yet."""
    found = {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.arrows")}
    found |= {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.parquet")}
    return sorted(found.values())


def read(ledger: Path, table: str, columns: Iterable[str] | None = None) -> pa.Table:
    """Read a table over all writers. Files that cannot be read are left out (`verify` names them)."""
    parts = []
    for path in files(ledger, table):
        try:
            part = read_one(path)
        except (pa.ArrowInvalid, OSError):
            continue
        parts.append(part.select(list(columns)) if columns else part)
    schema = TABLES[table]
    if columns:
        schema = pa.schema([schema.field(c) for c in columns])
    return pa.concat_tables(parts) if parts else schema.empty_table()
