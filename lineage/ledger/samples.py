"""The samples of a first bad cell: those of its rank and step whose own loss is abnormal."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import sample_losses
from ..judge.execution import LOCAL
from . import series, tables

_COLUMNS = ("micro", "place", "sample", "digest", "loss")


def of_cell(ledger: Path, cell: schemas.Cell) -> list[schemas.BadSample]:
    """The samples whose loss is abnormal at a cell's rank and step; empty where no losses of samples are recorded."""
    if cell.signal not in LOCAL:
        return []
    rows: list[sample_losses.SampleLoss] = []
    for path in series.files(ledger, "samples"):
        if path.parent.name != cell.segment:
            continue
        try:
            table = series.fitted(series.read_one(path), tables.SAMPLES)
        except (ValueError, OSError):
            continue
        here = pc.and_(pc.equal(table["step"], cell.step), pc.equal(table["rank"], cell.rank))
        found = table.filter(pc.and_(here, pc.is_valid(table["loss"])))
        columns = (found.column(c).to_pylist() for c in _COLUMNS)
        rows += [sample_losses.SampleLoss(*row) for row in zip(*columns, strict=True)]
    return sample_losses.judge(rows)
