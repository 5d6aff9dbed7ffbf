"""Reading the rows of tensors of one rank over some steps."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow.compute as pc

from ..judge.layers import TensorRow
from . import series

_COLUMNS = (
    "step",
    "kind",
    "tensor",
    "order",
    "elements",
    "sumsq",
    "largest",
    "n_nan",
    "n_posinf",
    "n_neginf",
    "scale",
)


def around(ledger: Path, segment: str, rank: int, first: int, last: int) -> list[TensorRow]:
    """The rows of a rank from step `first` to `last`. Files that cannot be read are left out (`verify` names them)."""
    out: list[TensorRow] = []
    for path in series.files(ledger, "tensors"):
        if path.parent.name != segment:
            continue
        try:
            table = series.read_one(path)
        except (ValueError, OSError):
            continue
        near = pc.and_(pc.greater_equal(table["step"], first), pc.less_equal(table["step"], last))
        rows = table.filter(pc.and_(near, pc.equal(table["rank"], rank)))
        columns = (rows.column(name).to_pylist() for name in _COLUMNS)
        out += [
            TensorRow(
                step=step,
                kind=kind,
                tensor=tensor,
                order=order,
                norm=math.sqrt(sumsq) / (scale or 1.0),
                largest=largest / (scale or 1.0),
                broken=n_nan + n_posinf + n_neginf,
                elements=elements,
            )
            for step, kind, tensor, order, elements, sumsq, largest, n_nan, n_posinf, n_neginf, scale in zip(
                *columns, strict=True
            )
        ]
    return out
