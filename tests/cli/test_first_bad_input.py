"""`lineage first-bad` on ledgers as they really are: ranks missing, clocks off, twins, renumbered, torn, older."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lineage.ledger import series
from tests.judge.builders import uid
from tests.warm import Warm
from tests.written import Written, from_one_rank, usual


class Shown:
    """Runs the command, and gives what it printed."""

    def __init__(self, reader: Warm, cwd: Path) -> None:
        self._reader, self._cwd = reader, cwd

    def __call__(self, ledger: Path, *more: str, code: int = 1, width: int = 100) -> str:
        command = ["-c", "from lineage.cli import main; main()", "first-bad", str(ledger), *more]
        done = self._reader.run(command, cwd=self._cwd, env={**os.environ, "COLUMNS": str(width)})
        assert done.returncode == code, done.stdout + done.stderr
        return str(done.stdout)

    def refused(self, ledger: Path, *more: str) -> str:
        command = ["-c", "from lineage.cli import main; main()", "first-bad", str(ledger), *more]
        done = self._reader.run(command, cwd=self._cwd, env={**os.environ, "COLUMNS": "100"})
        assert done.returncode == 2
        return " ".join((done.stdout + done.stderr).replace("\u2502", " ").split())

    def json(self, ledger: Path, code: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(ledger, "--json", code=code))
        return found


@pytest.fixture
def shown(warm_reader: Warm, tmp_path: Path) -> Shown:
    return Shown(warm_reader, tmp_path)


def where(found: dict[str, Any]) -> tuple[int, int, str]:
    cell = found["first_bad"]["cell"]
    return cell["rank"], cell["step"], cell["signal"]


def test_missing_ranks_are_named_and_the_class_is_of_those_that_are_there(
    tmp_path: Path, shown: Shown
) -> None:
    """Rank 3 left nothing, rank 5 a journal without values, rank 6 stopped long before without a word."""
    w = Written(tmp_path / "run", 8, spoiled=from_one_rank(2, 30, 8))
    w.all([0, 1, 2, 4, 7])
    w.rank(5, last=0)
    w.rank(6, last=12, ends=False)
    found = shown.json(w.path)
    assert where(found) == (2, 30, "grad_norm_local")
    assert found["first_bad"]["gaps"] == [
        "rank 3 left nothing in this ledger: no journal and no values",
        "rank 5 left a journal, and recorded no values in this segment",
        "rank 6 stopped recording after step 12, without a word of the end (killed, hanging, or the layer off)",
    ]
    (symptom,) = found["first_bad"]["symptoms"]
    assert symptom["class"] == "one_rank"
    assert "4 of 5 ranks" in symptom["reason"]
    assert symptom["evidence"][0] == "not recorded at that step on ranks 3, 5, 6"
    text = shown(w.path)
    assert "gone" in next(line for line in text.splitlines() if line.lstrip().startswith("rank 6"))


def test_clocks_that_are_hours_off_move_no_cell_and_are_said(tmp_path: Path, shown: Shown) -> None:
    """Rank 1 is three hours ahead and broke at step 30; rank 0 shows it at step 31, hours before by its own clock."""
    spoiled = from_one_rank(1, 30, 4) | {(0, 31, "loss"): math.nan}
    w = Written(tmp_path / "run", 4, spoiled=spoiled)
    for r in range(4):
        w.rank(r, clock=3 * 3600.0 if r == 1 else 0.0)
    found = shown.json(w.path)
    assert where(found) == (1, 30, "grad_norm_local")
    (gap,) = found["first_bad"]["gaps"]
    assert gap.startswith(
        "the clock of rank 1 differs from the others' (rank 1 by +3.0 hours): cells are ordered by step"
    )


def test_two_writers_of_one_rank_are_judged_apart_and_said(tmp_path: Path, shown: Shown) -> None:
    """Twins whose losses lie at 2 and at 200: mixed they would be one spike after the other; only one breaks."""
    w = Written(tmp_path / "run", 2)
    w.all()

    def far(rank: int, step: int, signal: str) -> float:
        return 100.0 * usual(rank, step, signal)

    w.rank(1, first=10, values=far, name="9", spoiled={(1, 33, "loss"): math.nan})
    found = shown.json(w.path)
    assert where(found) == (1, 33, "loss")
    assert found["first_bad"]["gaps"] == [
        "rank 1: steps 10 to 40 were written by more than one process; each is judged by itself, and which of them "
        "trained what was saved is not shown"
    ]


def test_ranks_that_were_renumbered_after_a_restart_are_told_by_their_devices(
    tmp_path: Path, shown: Shown
) -> None:
    """The device of rank 5 is rank 2 after the restart, and bears the first bad cell both times."""
    w = Written(tmp_path / "run", 8, spoiled=from_one_rank(5, 30, 8))
    w.all()
    for r in range(8):
        w.rank(
            r,
            segment=2,
            first=21,
            last=60,
            place=w.place(7 - r),
            spoiled=from_one_rank(2, 55, 8),
            start="resume",
            parent_step=20,
        )
    found = shown.json(w.path)
    assert (found["segment"], where(found)) == (2, (2, 55, "grad_norm_local"))
    evidence = found["first_bad"]["symptoms"][0]["evidence"]
    assert "the same device had the first bad cell of segment 1, as rank 5" in evidence
    assert found["first_bad"]["place"]["device"] == "GPU-00005"


def test_partial_files_give_what_they_hold_and_are_named(tmp_path: Path, shown: Shown) -> None:
    """A sealed file that was cut cannot be read; a stream that was torn gives back every whole batch."""
    w = Written(tmp_path / "run", 4, spoiled=from_one_rank(2, 30, 4))
    w.all()
    folder = tmp_path / "run" / "series" / uid(1)
    cut = next(p for p in folder.glob("*-00001-*.probes.parquet"))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    sealed = next(p for p in folder.glob("*-00003-*.probes.parquet"))
    table = pq.read_table(sealed)
    writer = series.SeriesWriter(w.path, uid(1), sealed.name.split(".")[0], "probes")
    for i in range(0, table.num_rows, 30):
        writer.write(table.slice(i, 30).to_pylist())
    sealed.unlink()
    stream = sealed.with_suffix(".arrows")
    stream.write_bytes(stream.read_bytes()[:-40])
    found = shown.json(w.path, code=1)
    assert where(found) == (2, 30, "grad_norm_local")
    gaps = found["first_bad"]["gaps"]
    assert any(cut.name in g and "cannot be read" in g for g in gaps)
    assert any("rank 1 left a journal, and recorded no values" in g for g in gaps)
    assert "2 of 3 ranks" in found["first_bad"]["symptoms"][0]["reason"]


def test_a_ledger_of_another_version_is_read_as_far_as_it_goes(tmp_path: Path, shown: Shown) -> None:
    """Files without the columns of today, and one with a column nobody knows."""
    w = Written(tmp_path / "run", 3, spoiled=from_one_rank(1, 30, 3))
    w.all()
    row = {
        "segment": uid(1),
        "step": 30,
        "kind": "gradient",
        "tensor": "head.weight",
        "elements": 64,
        "sumsq": 1.0,
    }
    w.table("tensors", [{**row, "rank": 1, "n_nan": 1, "order": 0}], 1)
    for path in (tmp_path / "run" / "series" / uid(1)).glob("*.parquet"):
        table = pq.read_table(path)
        kept = [
            c
            for c in table.schema.names
            if c not in ("at", "n_posinf", "n_neginf", "scale", "dtype", "lowest")
        ]
        pq.write_table(table.select(kept).append_column("novel", table["rank"]), path)
    found = shown.json(w.path)
    assert where(found) == (1, 30, "gradient")
    assert found["first_bad"]["cell"]["tensor"] == "head.weight"
    assert "First bad: rank 1, step 30, tensor head.weight" in shown(w.path)


def test_the_part_that_is_asked_for_is_shown_and_nonsense_is_refused(tmp_path: Path, shown: Shown) -> None:
    """64 ranks: the map, and ranks 30 to 40 at steps 28 to 32 in words."""
    w = Written(tmp_path / "run", 64, spoiled=from_one_rank(37, 30, 64, 32))
    w.all()
    text = shown(w.path, "--grid", width=80)
    (row,) = (
        line for line in text.splitlines() if line.startswith("> ") and "F" in line and "FIRST" not in line
    )
    assert "ranks 32-39 (n4)" in row
    assert "8/8 bad" in row
    part = shown(w.path, "--ranks", "30-40", "--steps", "28-32", width=80)
    assert [line.split()[:2] for line in part.splitlines() if " ok " in line] == [
        ["ranks", "30-36"],
        [">", "rank"],
        ["ranks", "38-40"],
    ]
    assert "takes one number or two" in shown.refused(w.path, "--ranks", "a-b")
