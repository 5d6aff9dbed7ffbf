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
