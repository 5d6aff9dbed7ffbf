"""Rows to Arrow from buffers: the same batch that pyarrow makes of the same rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage.ledger import columns
from lineage.ledger.series import TABLES

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False) | st.just(math.inf),
    pa.timestamp("us", tz="UTC"): st.datetimes(
        datetime(1930, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)
    ),
}


def rows_of(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({f.name: st.none() | VALUES[f.type] for f in schema})
    return st.lists(row, max_size=20)


@pytest.mark.parametrize("schema", TABLES.values(), ids=TABLES)
@settings(deadline=None)
@given(data=st.data())
def test_any_rows_come_out_as_pyarrow_would_make_them(schema: pa.Schema, data: st.DataObject) -> None:
    """Nulls, signs, surrogate-free text of any script, times before 1970: equal, and valid through and through."""
    rows = data.draw(rows_of(schema))
    made = columns.batch(rows, schema)
    made.validate(full=True)
    assert made.equals(pa.RecordBatch.from_pylist(rows, schema=schema))


def test_nan_keeps_its_place() -> None:
    """NaN is a value and no null."""
    rows = [{"value": math.nan}, {}, {"value": -math.inf}]
    made = columns.batch(rows, pa.schema([("value", pa.float64())]))
    assert made["value"].null_count == 1
    assert math.isnan(made["value"][0].as_py())


@pytest.mark.parametrize("value", ["1", 2**31, 1.5])
def test_a_value_that_does_not_fit_its_column_raises(value: Any) -> None:
    """So that it is said as a failure of the series, and nothing else is written in its place."""
    with pytest.raises((TypeError, OverflowError)):
        columns.batch([{"rank": value}], pa.schema([("rank", pa.int32())]))
