"""When two config values are the same: numbers by value, lists by content, text as it stands."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from typing import Any

from .._rooms import schemas

_QUANTITY = re.compile(r"([+-]?[\d.,_]+(?:[eE][+-]?\d+)?)\s*([A-Za-z]+)")
_UNITS = {
    **dict.fromkeys(("t", "tok", "token", "tokens"), "tokens"),
    **dict.fromkeys(("sp", "sample", "samples"), "samples"),
    **dict.fromkeys(("ba", "batch", "batches", "step", "steps", "iter", "iters", "iterations"), "steps"),
    **dict.fromkeys(("ep", "epoch", "epochs"), "epochs"),
}
"""Units that frameworks write behind a number: OLMo's `3e12T`, Composer's `1ep` and `30000ba`."""
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "double": "float64",
}
_LONGEST = 4096
"""Characters of a text that is read as a list; a longer one is compared as text."""


def normal(scalar: schemas.Scalar | None) -> Any:
    """Bring a value to the form in which it is compared.

    1e-4 and "0.0001" are one value, 1 and 1.0 too, "true" and True, absent and none, "[1, 2]" and the list,
    "bf16" and torch.bfloat16, 3e12T and 3000000000000 tokens.
    """
    if scalar is None or scalar.type == "null":
        return None
    return _plain(scalar.plain()) if scalar.type != "masked" else "(masked)"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value) or None  # an empty list asks for nothing, as none does
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    return value


def _text(value: str) -> Any:
    text = value.strip()
    lowered = text.lower()
    if lowered in ("none", "null", "", "\\", "{}", "[]", "()"):
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    found = schemas.number_of(text)
    if found is not None:
        return _number(found)
    if text[0] in "[(" and text[-1] in "])" and len(text) <= _LONGEST:
        return _list(text)
    if text[0] in "+-.0123456789" and len(text) <= _LONGEST:
        return _numbers_or_quantity(text)
    dtype = lowered.removeprefix("torch.")
    return _DTYPES.get(dtype, dtype if dtype.startswith(("float", "bfloat", "int")) else text)


def _list(text: str) -> Any:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = [part.strip() for part in text[1:-1].split(",")]  # [a, b] as YAML and argparse print it
    return _plain(found) if isinstance(found, list | tuple) else text


def _numbers_or_quantity(text: str) -> Any:
    """A row of numbers ("192 16 9_765_625", "0.9, 0.95") is a list; a number with a unit is a quantity."""
    quantity = _QUANTITY.fullmatch(text)
    size = schemas.number_of(quantity[1]) if quantity else None
    if quantity and size is not None and quantity[2].lower() in _UNITS:
        return f"{float(size):.15g} {_UNITS[quantity[2].lower()]}"
    parts = [schemas.number_of(p) for p in re.split(r"[,;]\s*|\s+", text)]
    if len(parts) > 1 and all(p is not None for p in parts):
        return tuple(_number(p) for p in parts if p is not None)
    return text


def _number(value: float | int) -> Any:
    if isinstance(value, int) and abs(value) > 2**53:
        return f"{value}"  # beyond what a float tells apart
    if math.isnan(value):
        return "NaN"
    return float(value)


def same(a: schemas.Scalar | None, b: schemas.Scalar | None) -> bool:
    """Tell whether two values mean the same. A masked value is never shown to be the same as another."""
    if a is not None and b is not None and "masked" in (a.type, b.type):
        return False
    return close(normal(a), normal(b))


def close(a: Any, b: Any) -> bool:
    """Tell whether two normal forms are the same: numbers up to the last digits that a text keeps."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    return type(a) is type(b) and bool(a == b)


def same_content(a: Any, b: Any) -> bool:
    """Tell whether two normal forms are lists of text with the same entries in whatever order."""
    lists = isinstance(a, tuple) and isinstance(b, tuple)
    return lists and all(isinstance(x, str) for x in (*a, *b)) and Counter(a) == Counter(b)


def is_number(value: Any) -> bool:
    """Tell whether a normal form is a number, a row of numbers, a quantity, a switch, or nothing."""
    if isinstance(value, tuple):
        return all(is_number(v) for v in value)
    quantity = isinstance(value, str) and value.rpartition(" ")[2] in _UNITS.values()
    return value is None or quantity or isinstance(value, float | bool) or value == "NaN"


def arrow(before: schemas.Scalar | None, after: schemas.Scalar | None) -> str:
    """`1 -> 0.3`, as a person reads it."""
    return f"{word(before)} -> {word(after)}"


def word(scalar: schemas.Scalar | None) -> str:
    """A value as a person reads it, shortened to 60 characters."""
    if scalar is None or scalar.type == "null":
        return "none"
    text = scalar.text()
    return text if len(text) <= 60 else text[:57] + "..."
