"""Which way a ledger is read: all values in memory, or by queries."""

from __future__ import annotations

from dataclasses import replace

from ..ledger import cells, tensors
from ..ledger.cells import Cells
from ..ledger.reader import Ledger
from . import engine, files

MOST = 30_000_000
"""Rows of a table above which nothing is read without a query engine: they would take tens of gigabytes."""


def is_big(ledger: Ledger) -> bool:
    """Whether a ledger has more rows than are judged in memory."""
    return _more_than(ledger, cells.MOST_VALUES, tensors.MOST_NORMS)


def _more_than(ledger: Ledger, values: int, rows: int) -> bool:
    return files.more_than(files.of(ledger, "probes"), values) or files.more_than(
        files.of(ledger, "tensors"), rows
    )


def find(ledger: Ledger) -> Cells:
    """Find the abnormal cells by queries; where there is no engine, in memory as far as that goes, and say so.

    Raises `NoEngine` where there is none and the ledger is too big for that.
    """
    try:
        engine.module()
    except engine.NoEngine as e:
        if _more_than(ledger, MOST, MOST):
            raise engine.NoEngine(
                f"{ledger.path} holds more than {MOST:,} rows of series, too many to be read without queries. {e}"
            ) from None
        found = cells.find_small(ledger)
        return replace(
            found, notes=(*found.notes, f"all of it is judged where DuckDB is installed: {engine.INSTALL}")
        )
    from .find import find as by_queries

    return by_queries(ledger)
