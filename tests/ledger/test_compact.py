"""Merged series files: every row once, at every moment, for every reader."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("numpy")

from benchmarks.fleet_ledger import Size, draw, write
from lineage.ledger import cells, compact, layout, reader, series, verify
from tests.fleet.drawn import Drawn
from tests.ledger.helpers import reap

SIZE = Size(6, 120, 4)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A small fleet's."""
    write(tmp_path / "run", SIZE, 4, draw(4, SIZE), leave=0, processes=1)
    return tmp_path / "run"


def rows(ledger: Path, table: str) -> list[Any]:
    found = series.read(ledger, table)
    order = [(n, "ascending") for n in ("segment", "rank", "step")]
    return sorted(map(repr, found.sort_by(order).to_pylist()))


def answer(ledger: Path) -> list[Any]:
    return [b.model_dump_json() for b in cells.find_small(reader.open_ledger(ledger)).first_bads.values()]


def test_every_row_is_there_once_the_answer_is_the_same_and_a_second_call_does_nothing(ledger: Path) -> None:
    """Two tables of six ranks become a file each; `verify` finds the ledger whole."""
    before, first = {t: rows(ledger, t) for t in ("probes", "tensors")}, answer(ledger)
    done = compact.compact(ledger)
    assert (done.merged, done.into, done.left) == (12, 2, [])
    assert {t: rows(ledger, t) for t in before} == before
    assert answer(ledger) == first
    assert len(list(layout.series_folder(ledger).glob("*/*"))) == 2
    assert verify.verify(ledger).whole
    again = compact.compact(ledger)
    assert (again.merged, again.into, again.removed) == (0, 0, 0)


@pytest.mark.parametrize("at", ["replace", "unlink"])
def test_killed_at_any_point_no_row_is_lost_or_doubled(ledger: Path, at: str) -> None:
    """A process that dies before the rename, or with half of the files removed; the next call ends the work."""
    before = rows(ledger, "tensors")
    pid = os.fork()
    if pid == 0:
        _die_at(at)
        try:
            compact.compact(ledger)
        finally:
            os._exit(0)
    assert reap(pid) == -signal.SIGKILL
    assert rows(ledger, "tensors") == before
    assert verify.verify(ledger).whole
    compact.compact(ledger)
    assert rows(ledger, "tensors") == before
    assert len(list(layout.series_folder(ledger).glob("*/*"))) == 2
    assert not list(layout.series_folder(ledger).glob("*/.*"))


def _die_at(at: str) -> None:
    """Kill this process in the middle of the first merge of `tensors`."""
    calls = {"n": 0}
    replace, unlink = os.replace, Path.unlink

    def dying_replace(a: Any, b: Any) -> None:
        if at == "replace" and "tensors" in str(b):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(a, b)

    def dying_unlink(path: Path, missing_ok: bool = False) -> None:
        if at == "unlink" and "tensors" in path.name and not path.name.startswith("."):
            calls["n"] += 1
            if calls["n"] == 4:
                os.kill(os.getpid(), signal.SIGKILL)
        unlink(path, missing_ok=missing_ok)

    os.replace = dying_replace  # type: ignore[assignment]
    Path.unlink = dying_unlink  # type: ignore[method-assign]


def test_a_reader_that_listed_the_files_before_finds_their_rows_afterwards(ledger: Path) -> None:
    """Each by the name that it had."""
    listed = series.files(ledger, "tensors")
    before = [series.read_one(p) for p in listed]
    compact.compact(ledger)
    assert not any(p.exists() for p in listed)
    assert [series.read_one(p).equals(t) for p, t in zip(listed, before, strict=True)] == [True] * len(listed)


def test_queries_that_listed_the_files_before_find_their_rows_afterwards(ledger: Path) -> None:
    """As a big ledger is read."""
    pytest.importorskip("duckdb")
    from lineage.fleet import files
    from lineage.fleet.find import find

    first = answer(ledger)
    opened = reader.open_ledger(ledger)
    listed = [files.here(ledger, t) for t in ("probes", "tensors")]
    compact.compact(ledger)
    for given in ((), listed):  # the merged files, and those that were listed before
        found = find(opened, *given)
        assert [b.model_dump_json() for b in found.first_bads.values()] == first
        assert not any(s.unread for s in found.seen.values())


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_streams_twins_and_broken_files_stay_as_they_are(tmp_path: Path, seed: int) -> None:
    """What still grows, what several processes wrote as one rank, what cannot be read: judged as before."""
    Drawn(tmp_path, seed)
    before, first = rows(tmp_path, "probes"), answer(tmp_path)
    hot = sorted(layout.series_folder(tmp_path).glob("*/*.arrows"))
    compact.compact(tmp_path)
    assert rows(tmp_path, "probes") == before
    assert answer(tmp_path) == first
    assert sorted(layout.series_folder(tmp_path).glob("*/*.arrows")) == hot


def test_two_at_once_is_refused(ledger: Path) -> None:
    """The second one says so and merges nothing."""
    (folder,) = layout.series_folder(ledger).glob("*")
    with compact._alone(folder), pytest.raises(compact.Busy, match="another process merges"):
        compact.compact(ledger)
    assert len(list(folder.glob("*"))) == 12


def test_a_merged_file_is_sealed_as_others_are(ledger: Path) -> None:
    """Checksums of pages, mode 0600, and who wrote each row."""
    compact.compact(ledger)
    (merged,) = layout.series_folder(ledger).glob("*/merged_*.tensors.parquet")
    assert merged.stat().st_mode & 0o777 == 0o600
    assert series.fault(merged) is None
    held = pa.parquet.read_table(merged) if hasattr(pa, "parquet") else series.read_one(merged)
    assert len(held["writer"].unique()) == SIZE.ranks
    data = bytearray(merged.read_bytes())
    data[len(data) // 3] ^= 0x10
    merged.write_bytes(data)
    assert [d.code for d in verify.verify(ledger).damage] == ["LIN-J010"]
