"""Copies of logged values that later changes of the caller's objects do not reach."""

from __future__ import annotations

from .events import SWITCH

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from typing import Any

PLAIN = frozenset((float, int, bool, str, type(None)))


class Other(str):
    """Stands for a value that is no number, by the name of its type: images, tables, histograms, lists."""

    __slots__ = ()


def scalars(data: Any) -> dict[Any, Any]:
    """Copy what was logged. Where all values are plain this is one C call and one look at each type."""
    copy = dict(data)
    for value in copy.values():
        if type(value) not in PLAIN:
            return {k: v if type(v) in PLAIN else one(v) for k, v in copy.items()}
    return copy


def one(value: Any) -> Any:
    """Copy one value that is not plain: a number out of it now, since the caller may change it in place."""
    if isinstance(value, dict):
        return scalars(value)
    if isinstance(value, float | int | str):
        return type(value).__mro__[1](value) if type(value).__mro__[1] in PLAIN else value
    if getattr(value, "size", None) == 1 and hasattr(value, "item"):  # numpy
        return _plain(value.item())
    if hasattr(value, "numel") and hasattr(value, "detach"):
        return _tensor(value)
    return Other(type(value).__qualname__)


def _tensor(value: Any) -> Any:
    if value.numel() != 1:
        return Other(type(value).__qualname__)
    if value.device.type == "cpu":
        return _plain(value.item())
    if SWITCH.later is None or value.device.type != "cuda":
        return Other(f"{type(value).__qualname__} on {value.device.type}")
    return SWITCH.later(value)


def _plain(value: Any) -> Any:
    return value if type(value) in PLAIN else Other(type(value).__qualname__)
