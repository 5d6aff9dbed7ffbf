"""Text and digests in one form: canonical JSON, and strings that any JSON can carry."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

import rfc8785

from .._rooms import schemas

_SAFE = 2**53 - 1


def text(value: str) -> str:
    """Return a string that UTF-8 can carry: a lone surrogate (a file name's raw byte) becomes `\\udcNN`."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the RFC 8785 JSON of a value made of plain types.

    What that JSON lacks has a fixed spelling: NaN and the infinities are the strings "NaN", "Infinity" and
    "-Infinity", and whole numbers beyond 2^53 are decimal strings.
    """
    return "sha256:" + hashlib.sha256(rfc8785.dumps(_plain(value))).hexdigest()


def digest_of(values: Mapping[str, schemas.Scalar]) -> str:
    """Return the digest of tagged values: that of `{key: {"type": ..., "value": ...}}`, leaf by leaf.

    The same as `digest`, for configs of many keys.
    """
    sha = hashlib.sha256(b"{")
    keys = sorted(values) if "".join(values).isascii() else sorted(values, key=lambda k: k.encode("utf-16be"))
    for i, key in enumerate(keys):
        sha.update(f"{',' if i else ''}{encode_basestring(key)}:{_tagged(values[key])}".encode())
    sha.update(b"}")
    return "sha256:" + sha.hexdigest()


def _tagged(scalar: schemas.Scalar) -> str:
    """A tagged value as RFC 8785 has it, the parts of a list likewise; numbers by the library."""
    kind, value = scalar.type, scalar.value
    if kind in ("str", "repr") and isinstance(value, str):
        told = encode_basestring(text(value))
    elif kind == "list" and isinstance(value, list):
        told = f"[{','.join(map(_tagged, value))}]"
    else:
        told = rfc8785.dumps(_plain(value)).decode()
    return f'{{"type":"{kind}","value":{told}}}'


def digest_bytes(data: bytes) -> str:
    """Return `sha256:<hex>` over bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_SAFE <= value <= _SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else schemas.float_to_json(value)
    if isinstance(value, Mapping):
        return {text(str(k)): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]
