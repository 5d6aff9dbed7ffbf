"""When a rank last read its weights and moments before a step: the rows of its own files tell."""

from __future__ import annotations

import math
from pathlib import Path

import schemas
from lineage.ledger import tensors
from tests.judge.builders import uid
from tests.written import Written


def cell(segment: str, rank: int, step: int) -> schemas.Cell:
    return schemas.Cell(
        segment=segment,
        rank=rank,
        step=step,
        signal="loss",
        abnormal="non_finite",
        value=math.nan,
        text="loss is NaN",
    )


def test_the_last_read_before_a_step_is_told_of_each_rank_by_itself(tmp_path: Path) -> None:
    """Gradients and updates are no read of the state, and what another rank read says nothing of this one."""
    w = Written(tmp_path / "run", 3)
    read = {
        0: [("weight", 1), ("weight", 11), ("weight", 21), ("gradient", 24)],
        1: [("moment2", 5), ("update", 9)],
    }
    for rank, rows in read.items():
        w.rank(rank)
        w.table(
            "tensors",
            [
                {
                    "segment": uid(1),
                    "rank": rank,
                    "step": step,
                    "kind": kind,
                    "tensor": "a.weight",
                    "elements": 4,
                }
                for kind, step in rows
            ],
            rank,
        )
    w.rank(2)
    asked = [(0, 27), (0, 21), (0, 1), (1, 27), (2, 27)]
    assert [tensors.state_read(w.path, cell(uid(1), *a)) for a in asked] == [21, 11, None, 5, None]
    assert tensors.state_read(w.path, cell(uid(2), 0, 27)) is None
