"""When two config values are the same: numbers by value, lists by content, text as it stands."""

from __future__ import annotations

import math
from typing import Any

from .._rooms import schemas


def normal(scalar: schemas.Scalar | None) -> Any:
    """Bring a value to the form in which it is compared.

    1e-4 and "0.0001" are one value, 1 and 1.0 too, "true" and True, absent and none.
    """
    if scalar is None or scalar.type == "null":
        return None
    return _plain(scalar.plain()) if scalar.type != "masked" else "(masked)"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(v) for v in value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(float(value))
    return value


def _text(value: str) -> Any:
    text = value.strip()
    lowered = text.lower()
    if lowered in ("none", "null", ""):
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return _number(float(text.replace("_", "")))
    except ValueError:
        return text


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    return value


def same(a: schemas.Scalar | None, b: schemas.Scalar | None) -> bool:
    """Tell whether two values mean the same. A masked value is never shown to be the same as another."""
    if a is not None and b is not None and "masked" in (a.type, b.type):
        return False
    return _close(normal(a), normal(b))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    return type(a) is type(b) and bool(a == b)


def arrow(before: schemas.Scalar | None, after: schemas.Scalar | None) -> str:
    """`1 -> 0.3`, as a person reads it."""
    return f"{_word(before)} -> {_word(after)}"


def _word(scalar: schemas.Scalar | None) -> str:
    if scalar is None or scalar.type == "null":
        return "none"
    text = scalar.text()
    return text if len(text) <= 60 else text[:57] + "..."
