"""The generated fleet is a real ledger, its faults are told, and a disk without room is not written to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("numpy")

from benchmarks import fleet
from benchmarks.fleet_ledger import NoRoom, Size, draw, write
from lineage.fleet import big
from lineage.ledger import reader, verify

PART = Size(64, 2000, 96)
"""A sixty-fourth of the fleet of 4,096 ranks."""


def test_what_is_written_is_a_whole_ledger(tmp_path: Path) -> None:
    """Every file is as a training process writes it: `lineage verify` finds nothing."""
    size = Size(4, 50, 3)
    n = write(tmp_path / "run", size, 1, draw(1, size), leave=0, processes=1)
    found = verify.verify(tmp_path / "run")
    assert found.whole
    assert found.files == 4
    assert not found.damage
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) == n
    assert {p.name.split(".", 1)[1] for p in files} == {"jsonl", "probes.parquet", "tensors.parquet"}


def test_the_need_is_said_and_a_disk_without_room_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written."""
    size = Size(4, 50, 3)
    with pytest.raises(NoRoom, match=r"need .* GiB in .*nothing was written"):
        write(tmp_path / "run", size, 1, draw(1, size), leave=1 << 60)
    assert "4 ranks x 50 steps x 3 layers need" in capsys.readouterr().out
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.slow
def test_the_hidden_faults_of_a_part_of_the_fleet_are_told(tmp_path: Path) -> None:
    """12 million cells, read by queries: the layer, the NaN and the silent rank, with memory that is bounded."""
    faults = draw(7, PART)
    write(tmp_path / "run", PART, 7, faults, leave=1 << 30)
    assert big.is_big(reader.open_ledger(tmp_path / "run"))
    row = fleet.measure(tmp_path / "run", PART, faults)
    assert row["found"] == "all"
    assert row["memory"] < 6


@pytest.mark.parametrize("kind", ["nan", "layer"])
def test_each_fault_alone_is_the_first_bad_cell(tmp_path: Path, kind: str) -> None:
    """The NaN, when no layer went out of its range before it; the layer, when nothing breaks."""
    size = Size(6, 300, 8)
    faults = draw(3, size, [kind])
    write(tmp_path / "run", size, 3, faults, leave=0, processes=1)
    answer, _, _ = fleet.first_bad(tmp_path / "run")
    rank, step, layer = faults.nan or faults.layer or (-1, -1, -1)
    cell = answer["first_bad"]["cell"]
    assert (cell["rank"], cell["step"], cell["layer"]) == (rank, step, f"blocks.{layer}")
    assert cell["abnormal"] == ("non_finite" if kind == "nan" else "out_of_range")
