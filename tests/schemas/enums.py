"""Where a record holds a word of an enum, found by the schemas: for lines as a newer version would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import schemas
from schemas import publish


@cache
def _schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        publish.generate()[f"{kind}-{schemas.RECORD_SCHEMA.rpartition('/')[2]}.json"]
    )
    return found


def enum_words(payload: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(object, key) of each word of an enum in a payload."""
    schema = _schema(payload["kind"])
    return _words(schema, schema.get("$defs", {}), payload, None, None)


def _words(schema: Any, defs: Any, data: Any, holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    if "$ref" in schema:
        yield from _words(defs[schema["$ref"].rpartition("/")[2]], defs, data, holder, key)
    if isinstance(data, str) and "enum" in schema:
        yield holder, key
    for choice in schema.get("anyOf", []):
        yield from _words(choice, defs, data, holder, key)
    if isinstance(data, dict):
        for name, value in data.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if isinstance(inner, dict):
                yield from _words(inner, defs, value, data, name)
    elif isinstance(data, list) and "items" in schema:
        for i, value in enumerate(data):
            yield from _words(schema["items"], defs, value, data, i)
