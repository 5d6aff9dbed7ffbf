"""The abnormal cells by layer and tensor of a ledger whose rows of tensors do not fit into memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import cells_tensors
from ..judge.execution import STATE
from ..ledger import tensors as tensors_
from . import layers, sql
from .engine import Engine
from .files import File, Unread, ask, portions, rows_of
from .storms import Storms

FAMILIES = 64
"""Ranks whose layers are judged step by step, a second or two each; of more, those whose layers moved first before
what is certain. A fleet in which more of them have a layer that jumped threefold is not healthy."""
_NEEDED = ("rank", "step", "kind", "tensor", "sumsq", "n_nan", "n_posinf", "n_neginf", "scale")


@dataclass(frozen=True)
class Moved:
    """What the rows of one process are, and where a layer of them moved."""

    file: File
    rank: int
    writer: str
    kinds: tuple[str, ...]
    """the kinds of rows that it has"""
    first: dict[str, int]
    """kind -> the first step at which a layer may be flagged"""


def searches(searching: Collection[tuple[str, int, int]]) -> pa.Table:
    """The relation of (segment, rank, step) at which gradients are put down to a search for the loss scale."""
    found = sorted(searching)
    return pa.table(
        {
            "segment": pa.array([s[0] for s in found], pa.string()),
            "rank": pa.array([s[1] for s in found], pa.int32()),
            "step": pa.array([s[2] for s in found], pa.int64()),
        }
    )


def signatures(
    engine: Engine, files: Sequence[File], searched: pa.Table, unread: Unread
) -> list[tuple[str, int, int, int]]:
    """See `storms.of`."""
    out = []
    for portion in portions(files):
        out += rows_of(ask(engine, portion, sql.TENSORS, sql.tensor_signatures, unread, searches=searched))
    return out


def broken(
    engine: Engine, files: Sequence[File], searched: pa.Table, found: Storms, unread: Unread
) -> list[schemas.Cell]:
    """The cells of tensors that are not finite, of the steps that are looked at."""
    if not found.kept:
        return []
    known = {"searches": searched, "kept": found.table()}
    parts = list(portions(files))
    tables = [
        t
        for portion in parts
        if (t := ask(engine, portion, sql.TENSORS, sql.broken_tensors, unread, **known)).num_rows
    ]
    if not tables:
        return []
    rows = engine.table(sql.thinned_tensors("broken_rows"), broken_rows=pa.concat_tables(tables), **known)
    by = [(name, "ascending") for name in ("segment", "rank", "writer", "place")]
    rows = rows.sort_by(by)
    read, places = _read_finite(engine, parts, rows, unread), _places(engine, parts, rows, unread)
    out: list[schemas.Cell] = []
    for key, table in _runs(rows, ("segment", "rank", "writer")):
        mine = tensors_.rows_of(table, places.get(key, {}))
        out += cells_tensors.broken(key[0], key[1], mine, read.get(key, {}))
    return out


Key = tuple[str, int, str]
"""(segment, rank, writer)"""


def _read_finite(
    engine: Engine, parts: Sequence[Any], rows: pa.Table, unread: Unread
) -> dict[Key, dict[tuple[str, str], list[int]]]:
    """Of the weights and moments that broke: (kind, tensor) -> the steps at which they were read and were finite."""
    state = rows.filter(pc.is_in(rows["kind"], pa.array(STATE)))
    out: dict[Key, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
    if state.num_rows:
        names = ["segment", "rank", "writer", "kind", "tensor"]
        chosen = state.select(names).group_by(names).aggregate([])
        for portion in parts:
            for s, r, w, kind, tensor, step in rows_of(
                ask(engine, portion, sql.TENSORS, sql.read_finite, unread, chosen=chosen)
            ):
                out[s, r, w][kind, tensor].append(step)
    return out


def _places(
    engine: Engine, parts: Sequence[Any], rows: pa.Table, unread: Unread
) -> dict[Key, dict[str, int]]:
    """Of the processes with a broken output of a block: block -> its place in the order of execution."""
    outputs = rows.filter(pc.equal(rows["kind"], "activation"))
    out: dict[Key, dict[str, int]] = defaultdict(dict)
    if outputs.num_rows:
        names = ["segment", "rank", "writer"]
        chosen = outputs.select(names).group_by(names).aggregate([])
        for portion in parts:
            for s, r, w, tensor in rows_of(
                ask(engine, portion, sql.TENSORS, sql.blocks, unread, chosen=chosen)
            ):
                out[s, r, w][tensor] = len(out[s, r, w])
    return out


def _runs(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, pa.Table]]:
    """The stretches of a sorted table with equal values in some columns."""
    keys = list(zip(*(table[n].to_pylist() for n in names), strict=True))
    start = 0
    for i in range(1, len(keys) + 1):
        if i == len(keys) or keys[i] != keys[start]:
            yield keys[start], table.slice(start, i - start)
            start = i


def out_of_range(
    engine: Engine, files: Sequence[File], first: dict[str, int], unread: Unread
) -> tuple[list[schemas.Cell], tensors_.Kinds, list[str]]:
    """The cells of layers out of their range, which kinds of rows there are, and what was not judged, in words.

    `first`: segment -> the first step at which something is certain.
    """
    with ThreadPoolExecutor(engine.threads) as pool:
        every = [m for found in pool.map(lambda f: _moved(f, unread), files) for m in found]
    kinds = tensors_.Kinds()
    for m in every:
        kinds.of[m.file.segment, m.rank].update(m.kinds)
    moved = [m for m in every if m.first]
    moved.sort(key=lambda m: _distance(m, first))
    out: list[schemas.Cell] = []
    for m in moved[:FAMILIES]:
        for rank, writer, table in _by_writer(m.file, (*_NEEDED, "order"), unread, m.rank):
            if writer == m.writer:
                mine = _plain(table)
                mine = mine.filter(pc.is_in(mine["kind"], pa.array([*m.first])))
                out += cells_tensors.out_of_range(m.file.segment, rank, tensors_.norms_of(mine))
    notes = []
    if len(moved) > FAMILIES:
        notes.append(
            f"the norm of a layer jumped on {len(moved):,} ranks; whether it left its range was judged on {FAMILIES}"
            " of them, those that moved last before something certain"
        )
    return out, kinds, notes


def _plain(table: pa.Table) -> pa.Table:
    """The table without dictionaries."""
    for i, f in enumerate(table.schema):
        if pa.types.is_dictionary(f.type):
            table = table.set_column(i, f.name, table.column(i).cast(f.type.value_type))
    return table


def _distance(m: Moved, first: dict[str, int]) -> tuple[int, int, int]:
    """Sorts those that moved shortly before what is certain first."""
    certain = first.get(m.file.segment, 0)
    nearest = min((certain - s for s in m.first.values()), key=abs)
    return int(nearest < 0), abs(nearest), m.rank


def _moved(file: File, unread: Unread) -> list[Moved]:
    out = []
    for rank, writer, table in _by_writer(file, _NEEDED, unread):
        kinds, first = layers.first_jumps(table)
        out.append(Moved(file, rank, writer, kinds, first))
    return out


def _by_writer(
    file: File, columns: Sequence[str], unread: Unread, only: int | None = None
) -> Iterator[tuple[int, str, pa.Table]]:
    """(rank, writer, its rows) of a file; of a merged one without holding all of it."""
    if file.path in unread:
        return
    try:
        for writer, table in file.by_writer(columns, only):
            ranks = pc.unique(table["rank"]).to_pylist()
            for rank in ranks:
                if only in (None, rank):
                    yield (
                        rank,
                        writer,
                        table if len(ranks) == 1 else table.filter(pc.equal(table["rank"], rank)),
                    )
    except (OSError, ValueError) as e:
        unread[file.path] = str(e)
