"""The published JSON Schemas: their bytes are kept, and changes that break a reader are found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import schemas
from schemas import publish

from . import make_golden
from .enums import enum_words

VERSION = schemas.RECORD_SCHEMA.rsplit("/", 1)[1]


def test_what_is_published_is_what_the_models_say_to_the_byte_under_any_pydantic() -> None:
    assert publish.check() == []


def test_what_pydantic_s_versions_spell_differently_and_says_nothing_is_left_out() -> None:
    for name, data in publish.generate().items():
        for path, schema in _every(json.loads(data)):
            assert not {"const", "enum"} <= schema.keys(), (name, path)
            assert schema.get("additionalProperties") is not True, (name, path)
            assert not isinstance(schema.get("title"), str), (name, path)
    incident = json.loads(publish.generate()[f"incident-{VERSION}.json"])
    assert incident["properties"]["title"] == {"type": "string"}, "a field of that name is no title"


def _every(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a document with its place."""
    if isinstance(schema, dict):
        yield path, schema
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if isinstance(value, dict | list):
            yield from _every(value, f"{path}/{key}")


def test_a_schema_is_published_for_the_envelope_and_every_payload_with_a_fixed_id() -> None:
    made = publish.generate()
    names = {"record", *(m.model_fields["kind"].default for m in schemas.PAYLOADS)}
    assert set(made) == {f"{n}-{VERSION}.json" for n in names}
    for name in names:
        schema = json.loads(made[f"{name}-{VERSION}.json"])
        assert schema["$id"] == f"{publish.BASE}{name}/{VERSION}"
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_published_file_is_never_written_again(tmp_path: Path) -> None:
    assert len(publish.write(tmp_path)) == len(publish.generate())
    (tmp_path / f"run-{VERSION}.json").write_bytes(b"{}")
    assert publish.write(tmp_path) == []
    assert (tmp_path / f"run-{VERSION}.json").read_bytes() == b"{}"


def test_drift_from_the_published_bytes_and_a_missing_file_are_named(tmp_path: Path) -> None:
    publish.write(tmp_path)
    assert publish.check(tmp_path) == []
    (tmp_path / f"run-{VERSION}.json").write_bytes(b"{}")
    (tmp_path / f"seal-{VERSION}.json").unlink()
    drifted, missing = sorted(publish.check(tmp_path))
    assert drifted.startswith(f"run-{VERSION}.json: differs from its published bytes; raise RECORD_SCHEMA")
    assert missing.startswith(f"seal-{VERSION}.json: not published")


def _older(tmp_path: Path, name: str, older_version: str, change: Any) -> list[str]:
    """Publish today's schemas, and an older one of `name` that differs by `change`; list the breaks."""
    publish.write(tmp_path)
    old = json.loads(publish.generate()[f"{name}-{VERSION}.json"])
    change(old)
    (tmp_path / f"{name}-{older_version}.json").write_text(json.dumps(old))
    return publish.breaking(tmp_path)


def test_a_removed_field_is_found(tmp_path: Path) -> None:
    def had_more(old: dict[str, Any]) -> None:
        old["properties"]["nickname"] = {"type": "string"}

    (found,) = _older(tmp_path, "run", "1-0-9", had_more)
    assert found == f"run-1-0-9.json -> run-{VERSION}.json: nickname is gone"


def test_a_new_required_field_is_found_also_inside_a_nested_object(tmp_path: Path) -> None:
    def had_less(old: dict[str, Any]) -> None:
        del old["$defs"]["Place"]["properties"]["pid"]
        old["$defs"]["Place"]["required"].remove("pid")

    (found,) = _older(tmp_path, "segment", "1-0-9", had_less)
    assert found.endswith("Place.pid is a new required field")


@pytest.mark.parametrize(
    ("field", "was"),
    [("uid", {"type": "integer"}), ("source", {"enum": ["argument", "nowhere"], "type": "string"})],
    ids=["type", "narrower enum"],
)
def test_a_changed_type_is_found(tmp_path: Path, field: str, was: dict[str, Any]) -> None:
    def was_other(old: dict[str, Any]) -> None:
        old["properties"][field] = was

    (found,) = _older(tmp_path, "run", "1-0-9", was_other)
    assert found.endswith(f"{field} changed its type")


def test_a_definition_that_is_gone_is_found(tmp_path: Path) -> None:
    def had_more(old: dict[str, Any]) -> None:
        old.setdefault("$defs", {})["Ghost"] = {"type": "object", "properties": {}}

    (found,) = _older(tmp_path, "run", "1-0-9", had_more)
    assert found.endswith("Ghost is gone")


def test_an_added_optional_field_a_longer_enum_and_a_new_kind_break_nobody(tmp_path: Path) -> None:
    def had_less(old: dict[str, Any]) -> None:
        del old["properties"]["name"]
        old["required"] = [r for r in old.get("required", []) if r != "name"]
        old["properties"]["source"]["enum"] = old["properties"]["source"]["enum"][:2]

    def had_fewer_kinds(old: dict[str, Any]) -> None:
        payload = old["properties"]["payload"]
        gone = payload["oneOf"].pop()
        payload["discriminator"]["mapping"] = {
            k: v for k, v in payload["discriminator"]["mapping"].items() if v != gone["$ref"]
        }

    assert _older(tmp_path, "run", "1-0-9", had_less) == []
    assert _older(tmp_path, "record", "1-0-9", had_fewer_kinds) == []


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("run", lambda p: p["name"].update(anyOf=p["name"]["anyOf"][:1]), "name"),
        ("run", lambda p: p.update(uid={"type": "string"}), "uid"),
        ("config", lambda p: p["values"].update(additionalProperties={"type": "string"}), "values"),
        ("segment_end", lambda p: p["reason"].update(enum=[*p["reason"]["enum"], "sleep"]), "reason"),
        ("checkpoint", lambda p: p["step"].pop("minimum"), "step"),
    ],
    ids=["may be null now", "narrower pattern", "other values of a mapping", "word gone", "narrower number"],
)
def test_what_one_of_the_two_sides_would_refuse_is_found(
    tmp_path: Path, name: str, change: Any, what: str
) -> None:
    (found,) = _older(tmp_path, name, "1-0-9", lambda old: change(old["properties"]))
    assert found.endswith(f"{what} changed its type")


def test_what_counts_as_an_addition_is_what_older_readers_read(tmp_path: Path) -> None:
    """Every enum of every golden line takes a word that this version does not know, as a newer one would write it."""
    seen = set()
    for raw in make_golden.journal().splitlines():
        line = json.loads(raw)
        for holder, key in enum_words(line["payload"]):
            known, holder[key] = holder[key], "a word of tomorrow"
            record = schemas.read_line(json.dumps(line).encode())
            assert not isinstance(record.payload, schemas.Opaque), (record.kind, key)
            assert "a word of tomorrow" in record.payload.model_dump_json(by_alias=True), (record.kind, key)
            assert json.loads(record.raw) == line
            holder[key] = known
            seen.add((record.kind, key))
    assert len(seen) > 20


def test_another_model_version_is_no_reference_for_breaking_changes(tmp_path: Path) -> None:
    def had_more(old: dict[str, Any]) -> None:
        old["properties"] = copy.deepcopy(old["properties"]) | {"nickname": {"type": "string"}}

    assert _older(tmp_path, "run", "0-9-0", had_more) == []
