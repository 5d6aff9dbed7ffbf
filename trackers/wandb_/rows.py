"""Rows and configs of a W&B run, as the client logged them, without what is ours or W&B's own."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..base import PREFIX
from ..held import Asked, Logged
from .offline_log import ConfigChange

STEP = "_step"
"""W&B's own step of a row: the `step=` that was given, or its count of log calls."""


def rows(history: Iterable[Mapping[str, Any]], numbers: Sequence[int] = ()) -> Iterator[Logged]:
    """The rows that hold a number of the user's."""
    for n, row in enumerate(history):
        step = row.get(STEP)
        values = dict(_numbers("", row))
        if values and isinstance(step, int | float) and step >= 0:
            number = numbers[n] if n < len(numbers) else n + 1
            yield Logged(int(step), STEP, values, _time(row.get("_timestamp")), number)


def _numbers(above: str, row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Flat key -> number. Texts, images and tables are none; a bool is none either."""
    for key, value in row.items():
        name = f"{above}.{key}" if above else str(key)
        if not above and (name.startswith(("_", PREFIX))):
            continue
        if isinstance(value, Mapping):
            if "_type" not in value:
                yield from _numbers(name, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def configs(changes: Sequence[ConfigChange], row_numbers: Sequence[int]) -> list[Asked]:
    """The config after each group of changes with no row between them."""
    state: dict[str, Any] = {}
    out: list[Asked] = []
    for change in changes:
        if change.key.split(".")[0] == "_wandb" or change.key.startswith(PREFIX):
            continue
        _set(state, change.key, change.value)
        row = bisect_left(row_numbers, change.number)
        before = row_numbers[row] if row < len(row_numbers) else change.number
        keys: Sequence[str] = (change.key,)
        if out and out[-1].before_row == before:
            keys = tuple(dict.fromkeys((*out.pop().changed, change.key)))
        out.append(Asked(copy.deepcopy(state), before, keys, change.number))
    return out


def _set(state: dict[str, Any], key: str, value: Any) -> None:
    """Set a key; one with dots is a part of a mapping where there is such a mapping."""
    parts = key.split(".")
    inner: Any = state
    for n, part in enumerate(parts[:-1]):
        if not isinstance(inner.get(part), dict):
            state[key] = value
            return
        inner = inner[part]
        if n == len(parts) - 2:
            inner[parts[-1]] = value
            return
    state[key] = value


def _time(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
