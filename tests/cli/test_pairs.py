"""Comparing runs of many ranks: one rank speaks for a run, whichever wrote first."""

from __future__ import annotations

from lineage.judge import conditions
from tests.judge.builders import History, effective, uid


def test_the_lowest_rank_speaks_for_a_run() -> None:
    """Seeds differ by rank: comparing rank 1 of one run with rank 0 of another would be a false change."""
    h = History()
    h.segment(1)
    h.records = [r for r in h.records if r.kind != "effective"]
    h.add(effective(seed=1235), 1, step=1, rank=1)
    h.add(effective(seed=1234), 1, step=1, rank=0)
    held = conditions.at_start(h.records, uid(1)).side.effective
    assert held is not None
    assert held.values["seed"].value.plain() == 1234
