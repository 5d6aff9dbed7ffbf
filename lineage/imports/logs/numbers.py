"""Numbers as logs write them: thousands separators, units that stick to them, nan and inf in any spelling."""

from __future__ import annotations

import math
import re

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"
)
"""One number; `2,195` has a thousands separator, `2,19` is two numbers and no decimal comma."""
UNIT = r"[a-zA-Zµ%][a-zA-Z/%]*"

_WHOLE = re.compile(rf"\s*({NUMBER})\s*({UNIT})?\s*", re.I)

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
"""Units of time in seconds."""


def number(text: str) -> float:
    """Read what `NUMBER` matched."""
    return float(text.replace(",", ""))


def value(text: str) -> tuple[float, str | None] | None:
    """Read a text that is one number, perhaps with a unit; None where it is none."""
    found = _WHOLE.fullmatch(text)
    return (number(found[1]), found[2]) if found else None


def as_unit(units: dict[str, str], key: str, number_: float, unit: str | None) -> float:
    """The value in the unit that its key was first written in; times are converted, `units` learns new keys."""
    if unit is None:
        return number_
    first = units.setdefault(key, unit)
    if first == unit or first not in SECONDS or unit not in SECONDS:
        return number_
    return number_ * SECONDS[unit] / SECONDS[first]


def decimals(text: str) -> int:
    """Digits behind the point of a number as it is written."""
    mantissa = re.split("[eE]", text.strip(), maxsplit=1)[0]
    return len(mantissa.partition(".")[2])


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    """Whether two rows hold the same values; NaN equals NaN."""
    return a.keys() == b.keys() and all(
        v == b[k] or (math.isnan(v) and math.isnan(b[k])) for k, v in a.items()
    )
