"""Reading the rows of tensors: of one rank over some steps, and the abnormal ones of a whole ledger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import cells_tensors
from ..judge.execution import STATE
from ..judge.layers import BEFORE, TensorRow, layer_of
from . import series, tables

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
        if path.parent.name != segment or not series.may_hold(path, rank):
            continue
        table = _table(path)
        if table is None:
            continue
        near = pc.and_(pc.greater_equal(table["step"], first), pc.less_equal(table["step"], last))
        out += rows_of(table.filter(pc.and_(near, pc.equal(table["rank"], rank))), _places(table))
    return out


def state_read(ledger: Path, cell: schemas.Cell) -> int | None:
    """The last step before a cell's at which its rank read weights or moments; None where it did at none."""
    last = None
    for path in series.files(ledger, "tensors"):
        if path.parent.name != cell.segment or not series.may_hold(path, cell.rank):
            continue
        table = _table(path)
        if table is None:
            continue
        mine = pc.and_(pc.equal(table["rank"], cell.rank), pc.less(table["step"], cell.step))
        held = pc.is_in(table["kind"], pa.array([k for k in STATE if k != "update"]))
        steps = table["step"].filter(pc.and_(mine, held))
        if len(steps):
            last = max(last or 0, pc.max(steps).as_py())
    return last


def _table(path: Path) -> pa.Table | None:
    try:
        return series.fitted(series.read_one(path), tables.TENSORS)
    except (ValueError, OSError):
        return None


def _places(table: pa.Table) -> dict[str, int]:
    """Block -> its place: the rows of outputs stand in the order of the model's blocks."""
    outputs = table.filter(pc.equal(table["kind"], "activation"))
    return {name: i for i, name in enumerate(outputs["tensor"].unique().to_pylist())}


def rows_of(table: pa.Table, places: dict[str, int]) -> Iterator[TensorRow]:
    """The rows of a table; `places`: writer-wide order of the gradients, where rows have none of their own."""
    columns = (table.column(name).to_pylist() for name in _COLUMNS)
    for step, kind, tensor, order, elements, sumsq, largest, n_nan, n_posinf, n_neginf, scale in zip(
        *columns, strict=True
    ):
        infinite = (n_posinf or 0) + (n_neginf or 0)
        yield TensorRow(
            step=step,
            kind=kind,
            tensor=tensor,
            order=places.get(tensor) if kind == "activation" else order,
            norm=math.sqrt(sumsq or 0.0) / (scale or 1.0),
            largest=(largest or 0.0) / (scale or 1.0),
            broken=(n_nan or 0) + infinite,
            elements=elements or 0,
            infinite=infinite,
        )


MOST_NORMS = 400_000
"""Rows of a ledger above which layers are judged only near what is certain: on its ranks, in the steps before."""


@dataclass
class Kinds:
    """Which kinds of rows there are, by segment and rank."""

    of: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))


def cells(
    ledger: Path,
    certain: Sequence[schemas.Cell],
    searching: Collection[tuple[str, int, int]],
    kinds: Kinds | None = None,
) -> tuple[list[schemas.Cell], list[str]]:
    """The abnormal cells by layer and tensor, and what was not judged, in words.

    `certain`: cells that are known already. `searching`: (segment, rank, step) of searches for the loss scale.
    `kinds`: filled with the kinds of rows that there are.
    """
    kinds = kinds or Kinds()
    search: dict[tuple[str, int], set[int]] = defaultdict(set)
    for segment, rank, step in searching:
        search[segment, rank].add(step)
    out: list[schemas.Cell] = []
    files = [(p.parent.name, p) for p in series.files(ledger, "tensors")]
    broken_at: dict[tuple[str, int], int] = {}
    for segment, path in files:
        table = _table(path)
        for rank, mine in _by_rank(table):
            kinds.of[segment, rank].update(mine["kind"].unique().to_pylist())
            found = _broken(segment, rank, mine, search[segment, rank])
            out += found
            if found:
                broken_at[segment, rank] = min(c.step for c in found)
    near = _near(certain, broken_at)
    total, notes = _count(files), []
    few = total > MOST_NORMS
    for segment, path in files:
        table = _table(path)
        for rank, mine in _by_rank(table):
            if few:
                at = near.get((segment, rank))
                if at is None:
                    continue
                step = mine["step"]
                mine = mine.filter(pc.and_(pc.greater_equal(step, at - BEFORE), pc.less_equal(step, at)))  # noqa: PLW2901
            out += cells_tensors.out_of_range(segment, rank, norms_of(mine))
    if few:
        notes.append(
            f"{total:,} rows of tensors are recorded: layers out of range were looked for on {len(near):,} ranks, in "
            f"the {BEFORE} steps before something certain; what is not finite was looked for in all of them"
        )
    return out, notes


def _by_rank(table: pa.Table | None) -> Iterator[tuple[int, pa.Table]]:
    if table is None:
        return
    for rank in sorted(table["rank"].unique().to_pylist()):
        yield rank, table.filter(pc.equal(table["rank"], rank))


def _near(certain: Sequence[schemas.Cell], broken: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """(segment, rank) -> the first step at which something is certain."""
    out = dict(broken)
    for c in certain:
        key = (c.segment, c.rank)
        out[key] = min(c.step, out.get(key, c.step))
    return out


def _count(files: Sequence[tuple[str, Path]]) -> int:
    import pyarrow.parquet as pq

    total = 0
    for _, path in files:
        try:
            total += (
                pq.read_metadata(path).num_rows
                if path.suffix == ".parquet"
                else series.read_one(path).num_rows
            )
        except (ValueError, OSError):
            continue
    return total


def _broken(segment: str, rank: int, table: pa.Table, searching: set[int]) -> list[schemas.Cell]:
    bad = pc.greater(_not_finite(table), 0)
    found = table.filter(bad)
    if not found.num_rows:
        return []
    names = found.filter(pc.is_in(found["kind"], pa.array(STATE)))["tensor"].unique()
    before: dict[tuple[str, str], list[int]] = defaultdict(list)
    if len(names):
        state = pc.and_(pc.is_in(table["kind"], pa.array(STATE)), pc.is_in(table["tensor"], names))
        read = table.filter(state)
        for kind, tensor, step in zip(
            *(read[c].to_pylist() for c in ("kind", "tensor", "step")), strict=True
        ):
            before[kind, tensor].append(step)
    return cells_tensors.broken(segment, rank, rows_of(found, _places(table)), before, searching)


def _not_finite(table: pa.Table) -> Any:
    zero = 0
    counts = [pc.fill_null(table[c], zero) for c in ("n_nan", "n_posinf", "n_neginf")]
    return pc.add(pc.add(counts[0], counts[1]), counts[2])


def norms_of(table: pa.Table) -> Iterator[cells_tensors.LayerNorms]:
    """The norm of each layer, step by step and kind by kind."""
    table = table.filter(pc.is_in(table["kind"], pa.array(cells_tensors.JUDGED)))
    names = table["tensor"].unique()
    layers = pa.array([layer_of(n) for n in names.to_pylist()], pa.string())
    table = table.append_column("layer", layers.take(pc.index_in(table["tensor"], value_set=names)))
    table = table.append_column("bad", _not_finite(table))
    groups = table.group_by(["step", "kind", "layer"], use_threads=False).aggregate(
        [("sumsq", "sum"), ("bad", "sum"), ("scale", "max"), ("order", "min")]
    )
    by: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in groups.to_pylist():
        by[row["step"], row["kind"]].append(row)
    for (step, kind), rows in sorted(by.items()):
        norms, order = {}, {}
        for i, row in enumerate(rows):
            scale = row["scale_max"] or 1.0
            norms[row["layer"]] = math.nan if row["bad_sum"] else math.sqrt(row["sumsq_sum"] or 0.0) / scale
            order[row["layer"]] = row["order_min"] if row["order_min"] is not None else i
        yield cells_tensors.LayerNorms(step, kind, norms, order, _Largest(table, step, kind))


class _Largest:
    """The tensor of a layer with the largest norm at one step, looked up where it is asked for."""

    def __init__(self, table: pa.Table, step: int, kind: str) -> None:
        self._table, self._step, self._kind = table, step, kind

    def __call__(self, layer: str) -> str | None:
        t = self._table
        here = pc.and_(pc.equal(t["step"], self._step), pc.equal(t["kind"], self._kind))
        rows = t.filter(pc.and_(here, pc.equal(t["layer"], layer))).select(["tensor", "sumsq"]).to_pylist()
        best = max(rows, key=lambda r: r["sumsq"] or 0.0, default=None)
        return str(best["tensor"]) if best else None
