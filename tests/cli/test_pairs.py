"""Comparing runs of many ranks: one rank speaks for a run, whichever wrote first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from lineage.cli.common import Subject
from lineage.cli.pairs import side
from tests.judge.builders import History, effective, uid


def test_the_lowest_rank_speaks_for_a_run(tmp_path: Path) -> None:
    """Seeds differ by rank: comparing rank 1 of one run with rank 0 of another would be a false change."""
    h = History()
    h.segment(1)
    h.records = [r for r in h.records if r.kind != "effective"]
    h.add(effective(seed=1235), 1, step=1, rank=1)
    h.add(effective(seed=1234), 1, step=1, rank=0)
    ledger = SimpleNamespace(
        records=h.records,
        run="r",
        path=tmp_path,
        damage=[],
        segments=[],
        series=lambda *a: SimpleNamespace(to_pylist=list),
    )
    held = side(Subject(ledger)).side.effective  # type: ignore[arg-type]
    assert held is not None
    assert held.values["seed"].value.plain() == 1234
    assert uid(1) in Subject(ledger).graph.segments  # type: ignore[arg-type]
