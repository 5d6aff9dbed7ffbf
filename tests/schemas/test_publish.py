"""The published JSON Schemas: their bytes are kept, and changes that break a reader are found."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

import schemas
from schemas import publish

VERSION = schemas.RECORD_SCHEMA.rsplit("/", 1)[1]


PINNED = re.search(r"^pydantic==(\S+)", (Path(__file__).parents[2] / "constraints.txt").read_text(), re.M)


def _spelling(schema: Any) -> Any:
    """Leave out what pydantic's versions spell differently and what says nothing: an enum beside a const."""
    if isinstance(schema, dict):
        return {
            k: _spelling(v)
            for k, v in schema.items()
            if not (k == "enum" and "const" in schema) and (k, v) != ("additionalProperties", True)
        }
    return [_spelling(v) for v in schema] if isinstance(schema, list) else schema


@pytest.mark.skipif(
    PINNED is None or PINNED[1] != pydantic.VERSION,
    reason="schemas are published with the pinned pydantic; others spell the same schema in other bytes",
)
def test_what_is_published_is_what_the_models_say_to_the_byte() -> None:
    assert publish.check() == []


def test_what_is_published_means_what_the_models_say_under_any_pydantic() -> None:
    for name, data in publish.generate().items():
        published = json.loads((publish.PUBLISHED / name).read_bytes())
        assert _spelling(published) == _spelling(json.loads(data)), name
    assert publish.breaking() == []


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


def test_an_added_optional_field_and_a_longer_enum_break_nobody(tmp_path: Path) -> None:
    def had_less(old: dict[str, Any]) -> None:
        del old["properties"]["name"]
        old["required"] = [r for r in old.get("required", []) if r != "name"]
        old["properties"]["source"]["enum"] = old["properties"]["source"]["enum"][:2]

    assert _older(tmp_path, "run", "1-0-9", had_less) == []


def test_another_model_version_is_no_reference_for_breaking_changes(tmp_path: Path) -> None:
    def had_more(old: dict[str, Any]) -> None:
        old["properties"] = copy.deepcopy(old["properties"]) | {"nickname": {"type": "string"}}

    assert _older(tmp_path, "run", "0-9-0", had_more) == []
