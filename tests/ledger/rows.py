"""Rows of the series."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 11, 29, 16, 0, 0, 123456, tzinfo=UTC)


def probe(step: int, value: float, **counts: int) -> dict[str, Any]:
    """One row of `probes`."""
    row = {"segment": "s", "rank": 0, "step": step, "signal": "loss", "value": value}
    row |= {"n_nan": 0, "n_posinf": 0, "n_neginf": 0, "at": START + timedelta(microseconds=step)}
    return row | counts


def probes(number: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows of consecutive steps."""
    return [probe(step, 1.0 / (step + 1)) for step in range(first, first + number)]
