"""What looks at GPUs give, and how values of NVML's binding read."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass
class Device:
    """One GPU of the node."""

    index: int
    handle: Any
    uuid: str | None = None
    pci: str | None = None
    name: str = "GPU"
    hottest: float | None = None
    """degrees Celsius at which it slows down by itself"""


@dataclass
class State:
    """What one look at a device showed. What is None or absent was not read."""

    counters: dict[str, float] = field(default_factory=dict)
    reasons: int | None = None
    """NVML's mask of the reasons for which clocks are held down"""
    temperature: float | None = None
    power: float | None = None
    limit: float | None = None
    """watts that the device may draw now"""
    clock: float | None = None
    links: dict[int, bool] = field(default_factory=dict)
    lost: str | None = None
    """it answers no more: NVML's words"""
    odd: str | None = None
    """a call failed that worked before: NVML's words"""


@dataclass
class Look:
    """All devices at one moment, in UTC, by this machine's clock."""

    at: datetime
    driver: str | None
    states: dict[int, State]
    seconds: float = 0.0
    """since the look before: what changed did so within them"""


@dataclass(frozen=True)
class Xid:
    """An Xid that the driver told of."""

    at: datetime
    index: int | None
    code: int
    precision: float


def number(n: Any, value: Any) -> int | float:
    """The number in a field value, by the type that stands beside it."""
    by_type = {
        n.NVML_VALUE_TYPE_DOUBLE: "dVal",
        n.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        n.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        n.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        n.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    found: int | float = getattr(value.value, by_type.get(value.valueType, "ullVal"))
    return found


def address(handle: Any) -> Any:
    """Where a handle points: two handles of one device are two objects."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value
    except (ctypes.ArgumentError, TypeError):
        return handle


def text(value: str | bytes) -> str:
    """A text of the binding, which gives bytes in some places."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def words(error: Exception) -> str:
    """NVML's own words and its code."""
    code = getattr(error, "value", None)
    return f"{error} (NVML {code})" if code is not None else str(error)
