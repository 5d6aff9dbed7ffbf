"""The series: per-step values of one writer, as an Arrow IPC stream while hot, as Parquet when sealed.

A torn tail of a stream gives back every whole batch, so a killed process loses at most the steps in flight.
Integer counts of NaN and infinities stand beside each value, since query engines differ on NaN.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import columns as columns_
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
"""One row per step and signal: loss, grad_norm_local, lr, loss_scale, ... (see the glossary)."""

BATCHES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("micro", pa.int32()),
        ("digest", pa.string()),
        ("order_free", pa.string()),
        ("samples", pa.int64()),
        ("tokens", pa.int64()),
        ("documents", pa.int64()),
        ("target_tokens", pa.int64()),
        ("length_min", pa.int64()),
        ("length_mean", pa.float64()),
        ("length_max", pa.int64()),
        ("mask_density", pa.float64()),
        ("padding", pa.float64()),
        ("lowest", pa.int64()),
        ("highest", pa.int64()),
        ("out_of_range", pa.int64()),
        ("bos", pa.int64()),
        ("eos", pa.int64()),
        ("pad", pa.int64()),
        ("domain", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per step and micro-batch: the fingerprint and statistics of this rank's batch. What the batch did not show
is null. In `digest` the order of samples counts; `order_free` is the sum of the samples' digests in two lanes modulo
2^64, so those of shards add up."""

SAMPLES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("micro", pa.int32()),
        ("place", pa.int32()),
        ("digest", pa.string()),
        ("sample", pa.string()),
        ("tokens", pa.int64()),
        ("domain", pa.string()),
    ]
)
"""One row per sample that was read, in its place of the micro-batch: `digest` of its content, and `sample`, the id that
the loop or the data set gave it. At most as many of a step as the setting `samples` says."""

METRICS = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("tracker", pa.string()),
        ("key", pa.string()),
        ("value", pa.float64()),
        ("n_nan", pa.int32()),
        ("n_posinf", pa.int32()),
        ("n_neginf", pa.int32()),
        ("axis", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per number that the training code logged to a tracker, as the observer saw it; `axis` tells what the
step was read from."""

TENSORS = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("tensor", pa.string()),
        ("order", pa.int32()),
        ("elements", pa.int64()),
        ("sumsq", pa.float64()),
        ("largest", pa.float64()),
        ("lowest", pa.float64()),
        ("n_nan", pa.int64()),
        ("n_posinf", pa.int64()),
        ("n_neginf", pa.int64()),
        ("scale", pa.float64()),
        ("dtype", pa.string()),
    ]
)
"""One row per step and tensor that a probe read: a local gradient, a weight, a moment, an update, a block's output.
`sumsq`, `largest` and `lowest` are of the finite elements as they were read; a gradient is `scale` times what it is
without the loss scale. `order` numbers gradients as they arrived. What was not read has no row."""

TABLES = {"probes": PROBES, "batches": BATCHES, "samples": SAMPLES, "metrics": METRICS, "tensors": TENSORS}
COMPRESSED = ("tensors", "samples")
"""Tables of many rows per step, whose stream is compressed while hot too."""


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


def seal(stream: Path) -> Path:
    """Turn a stream file into Parquet (zstd, byte-stream-split, checksums), then drop the stream."""
    table = read_stream(stream)
    target = stream.with_suffix(".parquet")
    temporary = target.with_name(f".{target.name}.tmp")
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type)]
    try:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=[f.name for f in table.schema if pa.types.is_string(f.type)],
            use_byte_stream_split=floats,
            write_page_checksum=True,
        )
        os.chmod(temporary, layout.FILE_MODE)
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    layout.fsync_folder(target.parent)
    stream.unlink()
    return target


def read_stream(path: Path) -> pa.Table:
    """Read every whole batch of a stream; a torn tail is left out. Raises `pa.ArrowInvalid`, `OSError`."""
    return _read_stream(path)[0]


def _read_stream(path: Path) -> tuple[pa.Table, int]:
    """Read a stream, and say where what could be read of it ends, in bytes."""
    schema = TABLES.get(path.stem.rpartition(".")[2])
    with path.open("rb") as f:
        if schema is not None and schema.serialize().to_pybytes().startswith(f.read(1 << 13)):
            return schema.empty_table(), path.stat().st_size  # killed before the first batch
    batches = []
    with path.open("rb") as f:
        reader = pa.ipc.open_stream(f)
        end = f.tell()
        while True:
            try:
                batches.append(reader.read_next_batch())
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError):
                break
            end = f.tell()
    return pa.Table.from_batches(batches, schema=reader.schema), end


def fault(path: Path) -> str | None:
    """Say what is wrong with a series file, None where nothing is. A torn tail of a stream is no fault."""
    try:
        if path.suffix == ".parquet":
            pq.read_table(path, page_checksum_verification=True).validate(full=True)
            return None
        table, end = _read_stream(path)
        table.validate(full=True)
        with path.open("rb") as f:
            f.seek(end)
            tail = f.read()
    except (OSError, ValueError) as e:  # pyarrow's errors are ValueErrors
        return f"cannot be read: {e}"
    at = tail.find(_CONTINUATION, 1)
    while at >= 0:
        if _is_batch(tail[at:]):
            return f"cannot be read from byte {end:,} on, and whole batches follow: it was changed, not torn"
        at = tail.find(_CONTINUATION, at + 1)
    return None


_CONTINUATION = b"\xff\xff\xff\xff"
"""How every message of an Arrow IPC stream begins."""


def _is_batch(data: bytes) -> bool:
    try:
        return bool(pa.ipc.read_message(data).type == "record batch")
    except (OSError, ValueError, EOFError):
        return False


def read_one(path: Path) -> pa.Table:
    """Read one series file, sealed or hot. Raises `OSError` or `pa.ArrowInvalid` (a `ValueError`)."""
    return pq.read_table(path) if path.suffix == ".parquet" else read_stream(path)


def files(ledger: Path, table: str) -> list[Path]:
    """The series files of a table: sealed ones, and streams that are not sealed yet."""
    found = {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.arrows")}
    found |= {p.with_suffix(""): p for p in layout.series_folder(ledger).glob(f"*/*.{table}.parquet")}
    return sorted(found.values())


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
    """Read a table over all writers. Files that cannot be read are left out (`verify` names them)."""
    parts = []
    for path in files(ledger, table):
        try:
            part = read_one(path)
        except (ValueError, OSError):
            continue
        parts.append(part.select(list(columns)) if columns else part)
    schema = TABLES[table]
    if columns:
        schema = pa.schema([schema.field(c) for c in columns])
    return pa.concat_tables(parts) if parts else schema.empty_table()
