"""The series: hot streams, sealed Parquet, and what a killed process leaves."""

from __future__ import annotations

import math
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lineage.ledger import series, streams, tables
from lineage.ledger.series import SeriesWriter
from lineage.ledger.verify import verify

from .helpers import kill, reap
from .rows import START, probe, probes

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
ODD = [
    probe(0, 0.1),
    probe(1, math.nan, n_nan=3),
    probe(2, math.inf, n_posinf=1),
    probe(3, -math.inf, n_neginf=2),
    probe(4, 5e-324),
    probe(5, -0.0),
]


def writer(ledger: Path, table: str = "probes", rank: int = 0) -> SeriesWriter:
    return SeriesWriter(ledger, "segment", f"node1-{rank:05d}-1-1", table)


def steps(ledger: Path) -> list[int]:
    """The steps that can be read."""
    found: list[int] = series.read(ledger, "probes")["step"].to_pylist()
    return found


def test_rows_can_be_read_as_soon_as_write_returns_and_are_the_owners_only(tmp_path: Path) -> None:
    w = writer(tmp_path)
    for n in range(3):
        w.write(probes(2, first=2 * n))
        assert steps(tmp_path) == list(range(2 * n + 2))
    assert w.path.stat().st_mode & 0o777 == 0o600
    assert w.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_stream_is_parsed_once_while_it_stays_as_it_is_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = writer(tmp_path)
    w.write(probes(2))
    first = streams.read_kept(w.path)
    assert streams.read_kept(w.path) is first
    w.write(probes(2, first=2))
    assert streams.read_kept(w.path).num_rows == 4
    monkeypatch.setattr(streams, "KEPT_BYTES", 0)
    assert streams.read_kept(w.path).num_rows == 4
    assert streams._kept == {}


def test_a_stream_of_many_batches_is_one_piece_when_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TOGETHER", 3)
    w = writer(tmp_path)
    for n in range(8):
        w.write([{**row, "step": n} for row in ODD])
    table = streams.read(w.path)
    assert {c.num_chunks for c in table.columns} == {1}
    assert table["step"].to_pylist() == [n for n in range(8) for _ in ODD]
    assert repr(table["value"].to_pylist()[: len(ODD)]) == repr([r["value"] for r in ODD])
    assert streams.fault(w.path) is None


def test_batches_whose_parts_do_not_fit_are_not_copied_and_are_told_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TOGETHER", 2)
    w = writer(tmp_path)
    for n in range(6):
        w.write([{**row, "step": n, "signal": "abcdefgh"} for row in ODD])
    ends = b"".join((8 * n).to_bytes(4, "little") for n in range(len(ODD) + 1))
    data = w.path.read_bytes()
    at = data.rindex(ends)
    w.path.write_bytes(data[: at + len(ends) - 4] + (1 << 30).to_bytes(4, "little") + data[at + len(ends) :])
    table = streams.read(w.path)
    assert table.num_rows == 6 * len(ODD)
    assert max(c.num_chunks for c in table.columns) > 1
    assert "cannot be read" in (series.fault(w.path) or "")


def test_the_stream_is_one_that_any_arrow_reader_reads(tmp_path: Path) -> None:
    w = writer(tmp_path)
    w.write(ODD[:2])
    w.write(ODD[2:])
    with w.path.open("rb") as f:
        table = pa.ipc.open_stream(f).read_all()
    assert table.schema == tables.PROBES
    assert table.num_rows == len(ODD)


def test_a_torn_stream_gives_back_all_whole_batches(tmp_path: Path) -> None:
    w = writer(tmp_path)
    ends = [0]
    for n in range(4):
        w.write(probes(2, first=2 * n))
        ends.append(w.path.stat().st_size)
    whole = w.path.read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        w.path.write_bytes(whole[:cut])
        batches = sum(end <= cut for end in ends[1:])
        assert steps(tmp_path) == list(range(2 * batches)), cut


def test_closing_seals_to_parquet_with_the_same_rows_and_drops_the_stream(tmp_path: Path) -> None:
    w = writer(tmp_path)
    w.write(ODD)
    hot = series.read(tmp_path, "probes")
    path = w.close()
    assert path is not None
    assert [p.name for p in w.path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600
    sealed = series.read(tmp_path, "probes")
    assert sealed.schema == hot.schema
    assert repr(sealed.to_pylist()) == repr(hot.to_pylist())
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    assert (column.path_in_schema, column.compression) == ("value", "ZSTD")
    assert "BYTE_STREAM_SPLIT" in column.encodings


def test_a_writer_without_rows_leaves_no_file(tmp_path: Path) -> None:
    w = writer(tmp_path)
    w.write([])
    assert w.close() is None
    assert list(tmp_path.rglob("*")) == []


def test_where_stream_and_parquet_are_both_there_rows_count_once(tmp_path: Path) -> None:
    """As after a kill between the renaming of the one and the removal of the other."""
    w = writer(tmp_path)
    w.write(probes(3))
    stream = w.path.read_bytes()
    w.close()
    w.path.write_bytes(stream)
    assert steps(tmp_path) == [0, 1, 2]


def test_the_files_of_another_writer_are_never_appended_to(tmp_path: Path) -> None:
    writer(tmp_path).write(probes(1))
    with pytest.raises(FileExistsError):
        writer(tmp_path).write(probes(1))


def test_kill_9_loses_at_most_two_steps(tmp_path: Path) -> None:
    """Ten processes, each of which says every step that it wrote, die at different points."""
    for n in range(10):
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            w = writer(tmp_path / str(n))
            for step in range(1_000_000):
                w.write([probe(step, float(step))])
                os.write(send, b"%d\n" % step)
            os._exit(1)
        os.close(send)
        with os.fdopen(receive, "rb", buffering=0) as f:
            first = f.read(2)  # step 0 is written
            time.sleep(0.002 * n)
            kill(pid)
            assert reap(pid) == -9
            said = [int(line) for line in (first + f.read()).split()]
        found = steps(tmp_path / str(n))
        assert found == list(range(len(found)))
        assert len(found) >= len(said)
        assert len(said) + 2 >= len(found)
        assert verify(tmp_path / str(n)).damage == []


def test_non_finite_values_and_their_counts_come_back(tmp_path: Path) -> None:
    w = writer(tmp_path)
    w.write(ODD)
    w.close()
    table = series.read(tmp_path, "probes")
    assert [repr(v) for v in table["value"].to_pylist()] == ["0.1", "nan", "inf", "-inf", "5e-324", "-0.0"]
    assert table["n_nan"].to_pylist() == [0, 3, 0, 0, 0, 0]
    assert table["n_posinf"].to_pylist() == [0, 0, 1, 0, 0, 0]
    assert table["n_neginf"].to_pylist() == [0, 0, 0, 2, 0, 0]


def test_no_column_has_a_type_that_spark_refuses() -> None:
    for schema in tables.TABLES.values():
        for field in schema:
            kind = field.type
            assert not pa.types.is_unsigned_integer(kind), field
            assert not pa.types.is_float16(kind), field
            assert not pa.types.is_map(kind), field
            assert not pa.types.is_timestamp(kind) or kind.unit == "us", field


def test_duckdb_and_pyarrow_read_the_same_from_the_sealed_files(tmp_path: Path) -> None:
    for rank in range(2):
        w = writer(tmp_path, rank=rank)
        w.write([row | {"rank": rank} for row in ODD])
        w.close()
    ours = series.read(tmp_path, "probes")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(
            'SELECT segment, rank, step, signal, value, n_nan, n_posinf, n_neginf, epoch_us("at") '
            f"FROM read_parquet('{tmp_path}/series/*/*.probes.parquet') ORDER BY rank, step"
        ).fetchall()
    ordered = ours.sort_by([("rank", "ascending"), ("step", "ascending")]).to_pylist()
    expected = [(*list(row.values())[:-1], (row["at"] - EPOCH) // MICROSECOND) for row in ordered]
    assert expected[1][-1] == (START - EPOCH) // MICROSECOND + 1
    assert repr(rows) == repr(expected)


def test_columns_can_be_chosen_and_an_empty_ledger_gives_an_empty_table(tmp_path: Path) -> None:
    assert series.read(tmp_path, "batches").schema == tables.BATCHES
    assert series.read(tmp_path, "probes", ["step", "value"]).column_names == ["step", "value"]
    writer(tmp_path).write(probes(3))
    assert series.read(tmp_path, "probes", ["step"]).to_pydict() == {"step": [0, 1, 2]}


def test_a_file_that_cannot_be_read_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    writer(tmp_path, rank=0).write(probes(2))
    bad = writer(tmp_path, rank=1)
    bad.write(probes(2, first=10))
    sealed = bad.close()
    assert sealed is not None
    sealed.write_bytes(b"PAR1 and then nothing")
    assert steps(tmp_path) == [0, 1]
