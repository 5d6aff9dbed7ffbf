"""The series: per-step values of one writer, as an Arrow IPC stream while hot, as Parquet when sealed.

A torn tail of a stream gives back every whole batch, so a killed process loses at most the steps in flight.
Integer counts of NaN and infinities stand beside each value, since query engines differ on NaN.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import columns as columns_
from . import layout, streams
from .tables import COMPRESSED, TABLES


class SeriesWriter:
    """Writes one table of one writer. Not thread-safe: the layer's worker thread owns it."""

    def __init__(self, ledger: Path, segment: str, writer: str, table: str) -> None:
        self.path = layout.series_folder(ledger) / segment / f"{writer}.{table}.arrows"
        self._schema = TABLES[table]
        self._compressed = _Compressed(self._schema) if table in COMPRESSED else None
        self._fd: int | None = None
        self._good = 0

    def write(self, rows: Sequence[Mapping[str, Any]] | columns_.Columns) -> None:
        """Append rows, or columns, as one record batch and hand it to the operating system.

        Raises `OSError`; the file is then cut back to its last whole batch, so that later rows can be read.
        """
        if not rows:
            return
        make = columns_.batch_of if isinstance(rows, Mapping) else columns_.batch
        batch = make(rows, self._schema)  # type: ignore[arg-type]
        message = self._compressed.message(batch) if self._compressed else batch.serialize().to_pybytes()
        if self._fd is None:
            layout.make_folder(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, layout.FILE_MODE)
        if self._good == 0:
            self._put(self._schema.serialize().to_pybytes())
        self._put(message)

    def _put(self, message: bytes) -> None:
        """Write one IPC message whole, or nothing of it."""
        assert self._fd is not None
        try:
            done = 0
            while done < len(message):
                done += os.pwrite(self._fd, message[done:], self._good + done)
        except OSError:
            os.ftruncate(self._fd, self._good)
            raise
        self._good += len(message)

    def close(self) -> Path | None:
        """End the stream and seal it to Parquet. Returns the sealed file, None where nothing was written.

        Raises `OSError` where the disk takes no Parquet file; the stream is kept then.
        """
        if self._fd is None:
            return None
        os.close(self._fd)
        self._fd = None
        return seal(self.path)


class _Compressed:
    """Gives record batches as messages with zstd bodies, which only a stream's own writer makes."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(
            self._sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        )
        self._schema: bytes | None = schema.serialize().to_pybytes()

    def message(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        found = self._take()
        if (
            self._schema is not None
        ):  # written as that of every stream is, and the writer gives it a second time
            found, self._schema = found.removeprefix(self._schema), None
        return found

    def _take(self) -> bytes:
        found = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return found


def sealed_options(schema: pa.Schema) -> dict[str, Any]:
    """How every sealed file is written: what `pyarrow.parquet.ParquetWriter` is given."""
    return {
        "compression": "zstd",
        "use_dictionary": [f.name for f in schema if pa.types.is_string(f.type)],
        "use_byte_stream_split": [f.name for f in schema if pa.types.is_floating(f.type)],
        "write_page_checksum": True,
    }


def write_sealed(table: pa.Table, target: Path) -> None:
    """Write a sealed file whole or not at all. Raises `OSError` and leaves nothing behind then."""
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        pq.write_table(table, temporary, **sealed_options(table.schema))
        os.chmod(temporary, layout.FILE_MODE)
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def seal(stream: Path) -> Path:
    """Turn a stream file into Parquet (zstd, byte-stream-split, checksums), then drop the stream."""
    table = streams.read(stream)
    target = stream.with_suffix(".parquet")
    write_sealed(table, target)
    layout.fsync_folder(target.parent)
    stream.unlink()
    return target


def validate(sealed: Path) -> None:
    """Read all of a sealed file, a group of rows at a time. Raises `OSError` or `ValueError` where it is damaged."""
    with pq.ParquetFile(sealed, page_checksum_verification=True) as file:
        for i in range(file.num_row_groups):
            file.read_row_group(i).validate(full=True)


def fault(path: Path) -> str | None:
    """Say what is wrong with a series file, None where nothing is. A torn tail of a stream is no fault."""
    try:
        if path.suffix == ".parquet":
            validate(path)
            return None
        return streams.fault(path)
    except (OSError, ValueError) as e:  # pyarrow's errors are ValueErrors
        return f"cannot be read: {e}"


def read_one(path: Path) -> pa.Table:
    """Read one series file, sealed or hot. Raises `OSError` or `pa.ArrowInvalid` (a `ValueError`).

    Of a file that was sealed or merged since it was listed, the rows come from where they are now.
    """
    try:
        return pq.read_table(path) if path.suffix == ".parquet" else streams.read_kept(path)
    except FileNotFoundError:
        sealed = path.with_suffix(".parquet")
        if path.suffix != ".parquet" and sealed.exists():
            return pq.read_table(sealed)
        table = path.stem.rpartition(".")[2]
        for merged in path.parent.glob(f"merged_*.{table}.parquet"):
            if sealed.name in replaced_by(merged):
                rows = pq.read_table(merged, filters=[(WRITER, "==", path.name.split(".")[0])])
                return rows.drop_columns([WRITER])
        raise


WRITER = "writer"
"""Column of a merged file: the process that wrote a row, as its own file was called."""
REPLACES = b"lineage.replaces"
"""Key in a merged file's footer: the names of the files whose rows it holds, as JSON."""


def replaced_by(merged: Path) -> list[str]:
    """The names of the files that a merged file replaces; none where it cannot be read."""
    try:
        found = pq.read_schema(merged).metadata or {}
        return [str(name) for name in json.loads(found.get(REPLACES, b"[]"))]
    except (OSError, ValueError):
        return []


def may_hold(path: Path, rank: int) -> bool:
    """Whether a file may have rows of a rank: a sealed one tells by its statistics, of any other it is not known."""
    if path.suffix != ".parquet":
        return True
    try:
        meta = pq.read_metadata(path)
        at = meta.schema.names.index("rank")
        held = [meta.row_group(i).column(at).statistics for i in range(meta.num_row_groups)]
    except (OSError, ValueError):
        return True  # who reads it says what is wrong
    return any(s is None or not s.has_min_max or s.min <= rank <= s.max for s in held)


def files(ledger: Path, table: str) -> list[Path]:
    """The series files of a table: sealed ones, streams that are not sealed yet, and merged ones.

    What a merged file replaces is left out, also while it is still there.
    """
    found = {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.arrows")}
    found |= {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.parquet")}
    merged = [p for p in found.values() if layout.merged_ranks(p.name) is not None]
    if len(merged) < len(found):
        for path in merged:
            for name in replaced_by(path):
                found.pop((path.parent / name).with_suffix(""), None)
    return sorted(found.values())


def of_segment(ledger: Path, segment: str, table: str) -> Iterator[pa.Table]:
    """A segment's files of a table, one after the other, in the columns of this version. Files that cannot be read are
    left out (`verify` names them)."""
    for path in files(ledger, table):
        if path.parent.name == segment:
            try:
                yield fitted(read_one(path), TABLES[table])
            except (ValueError, OSError):
                continue


def reached(ledger: Path) -> dict[str, int]:
    """Segment -> the last step of which any value is recorded. Journals of a killed process do not tell it.

    Sealed files answer from their statistics; of hot ones only the steps are read.
    """
    found: dict[str, int] = {}
    for table in ("probes", "metrics"):  # an observed run may have logged numbers that are no signal
        of_table: dict[str, int] = {}
        for path in files(ledger, table):
            try:
                last = _last_step(path)
            except (ValueError, OSError):
                continue
            if last is not None:
                segment = path.parent.name
                of_table[segment] = max(of_table.get(segment, last), last)
        found = of_table | found
    return found


def _last_step(path: Path) -> int | None:
    if path.suffix == ".parquet":
        meta = pq.read_metadata(path)
        at = meta.schema.names.index("step")
        held = [meta.row_group(i).column(at).statistics for i in range(meta.num_row_groups)]
        if held and all(s is not None and s.has_min_max for s in held):
            return int(max(s.max for s in held))
    last: int | None = pc.max(read_one(path).column("step")).as_py()
    return last


def read(ledger: Path, table: str, columns: Iterable[str] | None = None) -> pa.Table:
    """Read a table over all writers. Files that cannot be read are left out (`verify` names them).

    A column that a file of another version does not have is null.
    """
    schema = TABLES[table]
    if columns:
        schema = pa.schema([schema.field(c) for c in columns])
    parts = []
    for path in files(ledger, table):
        try:
            parts.append(fitted(read_one(path), schema))
        except (ValueError, OSError):
            continue
    return pa.concat_tables(parts) if parts else schema.empty_table()


def fitted(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring a file's table to a schema: a column it lacks is null, another one is left out.

    Raises `ValueError` where a column holds something else.
    """
    if part.schema.equals(schema):
        return part
    held = set(part.schema.names)
    try:
        columns = [
            part.column(f.name).cast(f.type) if f.name in held else pa.nulls(part.num_rows, f.type)
            for f in schema
        ]
    except pa.ArrowNotImplementedError as e:
        raise ValueError(str(e)) from None
    return pa.Table.from_arrays(columns, schema=schema)
