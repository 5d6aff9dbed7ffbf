"""Merging the small sealed series files of a segment: thousands of ranks leave thousands of files.

No row is lost at any moment, and none is there twice: a merged file names the files that it replaces, and comes into
place by one rename. From then on whoever lists the series leaves those out; then they are removed. A crash in between
leaves files that nobody reads, which the next call removes. A reader that listed a file before it went finds its rows
in the merged one (`series.read_one`). Streams stay as they are, and so do files that cannot be read, and those of ranks
that several processes wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from . import layout, series, tables

MOST_BYTES = 256 << 20
"""Bytes of the files that are merged into one, about."""
MOST_ROWS = 12_000_000
"""Rows of a merged file: a portion of a query (`lineage.fleet`)."""


class Busy(RuntimeError):
    """Another process merges the same segment."""


@dataclass
class Compacted:
    """What was done."""

    merged: int = 0
    """files that were merged"""
    into: int = 0
    """files that they became"""
    rows: int = 0
    removed: int = 0
    """files that an earlier call had merged and could not remove"""
    left: list[str] = field(default_factory=list)
    """files that were left as they are though they are sealed, and why"""


def compact(ledger: Path) -> Compacted:
    """Merge the sealed series of all segments. Calling it again does nothing more.

    Raises `Busy`, and `OSError` where the disk takes no file; what was merged before that stays merged.
    """
    out = Compacted()
    for folder in sorted(p for p in layout.series_folder(ledger).glob("*") if p.is_dir()):
        with _alone(folder):
            for table in tables.TABLES:
                _remove_replaced(folder, table, out)
                for group in _groups(folder, table, out):
                    _merge(folder, table, group, out)
    return out


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process merges the files in {folder}; wait for it, and call again") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(fd)


def _remove_replaced(folder: Path, table: str, out: Compacted) -> None:
    """Remove what merged files replaced, once they are known to be whole."""
    for merged in folder.glob(f"merged_*.{table}.parquet"):
        there = [folder / name for name in series.replaced_by(merged) if (folder / name).exists()]
        if there and series.fault(merged) is None:
            for path in there:
                path.unlink()
                out.removed += 1
    for path in folder.glob(f".merged_*.{table}.parquet.tmp"):
        path.unlink(missing_ok=True)  # of a call that was killed; this one is alone


def _groups(folder: Path, table: str, out: Compacted) -> Iterator[list[Path]]:
    """Files to merge, by rank, as many as make a file of a good size; never a single one."""
    files: dict[Path, int] = {}
    for path in folder.glob(f"*.{table}.parquet"):
        writer = layout.writer_of(path.name)
        if writer is not None:
            files[path] = writer[1]
    several = {rank for rank, n in Counter(files.values()).items() if n > 1}
    hot = {w[1] for p in folder.glob(f"*.{table}.arrows") if (w := layout.writer_of(p.name)) is not None}
    hot |= {
        r
        for p in folder.glob(f"merged_*.{table}.parquet")
        for name in series.replaced_by(p)
        if (w := layout.writer_of(name)) is not None and (r := w[1]) in files.values()
    }
    group: list[Path] = []
    size = rows = 0
    for path, rank in sorted(files.items(), key=lambda item: (item[1], item[0].name)):
        name = f"{folder.name}/{path.name}"
        if rank in several or rank in hot:
            out.left.append(f"{name}: several processes wrote as rank {rank}")
            continue
        why = series.fault(path) or _other_ranks(path, rank)
        if why is not None:
            out.left.append(f"{name}: {why}")
            continue
        n = pq.read_metadata(path).num_rows
        if group and (size + path.stat().st_size > MOST_BYTES or rows + n > MOST_ROWS):
            if len(group) > 1:
                yield group
            group, size, rows = [], 0, 0
        group.append(path)
        size, rows = size + path.stat().st_size, rows + n
    if len(group) > 1:
        yield group


def _other_ranks(path: Path, rank: int) -> str | None:
    """Say where a file holds other ranks than its name says: an imported run's, or one of another version."""
    held = set(pq.read_table(path, columns=["rank"])["rank"].unique().to_pylist())
    return None if held <= {rank} else "it holds rows of several ranks"


def _check(written: Path, rows: int) -> None:
    """Raise `OSError` where a file is not what was written."""
    try:
        series.validate(written)
        found = pq.read_metadata(written).num_rows
    except ValueError as e:
        raise OSError(f"{written} cannot be read back ({e}): is the disk sound?") from None
    if found != rows:
        raise OSError(f"{written} has {found:,} rows where {rows:,} were written: is the disk sound?")


def _merge(folder: Path, table: str, group: list[Path], out: Compacted) -> None:
    """Write one file with the rows of all, in groups of rows of one writer each; then remove them."""
    ranks = [found[1] for p in group if (found := layout.writer_of(p.name)) is not None]
    names = [p.name for p in group]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    target = folder / f"{layout.merged_name(min(ranks), max(ranks), digest)}.{table}.parquet"
    temporary = folder / f".{target.name}.tmp"
    schema = tables.TABLES[table].append(pa.field(series.WRITER, pa.string()))
    schema = schema.with_metadata({series.REPLACES: json.dumps(names).encode()})
    rows = 0
    try:
        with pq.ParquetWriter(temporary, schema, **series.sealed_options(schema)) as writer:
            for path in group:
                part = series.fitted(pq.read_table(path), tables.TABLES[table])
                name = pa.repeat(pa.scalar(path.name.split(".")[0], pa.string()), part.num_rows)
                writer.write_table(part.append_column(series.WRITER, name).cast(schema))
                rows += part.num_rows
        os.chmod(temporary, layout.FILE_MODE)
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        _check(temporary, rows)
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    layout.fsync_folder(folder)
    for path in group:
        path.unlink()
    layout.fsync_folder(folder)
    out.merged += len(group)
    out.into += 1
    out.rows += rows
