"""The query engine with its limits: memory, threads, and where it puts what does not fit."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "pip install 'runlineage[read]'"
MEMORY = "LINEAGE_FLEET_MEMORY"
"""Environment variable with the memory that queries may take, such as `4GB`."""
SHARE = 0.25
"""Share of the machine's memory that queries take where nothing is said; the rest is for Python and the page cache."""


class NoEngine(RuntimeError):
    """A ledger is too big to be read without DuckDB, which is not installed."""


@dataclass(frozen=True)
class Engine:
    """An open DuckDB connection."""

    connection: Any
    memory: str
    """the limit, as DuckDB says it"""
    threads: int
    spill: Path
    """folder of what does not fit into memory; it goes with the connection"""

    @property
    def error(self) -> type[Exception]:
        """What DuckDB raises, of any kind."""
        found: type[Exception] = module().Error
        return found

    def see(self, store: Any) -> None:
        """Let queries read the URLs of an fsspec file system."""
        protocols = {store.protocol} if isinstance(store.protocol, str) else {*store.protocol}
        if not any(self.connection.filesystem_is_registered(p) for p in protocols):
            self.connection.register_filesystem(store)

    def rows(self, sql: str, **relations: Any) -> list[tuple[Any, ...]]:
        """The rows of a query. `relations`: Arrow tables that it names."""
        self._register(relations)
        return list(self.connection.sql(sql).fetchall())

    def table(self, sql: str, **relations: Any) -> Any:
        """The rows of a query as a `pyarrow.Table`."""
        self._register(relations)
        return self.connection.sql(sql).to_arrow_table()

    def _register(self, relations: dict[str, Any]) -> None:
        for name, table in relations.items():
            self.connection.register(name, table)


def module() -> Any:
    """DuckDB. Raises `NoEngine` with the line that installs it, and NumPy, which is used beside it."""
    try:
        import duckdb
        import numpy  # noqa: F401
    except ImportError as e:
        raise NoEngine(f"What queries need is not installed ({e}): {INSTALL}") from None
    return duckdb


@contextlib.contextmanager
def opened(memory: str | None = None, spill: Path | None = None) -> Iterator[Engine]:
    """Open an engine whose memory is bounded. Raises `NoEngine` where DuckDB is not installed.

    Args:
        memory: the most it takes, such as `4GB`; by default what `LINEAGE_FLEET_MEMORY` says, else a quarter of
            the machine's.
        spill: where the folder for what does not fit is made; by default the system's folder for such files.
    """
    duckdb = module()
    limit = memory or os.environ.get(MEMORY) or f"{max(1, int(_machine_memory() * SHARE) >> 20)}MiB"
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    folder = Path(tempfile.mkdtemp(prefix="lineage-spill-", dir=spill))
    connection = duckdb.connect()
    try:
        _set(connection, "memory_limit", limit)
        _set(connection, "threads", threads)
        _set(connection, "temp_directory", folder)
        _set(connection, "preserve_insertion_order", False)
        _set(connection, "enable_progress_bar", False)  # it would stand before the JSON of a command
        said = connection.sql("SELECT current_setting('memory_limit')").fetchall()[0][0]
        yield Engine(connection, said, threads, folder)
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def _set(connection: Any, name: str, value: object) -> None:
    text = str(value).replace("'", "''")
    connection.execute(f"SET {name} = '{text}'").fetchall()


def _machine_memory() -> int:
    """Bytes of this machine's memory, or of this container's where that is less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return found
