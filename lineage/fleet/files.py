"""The series files of a ledger, here or in a store, in portions that fit into memory, as relations of queries."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..ledger import layout, series, streams, tables
from .engine import Engine

ROWS = 12_000_000
"""Rows of one portion, about: a query over them takes some hundred megabytes."""
HOT_BYTES_PER_ROW = 8
"""What a row of a stream takes at least: unlike a sealed file it has no footer that tells how many there are."""


@dataclass(frozen=True)
class File:
    """One series file."""

    path: str
    """a path here, or a URL"""
    segment: str
    size: int
    store: Any = None
    """the fsspec file system of a URL"""

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.path.rpartition("/")[2]

    @property
    def writer(self) -> str:
        """The process that wrote it."""
        return self.name.split(".")[0]

    @property
    def merged(self) -> bool:
        """Whether it holds what many processes wrote, see `lineage.ledger.compact`."""
        return layout.merged_ranks(self.name) is not None

    @property
    def ranks(self) -> tuple[int, int]:
        """The first and the last rank whose rows it has."""
        merged = layout.merged_ranks(self.name)
        if merged is not None:
            return merged
        found = layout.writer_of(self.name)
        return (found[1], found[1]) if found else (0, 1 << 30)

    @property
    def sealed(self) -> bool:
        """Whether it is Parquet; else it is a stream."""
        return self.name.endswith(".parquet")

    def there(self) -> bool:
        """Whether it is still there: it may have been merged since it was listed, and is read by `read` then."""
        return self.store is not None or os.path.exists(self.path)

    def rows(self) -> int:
        """Rows of a sealed file by its footer; the most there can be of a stream.

        Raises `OSError` or `pa.ArrowInvalid` (a `ValueError`) where there is no whole footer.
        """
        if not self.sealed:
            return self.size // HOT_BYTES_PER_ROW
        if self.store is None:
            return int(pq.read_metadata(self.path).num_rows)
        with self.store.open(self.path, "rb") as f:
            return int(pq.read_metadata(f).num_rows)

    def read(self) -> pa.Table:
        """The whole file; of a stream every whole batch. Raises `OSError` or `ValueError`."""
        if self.store is None:
            return series.read_one(Path(self.path))
        with self.store.open(self.path, "rb") as f:
            return pq.read_table(f) if self.sealed else streams.read_of(f)

    def by_writer(self, columns: Sequence[str], only: int | None = None) -> Iterator[tuple[str, pa.Table]]:
        """The rows of one process after the other, with columns of words as dictionaries.

        `only`: what a merged file has of other ranks need not come. Raises `OSError` or `ValueError`.
        """
        if not self.sealed or not self.there():
            yield self.writer, self.read().select(list(columns))
            return
        with contextlib.ExitStack() as stack:
            source = (
                self.path if self.store is None else stack.enter_context(self.store.open(self.path, "rb"))
            )
            file = stack.enter_context(
                pq.ParquetFile(
                    source,
                    read_dictionary=["tensor", "kind", "dtype", "segment"],
                    page_checksum_verification=True,
                )
            )
            held = [c for c in columns if c in file.schema_arrow.names]
            if not self.merged:
                yield self.writer, _with(file.read(held), columns)
                return
            groups: list[pa.Table] = []
            for i in range(file.num_row_groups):
                if only is not None and not _may_hold(file.metadata.row_group(i), only):
                    continue
                table = file.read_row_group(i, [*held, "writer"])
                if groups and table["writer"][0] != groups[0]["writer"][0]:
                    yield str(groups[0]["writer"][0]), _with(pa.concat_tables(groups), columns)
                    groups = []
                groups.append(table)
            if groups:
                yield str(groups[0]["writer"][0]), _with(pa.concat_tables(groups), columns)


def _may_hold(group: Any, rank: int) -> bool:
    """Whether a group of rows of a merged file may have a rank, by its statistics."""
    for i in range(group.num_columns):
        column = group.column(i)
        if (
            column.path_in_schema == "rank"
            and column.statistics is not None
            and column.statistics.has_min_max
        ):
            return bool(column.statistics.min <= rank <= column.statistics.max)
    return True


def _with(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The columns asked for; null where a file of an older version has none."""
    schema = tables.TENSORS
    for name in columns:
        if name not in table.schema.names:
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
    return table.select(list(columns))


def here(ledger: Path, table: str) -> list[File]:
    """The series files of a table in a folder."""
    out = []
    for path in series.files(ledger, table):
        try:
            size = path.stat().st_size
        except OSError:
            continue  # sealed or merged since it was listed: the file in its place is read by who lists again
        out.append(File(str(path), path.parent.name, size))
    return out


def of(ledger: Any, table: str) -> list[File]:
    """The series files of a `lineage.ledger.reader.Ledger`: in its folder, or in the store where they stayed."""
    stayed: list[File] | None = getattr(ledger, "not_copied", {}).get(table)
    return here(ledger.path, table) if stayed is None else stayed


def more_than(files: Iterable[File], rows: int) -> bool:
    """Whether files have more rows than that; reads no more footers than it takes to tell."""
    found = 0
    for file in files:
        try:
            found += file.rows()
        except (OSError, ValueError):
            continue
        if found > rows:
            return True
    return False


@dataclass
class Portion:
    """Some files of one table."""

    files: list[File] = field(default_factory=list)
    rows: int = 0


def portions(files: Iterable[File], rows: int = ROWS) -> Iterator[Portion]:
    """Files together up to that many rows; a file is never divided, and all files of a rank are in one portion."""
    now = Portion()
    for group in _by_ranks(files):
        n = 0
        for file in group:
            with contextlib.suppress(OSError, ValueError):  # it is named when it is read
                n += file.rows()
        if now.files and now.rows + n > rows:
            yield now
            now = Portion()
        now.files += group
        now.rows += n
    if now.files:
        yield now


def _by_ranks(files: Iterable[File]) -> Iterator[list[File]]:
    """Groups of files that have ranks in common; a merged file has many."""
    group: list[File] = []
    last = -1
    for file in sorted(files, key=lambda f: (f.segment, f.ranks, f.name)):
        first, end = file.ranks
        if group and (file.segment != group[0].segment or first > last):
            yield group
            group, last = [], -1
        group.append(file)
        last = max(last, end)
    if group:
        yield group


class Unread(dict[str, str]):
    """Paths of files that cannot be read -> why."""


def ask(
    engine: Engine,
    portion: Portion,
    columns: Sequence[str],
    query: Callable[[str], str],
    unread: Unread,
    **relations: Any,
) -> pa.Table:
    """Ask a query over these columns of a portion's rows.

    `query` makes SQL from the name of a relation, which has the columns, `writer` (the process that wrote a row) and
    `place` (a row's place in its file). Files that cannot be read go to `unread` and are left out whole, as they are
    without an engine; then the query is asked again. Raises DuckDB's errors that no file is to blame for.
    """
    try:
        return _asked(engine, portion, columns, query, unread, relations)
    except engine.error:
        before = len(unread) - sum(not f.there() for f in portion.files)
        for file in portion.files:
            if file.path not in unread:
                try:
                    file.read()
                except (OSError, ValueError) as e:
                    unread[file.path] = str(e)
        if len(unread) == before:
            raise
        return _asked(engine, portion, columns, query, unread, relations)


def _asked(
    engine: Engine,
    portion: Portion,
    columns: Sequence[str],
    query: Callable[[str], str],
    unread: Unread,
    relations: dict[str, Any],
) -> pa.Table:
    sealed = [f for f in portion.files if f.sealed and f.path not in unread and f.there()]
    parts = []
    given = ", ".join(f'"{c}"' for c in columns)
    if sealed:
        for store in {id(f.store): f.store for f in sealed if f.store is not None}.values():
            engine.see(store)
        paths = ", ".join("'" + f.path.replace("'", "''") + "'" for f in sealed)
        source = f"read_parquet([{paths}], filename=true, file_row_number=true, union_by_name=true)"
        name = r"regexp_extract(filename, '([^/\\]+?)\.[a-z]+\.parquet$', 1)"
        if any(f.merged for f in sealed):  # these tell of each row who wrote it
            name = f"coalesce(writer, {name})"
        parts.append(f"SELECT {given}, {name} AS writer, file_row_number AS place FROM {source}")
    hot = _hot([f for f in portion.files if not (f.sealed and f.there())], columns, unread)
    if hot is not None:
        relations = {**relations, "hot_rows": hot}
        parts.append(f"SELECT {given}, writer, place FROM hot_rows")
    if not parts:
        return engine.table("SELECT 1 WHERE false")
    whole = " UNION ALL ".join(parts)
    return engine.table(query(f"({whole})"), **relations)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of an answer."""
    if table.num_rows == 0:
        return []
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _hot(files: Sequence[File], columns: Sequence[str], unread: Unread) -> pa.Table | None:
    """The rows of streams, read whole, with their writers and places."""
    parts = []
    for file in files:
        if file.path in unread:
            continue
        try:
            table = file.read().select(list(columns))
        except (OSError, ValueError, KeyError) as e:
            unread[file.path] = str(e)
            continue
        writers = pa.repeat(pa.scalar(file.writer), table.num_rows)
        table = table.append_column("writer", writers)
        parts.append(table.append_column("place", pa.array(range(table.num_rows), pa.int64())))
    return pa.concat_tables(parts) if parts else None


def ranks_of(keys: Collection[tuple[str, int]]) -> pa.Table:
    """A relation of (segment, rank)."""
    ordered = sorted(keys)
    return pa.table(
        {
            "segment": pa.array([k[0] for k in ordered], pa.string()),
            "rank": pa.array([k[1] for k in ordered], pa.int32()),
        }
    )
