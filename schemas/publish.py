"""Publish the JSON Schemas, and tell drift and breaking changes.

A published `$id` never changes its bytes. Within a MODEL only additions are made: a changed schema takes
a new ADDITION (optional fields only) and a new file beside the old one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._base import Model
from .envelope import PAYLOADS, RECORD_SCHEMA, Envelope

PUBLISHED = Path(__file__).parent / "published"
BASE = "https://runlineage.dev/schemas/"


def _name(model: type[Model]) -> str:
    return "record" if model is Envelope else str(model.model_fields["kind"].default)


def generate() -> dict[str, bytes]:
    """Return file name -> bytes of every schema at the current version."""
    version = RECORD_SCHEMA.rsplit("/", 1)[1]
    out = {}
    models: tuple[type[Model], ...] = (Envelope, *PAYLOADS)
    for model in models:
        schema: dict[str, Any] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"{BASE}{_name(model)}/{version}",
            **model.model_json_schema(mode="serialization", by_alias=True),
        }
        out[f"{_name(model)}-{version}.json"] = (json.dumps(schema, indent=1, sort_keys=True) + "\n").encode()
    return out


def write(folder: Path = PUBLISHED) -> list[str]:
    """Write the schemas that are not there yet. A file that is there is never touched."""
    folder.mkdir(parents=True, exist_ok=True)
    new = []
    for name, data in generate().items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
            new.append(name)
    return new


def check(folder: Path = PUBLISHED) -> list[str]:
    """Return what is wrong: schemas that drifted from their published bytes, or that break readers."""
    problems = []
    for name, data in generate().items():
        path = folder / name
        if not path.exists():
            problems.append(f"{name}: not published; run `lineage schema --write`")
        elif path.read_bytes() != data:
            problems.append(
                f"{name}: differs from its published bytes; raise RECORD_SCHEMA in schemas/envelope.py, "
                "then `lineage schema --write`"
            )
    return problems + breaking(folder)


def breaking(folder: Path = PUBLISHED) -> list[str]:
    """Compare the newest schemas with every older published one of the same MODEL."""
    problems = []
    for name, data in generate().items():
        stem, version = name.removesuffix(".json").split("-", 1)
        for old in sorted(folder.glob(f"{stem}-{version.split('-')[0]}-*.json")):
            if old.name != name:
                problems += [
                    f"{old.name} -> {name}: {p}"
                    for p in _breaks(json.loads(old.read_bytes()), json.loads(data))
                ]
    return problems


def _breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List the changes that would break a reader of old lines: gone fields, new duties, other types."""
    out = _object_breaks("", old, new)
    for name, definition in old.get("$defs", {}).items():
        other = new.get("$defs", {}).get(name)
        out += [f"{name} is gone"] if other is None else _object_breaks(name + ".", definition, other)
    return out


def _object_breaks(at: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    out = []
    was, now = old.get("properties", {}), new.get("properties", {})
    out += [f"{at}{f} is gone" for f in was if f not in now]
    # In serialization mode pydantic lists every field with a default as required too, so what counts as a
    # new duty is a required field without a default.
    out += [
        f"{at}{f} is a new required field"
        for f in new.get("required", [])
        if f not in was and "default" not in now.get(f, {})
    ]
    shape = ("type", "enum", "const", "anyOf", "oneOf", "$ref", "items", "pattern")
    for f in was:
        if f in now and any(was[f].get(k) != now[f].get(k) for k in shape) and not _widened(was[f], now[f]):
            out.append(f"{at}{f} changed its type")
    return out


def _widened(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Tell whether `new` accepts all that `old` did: a longer enum, or one more alternative."""
    if "enum" in old and "enum" in new:
        return set(map(str, old["enum"])) <= set(map(str, new["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in old and key in new:
            return all(o in new[key] for o in old[key])
    return False
