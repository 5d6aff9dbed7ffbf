"""A ledger too big for memory without DuckDB says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.fleet_ledger import Size, draw, write
from lineage.fleet import big, engine
from lineage.ledger import cells, reader, tensors


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> reader.Ledger:
    """One that counts as big, where DuckDB is not installed."""
    size = Size(3, 60, 4)
    write(tmp_path / "run", size, 2, draw(2, size), leave=0, processes=1)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(cells, "MOST_VALUES", 200)
    monkeypatch.setattr(tensors, "MOST_NORMS", 200)
    return reader.open_ledger(tmp_path / "run")


def test_without_duckdb_a_ledger_too_big_is_refused_with_the_line_that_installs_it(
    ledger: reader.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read that would not fit."""
    monkeypatch.setattr(big, "MOST", 300)
    with pytest.raises(engine.NoEngine, match=r"more than 300 rows.*pip install 'runlineage\[read\]'"):
        cells.find(ledger)


def test_without_duckdb_a_ledger_that_fits_is_judged_in_part_and_that_is_said(ledger: reader.Ledger) -> None:
    """What was left out stands in the notes, with the line that would judge it too."""
    found = cells.find(ledger)
    assert "were judged here" in found.notes[0]
    assert "pip install 'runlineage[read]'" in found.notes[-1]


def test_small_ledgers_need_no_duckdb(ledger: reader.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way in memory imports nothing of it."""
    monkeypatch.setattr(cells, "MOST_VALUES", 10**6)
    monkeypatch.setattr(tensors, "MOST_NORMS", 10**6)
    assert cells.find(ledger).notes == ()


def test_the_memory_limit_is_set_and_what_does_not_fit_goes_to_a_folder_that_is_removed(
    tmp_path: Path,
) -> None:
    """A query whose groups do not fit into 64 MiB writes there, and gives its answer."""
    pytest.importorskip("duckdb")
    with engine.opened("64MiB", tmp_path) as e:
        assert "64" in e.memory
        assert e.spill.parent == tmp_path
        e.connection.sql("SET threads = 1")
        many = "SELECT range AS x, md5(range::VARCHAR) AS y FROM range(1500000) ORDER BY y"
        assert e.rows(f"SELECT count(*) FROM ({many}) WHERE x >= 0") == [(1500000,)]
        folder = e.spill
    assert not folder.exists()
