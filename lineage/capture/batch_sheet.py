"""Numbers of one batch on their way to the host: one copy for each device that holds some of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .later import Later


class Sheet:
    """Collects int64 tensors by name; `send` puts them on their way."""

    def __init__(self) -> None:
        self._parts: dict[Any, list[tuple[str, Any]]] = {}

    def put(self, name: str, found: Any) -> None:
        """Add a tensor, of any shape and integer type."""
        self._parts.setdefault(found.device, []).append((name, found))

    def send(self, later: Callable[[Any], Later]) -> Arriving:
        """One `Later` for each device."""
        laters: list[Later] = []
        places: dict[str, tuple[int, int, int]] = {}
        for parts in self._parts.values():
            import torch  # a loop without tensors need not have it

            at = 0
            for name, found in parts:
                places[name] = (len(laters), at, at + int(found.numel()))
                at += int(found.numel())
            laters.append(later(torch.cat([_flat(p, torch.int64) for _, p in parts])))
        return Arriving(tuple(laters), places)


def _flat(t: Any, dtype: Any) -> Any:
    t = t if t.dim() == 1 else t.reshape(-1)
    return t if t.dtype == dtype else t.to(dtype)


class Arriving:
    """What a sheet sent. `get` may be asked when it is `ready`."""

    def __init__(self, laters: tuple[Later, ...], places: dict[str, tuple[int, int, int]]) -> None:
        self._laters, self._places = laters, places

    def ready(self) -> bool:
        """Whether all of it is on the host."""
        return all(later.ready() for later in self._laters)

    def get(self, name: str) -> list[int] | None:
        """The numbers under a name, None where none were sent."""
        place = self._places.get(name)
        if place is None:
            return None
        which, begin, end = place
        return self._laters[which].values()[begin:end]

    def one(self, name: str) -> int | None:
        """The only number under a name."""
        found = self.get(name)
        return found[0] if found else None
