"""A ledger in a store: any URL that fsspec reads, such as `s3://bucket/run`, `gs://`, `file://`, `memory://`.

Its journal, which is small, is copied into a folder of this process. Of the series as much is copied as is judged in
memory; those of a big ledger stay where they are, and queries read of them what they need. Nothing is written there.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ..ledger import cells, layout, series, tables, tensors
from ..ledger.reader import Ledger, LedgerNotFound
from .engine import INSTALL
from .files import File, more_than

_URL = re.compile(r"^[a-z][a-z0-9+.-]*://|^[a-z][a-z0-9+.-]*::", re.IGNORECASE)
SMALL = ("metrics", "samples", "batches", "states")
"""Tables of which a big ledger's files are copied too, where they are not many."""
MOST_BYTES = 1 << 30
"""Bytes of a table that are copied at most; a table with more of them is read where it lies, or not at all."""


class NoStore(RuntimeError):
    """A URL cannot be read: what reads it is not installed, or it says no."""


def is_url(name: str) -> bool:
    """Whether a name is a URL, and no path or run."""
    return bool(_URL.match(name))


class RemoteLedger(Ledger):
    """A ledger in a store. `path` is the folder with what was copied of it."""

    def __init__(self, url: str, store: Any, root: str) -> None:
        self.url, self.store, self.root = url, store, root.rstrip("/")
        folder = Path(tempfile.mkdtemp(prefix="lineage-remote-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        copy = layout.make_folder(folder / (self.root.rpartition("/")[2] or "ledger"))
        self._copy(self._listed("journal", ".jsonl"), copy)
        super().__init__(copy)
        self.not_copied: dict[str, list[File]] = {}
        """table -> its files, of the tables that stay where they are"""
        for table in tables.TABLES:
            found = self.remote(table)
            if self._stays(table, found):
                self.not_copied[table] = found
            else:
                self._copy([f.path for f in found], copy)

    def _stays(self, table: str, found: list[File]) -> bool:
        most = {"probes": cells.MOST_VALUES, "tensors": tensors.MOST_NORMS}.get(table)
        if sum(f.size for f in found) > MOST_BYTES:
            return True
        return most is not None and more_than(found, most)

    def _listed(self, part: str, *ends: str) -> list[str]:
        try:
            found = self.store.find(f"{self.root}/{part}")
        except FileNotFoundError:
            return []
        return sorted(p for p in found if p.endswith(ends))

    def _copy(self, paths: Iterable[str], to: Path) -> None:
        for path in paths:
            target = to / _inside(path, self.root)
            layout.make_folder(target.parent)
            self.store.get_file(path, str(target))

    def remote(self, table: str) -> list[File]:
        """The files of a table in the store: the sealed one where there are both."""
        out: dict[str, File] = {}
        for path in self._listed("series", f".{table}.arrows", f".{table}.parquet"):  # sealed ones come last
            name = _inside(path, self.root)
            out[str(name.with_suffix(""))] = File(
                self.store.unstrip_protocol(path), name.parts[-2], int(self.store.size(path)), self.store
            )
        return [out[key] for key in sorted(out)]

    def bring(self, table: str, segment: str, rank: int) -> None:
        """Copy the files of a table that may have rows of a rank, where they stayed in the store."""
        for file in self.not_copied.get(table, ()):
            first, last = file.ranks
            if file.segment == segment and first <= rank <= last and not file.merged:
                self._copy([file.path], self.path)

    @cached_property
    def reached(self) -> dict[str, int]:
        """Segment -> the last step of which a value is recorded."""
        found = series.reached(self.path)
        for file in self.not_copied.get("probes", ()):
            last = _last_step(file)
            if last is not None:
                found[file.segment] = max(last, found.get(file.segment, last))
        return found


def _inside(path: str, root: str) -> Path:
    """The part of a path below the ledger's folder. Raises `NoStore` for one that leads out of it."""
    bare = path.partition("://")[2] if "://" in path else path
    below = (
        bare.lstrip("/")
        .removeprefix((root.partition("://")[2] if "://" in root else root).lstrip("/"))
        .lstrip("/")
    )
    found = Path(below)
    if found.is_absolute() or ".." in found.parts or not found.parts:
        raise NoStore(f"{path} does not lie in {root}")
    return found


def _last_step(file: File) -> int | None:
    if not file.sealed:
        try:
            column = file.read().column("step")
        except (OSError, ValueError):
            return None
        return max(column.to_pylist(), default=None)
    try:
        with file.store.open(file.path, "rb") as f:
            meta = pq.read_metadata(f)
    except (OSError, ValueError):
        return None
    at = meta.schema.names.index("step")
    held = [meta.row_group(i).column(at).statistics for i in range(meta.num_row_groups)]
    return max((int(s.max) for s in held if s is not None and s.has_min_max), default=None)


def open_url(url: str) -> RemoteLedger:
    """Open a ledger at a URL.

    Raises `NoStore` where it cannot be read, `LedgerNotFound` where there is no journal.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as e:
        raise NoStore(f"{url} cannot be read without fsspec ({e}): {INSTALL}") from None
    try:
        store, root = url_to_fs(url)
        there = store.isdir(f"{root.rstrip('/')}/journal")
    except ImportError as e:  # fsspec names the package of that kind of URL
        raise NoStore(f"{url} cannot be read: {e}") from None
    except Exception as e:  # each store has errors of its own
        raise NoStore(f"{url} cannot be read: {type(e).__name__}: {e}") from None
    if not there:
        raise LedgerNotFound(f"{url} holds no ledger (no journal/ in it). Name the URL of a run's folder.")
    return RemoteLedger(url, store, root)
