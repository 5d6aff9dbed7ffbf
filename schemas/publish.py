"""Publish the JSON Schemas, and tell drift and breaking changes.

A published `$id` never changes its bytes, whichever pydantic made it. Within a MODEL only additions are made: a
changed schema takes a new ADDITION and a new file beside the old one. An addition is what old readers read and
what new readers do not miss in old lines: an optional field, a kind of payload, a word of an enum (see `reading`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._base import Model
from .envelope import PAYLOADS, RECORD_SCHEMA, Envelope

PUBLISHED = Path(__file__).parent / "published"
BASE = "https://runlineage.dev/schemas/"


SCALAR_VALUE = {
    "anyOf": [
        {"type": "null"},
        {"type": "boolean"},
        {"type": "number"},
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#/$defs/Scalar"}},
    ]
}
"""The value of a tagged scalar. Pydantic cannot tell it: the form depends on `type`, and refers to itself."""


def _name(model: type[Model]) -> str:
    return "record" if model is Envelope else str(model.model_fields["kind"].default)


def generate() -> dict[str, bytes]:
    """Return file name -> bytes of every schema at the current version."""
    version = RECORD_SCHEMA.rsplit("/", 1)[1]
    out = {}
    models: tuple[type[Model], ...] = (Envelope, *PAYLOADS)
    for model in models:
        made = _canonical(model.model_json_schema(mode="serialization", by_alias=True))
        if "Scalar" in made.get("$defs", {}):
            made["$defs"]["Scalar"]["properties"]["value"] = SCALAR_VALUE
        schema: dict[str, Any] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"{BASE}{_name(model)}/{version}",
            **made,
        }
        out[f"{_name(model)}-{version}.json"] = (json.dumps(schema, indent=1, sort_keys=True) + "\n").encode()
    return out


def _canonical(schema: Any) -> Any:
    """Return a schema without what says nothing, which pydantic's versions spell differently.

    Left out: titles, which repeat the name; an enum beside a const; `additionalProperties: true`.
    """
    if isinstance(schema, list):
        return [_canonical(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            out[key] = {name: _canonical(s) for name, s in value.items()}
        elif key in _VALUES:
            out[key] = value
        elif key != "title" and (key, value) != ("additionalProperties", True):
            out[key] = _canonical(value)
    if "const" in out:
        out.pop("enum", None)
    return out


_VALUES = ("default", "const", "enum", "examples", "required", "discriminator")
"""Keys that hold values, or names, and no schema."""


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
    """List the changes that are no addition: gone fields, new duties, other types."""
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
    out += [f"{at}{f} changed its type" for f in was if f in now and not _accepted(was[f], now[f])]
    return out


_SAYS_NOTHING = ("description", "default", "examples", "title")


def _accepted(old: Any, new: Any) -> bool:
    """Tell whether readers of either side read lines of the other.

    Only what `open_class` is open to may grow: an enum by words, and the payload, which its `kind` tells apart, by
    kinds. A field that may now hold another type as well, such as null, is refused by readers that came before.
    """
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_accepted, old, new))
    if not isinstance(old, dict) or not isinstance(new, dict):
        return bool(old == new)
    old, new = ({k: v for k, v in s.items() if k not in _SAYS_NOTHING} for s in (old, new))
    if "enum" in old and "enum" in new and all(word in new["enum"] for word in old["enum"]):
        old, new = ({k: v for k, v in s.items() if k != "enum"} for s in (old, new))
    if "discriminator" in old and "discriminator" in new:
        return all(kind in new["oneOf"] for kind in old["oneOf"])
    return old.keys() == new.keys() and all(_accepted(old[k], new[k]) for k in old)
