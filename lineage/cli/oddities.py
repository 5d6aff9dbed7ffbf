"""Telling a person what is odd about the source of a run, below what was read from it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape

from .._rooms import schemas
from ..report import odd
from .common import console


def tell(records: Iterable[schemas.Record]) -> None:
    """Print what is odd, the first lines of it; nothing where nothing is."""
    for line in odd.lines(records):
        console.print(f"[yellow]odd:[/] {escape(line)}")
