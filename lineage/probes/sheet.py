"""The preallocated buffer into which probes write, one per device, and its named rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from .columns import READ, SUMSQ, WIDTH


class Key(NamedTuple):
    """What a row is of: `gradient`, `weight`, `moment1`, `moment2`, `update`, `activation`, `scalar`, and a name."""

    kind: str
    name: str


class Sheet:
    """float64[rows, 9] on one device, see `columns`. Rows are added when first asked for and stay."""

    def __init__(self, device: Any) -> None:
        self.device = torch.device(device)
        self.keys: list[Key] = []
        self._places: dict[Key, int] = {}
        self.buffer = torch.zeros(64, WIDTH, dtype=torch.float64, device=self.device)

    def rows(self, kind: str, names: Iterable[str]) -> list[int]:
        """The rows of these names; new ones are made. The buffer may grow, so take `buffer` afterwards."""
        found = [self._row(Key(kind, name)) for name in names]
        if len(self.keys) > len(self.buffer):
            wider = torch.zeros(2 * len(self.keys), WIDTH, dtype=torch.float64, device=self.device)
            wider[: len(self.buffer)] = self.buffer
            self.buffer = wider
        return found

    def _row(self, key: Key) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.keys)
            self.keys.append(key)
        return place

    def scalar(self, name: str, value: Any) -> None:
        """Keep a number that lies on this device, without looking at it."""
        (row,) = self.rows("scalar", [name])
        self.buffer[row, SUMSQ].copy_(value.detach().reshape(()))
        self.buffer[row, READ].fill_(1.0)

    def used(self) -> Any:
        """The rows in use."""
        return self.buffer[: len(self.keys)]


class Sheets:
    """One sheet per device."""

    def __init__(self) -> None:
        self._sheets: dict[Any, Sheet] = {}
        self._apart: list[Sheet] = []

    def apart(self, device: Any) -> Sheet:
        """A sheet of its own, for one that must not grow with others: a compiled graph holds its buffer."""
        self._apart.append(Sheet(device))
        return self._apart[-1]

    def on(self, device: Any) -> Sheet:
        """The sheet of a device; made at the first call."""
        sheet = self._sheets.get(device)
        if sheet is None:
            sheet = self._sheets[device] = Sheet(device)
        return sheet

    def all(self) -> list[Sheet]:
        """Every sheet so far."""
        return [*self._sheets.values(), *self._apart]
