"""Rows to Arrow, straight from buffers.

`pyarrow.array` and `from_pylist` look whether they were handed a pandas object, and import all of pandas for
that, hundreds of modules, in whatever process trains. Killed in those first moments it would lose every step.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CODES = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d", pa.timestamp("us", tz="UTC"): "q"}


def batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """One record batch of int32, int64, float64, string and UTC microsecond columns; a missing cell is null.

    Raises `TypeError`, `OverflowError` or `KeyError` where a value does not fit its column.
    """
    columns = [_column(field.type, [row.get(field.name) for row in rows]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


Columns = Mapping[str, Any]
"""Column -> its values, all of one length, or one value that stands in every row; a column left out is null."""


def batch_of(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """One record batch of columns that are lists already, or one value for all rows. Raises as `batch` does."""
    length = next(len(c) for c in columns.values() if isinstance(c, list))
    made = []
    for field in schema:
        held = columns.get(field.name)
        made.append(
            _column(field.type, held) if isinstance(held, list) else _constant(field.type, held, length)
        )
    return pa.RecordBatch.from_arrays(made, schema=schema)


def joined(parts: Sequence[Columns]) -> Columns:
    """Several sets of columns below each other."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    lengths = [next(len(c) for c in part.values() if isinstance(c, list)) for part in parts]
    out: dict[str, Any] = {}
    for name in names:
        held = [part.get(name) for part in parts]
        if not any(isinstance(h, list) for h in held) and all(h == held[0] for h in held):
            out[name] = held[0]
        else:
            each = (h if isinstance(h, list) else [h] * n for h, n in zip(held, lengths, strict=True))
            out[name] = [value for values in each for value in values]
    return out


def _constant(kind: pa.DataType, value: Any, length: int) -> pa.Array:
    if value is None or not pa.types.is_string(kind):
        return _column(kind, [value] * length)
    data = value.encode()
    offsets = array.array("i", range(0, (length + 1) * len(data), len(data)) if data else [0] * (length + 1))
    return pa.Array.from_buffers(
        kind, length, [None, pa.py_buffer(offsets), pa.py_buffer(data * length)], null_count=0
    )


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    valid = None
    if None in values:
        bits = sum(1 << i for i, v in enumerate(values) if v is not None)
        valid = pa.py_buffer(bits.to_bytes((len(values) + 7) // 8, "little"))
    if pa.types.is_string(kind):
        return pa.Array.from_buffers(kind, len(values), [valid, *_text(values)])
    if pa.types.is_timestamp(kind):
        values = [v if v is None else (v - _EPOCH) // _MICROSECOND for v in values]
    held = array.array(_CODES[kind], [0 if v is None else v for v in values])
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(held)])


def _text(values: Sequence[str | None]) -> tuple[pa.Buffer, pa.Buffer]:
    """Offsets and bytes of a string column."""
    offsets, data = array.array("i", [0]), bytearray()
    for v in values:
        data += (v or "").encode()
        offsets.append(len(data))
    return pa.py_buffer(offsets), pa.py_buffer(bytes(data))
