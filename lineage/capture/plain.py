"""The plain form of one config value: what two runs can compare, whatever object held it.

Numbers, strings, booleans and lists of them stay; everything else becomes text of type `repr`, without memory
addresses, so that the same object in two runs reads the same.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import os
import re
from typing import Any

from .._rooms import schemas
from . import canonical, secrets

LONGEST = 65_536
"""Characters of a string that are kept; of a longer one a part and a digest of the masked text."""
_MOST_ENTRIES = 10_000
"""Entries of a set, a deque or another container that is shown by its text; a larger one by their number."""
_SMALL = 64
"""Elements of an array that are kept one by one."""
_ADDRESS = re.compile(r"\b(?:at )?0x[0-9a-fA-F]{4,16}\b")


class Hidden:
    """Stands for a value that is a secret, whatever it looks like."""


def scalar(key: str, value: Any) -> tuple[schemas.Scalar, bool]:
    """Return the tagged plain form of a leaf under its key, and whether anything in it was masked.

    Never raises.
    """
    if value is None or isinstance(value, bool | float) or type(value) is int:
        value, hit = secrets.mask_value(key, _number(value))
        return (schemas.MASKED, True) if hit else (schemas.Scalar.of(value), False)
    if isinstance(value, Hidden) or type(value).__name__ in ("SecretStr", "SecretBytes"):
        return schemas.MASKED, True
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return _text(key, str(value))
    if isinstance(value, list | tuple):
        made = [scalar(key, v) for v in value]
        return schemas.Scalar.of([s for s, _ in made]), any(hit for _, hit in made)
    return _other(key, value)


def untouched(value: Any) -> schemas.Scalar:
    """Return the tagged form of a plain value, or a list of such, that is known to hold no secret."""
    if isinstance(value, list | tuple):
        return schemas.Scalar.of([untouched(v) for v in value])
    return schemas.Scalar.of(canonical.text(value) if isinstance(value, str) else value)


def _number(value: Any) -> Any:
    # A subclass of float (numpy.float64) is stored as the plain number that it is.
    return float(value) if isinstance(value, float) else value


def _text(key: str, value: str, *, kind: str = "str") -> tuple[schemas.Scalar, bool]:
    text, hit = secrets.mask_value(key, canonical.text(value))
    if hit and text == secrets.MASK:
        return schemas.MASKED, True
    if len(text) > LONGEST:
        whole = canonical.digest_bytes(text.encode())
        text, kind = f"{text[:3900]}... ({len(text):,} characters, {whole})", "repr"
    if kind == "repr":
        return schemas.Scalar(type="repr", value=text[:4096]), hit
    return schemas.Scalar.of(text), hit


def _other(key: str, value: Any) -> tuple[schemas.Scalar, bool]:
    if isinstance(value, enum.Enum):
        held = value.value
        return scalar(
            key, held if isinstance(held, str | int | float) else f"{type(value).__name__}.{value.name}"
        )
    if isinstance(value, os.PathLike):
        return _text(key, os.fsdecode(value))
    if isinstance(value, datetime.date | datetime.time):
        return _text(key, value.isoformat())
    if isinstance(value, int):
        return scalar(key, int(value))
    array = _array(key, value)
    return array or _text(key, describe(value), kind="repr")


def _array(key: str, value: Any) -> tuple[schemas.Scalar, bool] | None:
    """Take a small array or tensor in host memory as numbers: reading another would wait for the device."""
    root = type(value).__module__.partition(".")[0]
    if root not in ("numpy", "torch", "jax", "jaxlib") or not hasattr(value, "tolist"):
        return None
    try:
        if root != "numpy" and str(getattr(value, "device", "cpu")) != "cpu":
            return None
        size = value.numel() if root == "torch" else getattr(value, "size", 1)
        if size > _SMALL or getattr(getattr(value, "dtype", None), "kind", "f") in "OV":
            return None
        plain = value.tolist()
    except Exception:  # meta, sparse and other tensors without plain numbers
        return None
    if isinstance(plain, str | int | float | bool | list):
        return scalar(key, plain)
    return None


def describe(value: Any) -> str:
    """Return text for an object: its qualified name, its shape, or its repr without memory addresses."""
    try:
        return _described(value)
    except Exception as error:  # a repr of the user's may do anything
        return f"<{_qualified(type(value))}: repr failed with {type(error).__name__}>"


def _described(value: Any) -> str:
    if isinstance(value, functools.partial):
        args = [describe(a) for a in value.args]
        args += [f"{k}={describe(v)}" for k, v in sorted(value.keywords.items())]
        return f"functools.partial({', '.join([describe(value.func), *args])})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return _qualified(value)
    if _too_large(value):
        return f"<{_qualified(type(value))} of {len(value):,} entries: cut>"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(describe(v) for v in value)) + "}"
    if isinstance(value, bytes | bytearray):
        return repr(bytes(value[:4096]))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _shape(value)
    return _ADDRESS.sub("0x...", repr(value))


def _too_large(value: Any) -> bool:
    shown_otherwise = isinstance(value, bytes | bytearray | range) or hasattr(value, "shape")
    return not shown_otherwise and hasattr(value, "__len__") and len(value) > _MOST_ENTRIES


def _qualified(value: Any) -> str:
    return f"{getattr(value, '__module__', None) or '?'}:{value.__qualname__}"


def _shape(value: Any) -> str:
    text = f"{type(value).__name__}(shape={tuple(value.shape)}, dtype={value.dtype}"
    if type(value).__module__.startswith("numpy") and value.nbytes <= 2**24 and value.dtype.kind not in "OV":
        text += f", sha256={hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    return text + ")"
