"""The queries give the same answers through Ibis on DuckDB, through Ibis on Spark, and in plain SQL."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ibis = pytest.importorskip("ibis", reason="Ibis is not installed: pip install 'runlineage[fleet]'")
pytest.importorskip("duckdb")

from benchmarks.fleet_ledger import Size, draw, write
from lineage.fleet import engine, files, lake, sql

SIZE = Size(6, 200, 5)
FAULTS = draw(11, SIZE)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fleet's, with faults."""
    path = tmp_path_factory.mktemp("lake") / "run"
    write(path, SIZE, 11, FAULTS, leave=0, processes=1)
    return path


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Spark in this process."""
    sql_ = pytest.importorskip(
        "pyspark.sql", reason="pyspark is not installed: pip install 'runlineage[fleet]'"
    )
    if shutil.which("java") is None:
        pytest.skip("Spark needs java, which is not installed")
    session = (
        sql_.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


def rows(connection: Any, ledger: Path, name: str) -> list[tuple[Any, ...]]:
    of, query = lake.QUERIES[name]
    found = query(lake.table(connection, str(ledger), of)).to_pyarrow()
    names = sorted(found.column_names)
    return sorted((tuple(_plain(r[n]) for n in names) for r in found.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) and math.isfinite(value) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", list(lake.QUERIES))
def test_a_query_gives_the_same_on_both_engines(ledger: Path, spark: Any, name: str) -> None:
    """Rows with NaN among them, and something in every answer."""
    on_spark = rows(ibis.pyspark.connect(spark), ledger, name)
    on_duckdb = rows(ibis.duckdb.connect(), ledger, name)
    assert on_duckdb
    assert on_spark == on_duckdb


@pytest.mark.parametrize("name", ["broken_values", "broken_tensors", "odd_values", "spans"])
def test_a_query_gives_what_its_sql_gives(ledger: Path, name: str) -> None:
    """What `lineage first-bad` asks of DuckDB by itself."""
    broken = f"signal IN ({sql.judged()}) AND NOT isfinite(value)"
    rest = '"order", elements, n_nan, n_posinf, n_neginf'
    queries = {
        "broken_values": (sql.PROBES, lambda r: f"SELECT segment, rank, signal, step FROM {r} WHERE {broken}"),
        "broken_tensors": (
            sql.TENSORS,
            lambda r: f"SELECT segment, rank, step, kind, tensor, {rest} FROM {r} WHERE {sql.BROKEN}",
        ),
        "odd_values": (sql.PROBES, sql.odd_values),
        "spans": (sql.PROBES, sql.spans),
    }  # fmt: skip
    columns, query = queries[name]
    found = []
    with engine.opened() as e:
        for portion in files.portions(files.here(ledger, lake.QUERIES[name][0])):
            table = files.ask(e, portion, columns, query, files.Unread())
            names = sorted(n for n in table.column_names if n != "writer")
            found += [tuple(_plain(r[n]) for n in names) for r in table.to_pylist()]
    assert sorted(found, key=repr) == rows(ibis.duckdb.connect(), ledger, name)


def test_the_hidden_faults_are_in_the_answers(ledger: Path) -> None:
    """The NaN and its step, the rank that stopped, the rank whose norm is unlike the others'."""
    con = ibis.duckdb.connect()
    assert FAULTS.nan is not None
    assert FAULTS.silent is not None
    assert FAULTS.layer is not None
    first = min(rows(con, ledger, "broken_tensors"), key=lambda r: r[8])
    assert (first[6], first[8], first[9]) == (FAULTS.nan[0], FAULTS.nan[1], f"blocks.{FAULTS.nan[2]}.weight")
    last = {r[2]: r[1] for r in rows(con, ledger, "spans")}
    assert last[FAULTS.silent[0]] == FAULTS.silent[1]
    assert any((r[1], r[4]) == (FAULTS.layer[0], FAULTS.layer[1] + 1) for r in rows(con, ledger, "far_ranks"))
