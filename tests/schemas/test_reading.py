"""Lines of other versions: newer additions lose nothing, another model is refused, writers are closed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

import schemas

from . import make_golden

RAW = make_golden.journal().splitlines()


def _line(kind: str, **changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = next(d for d in map(json.loads, RAW) if d["payload"]["kind"] == kind)
    return {**data, **changes}


def _bytes(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode()


def test_unknown_fields_of_a_newer_addition_are_kept_at_every_depth() -> None:
    data = _line("checkpoint", schema="lineage/record/1-0-7", shard_map={"0": [1, 2]})
    data["payload"]["pinned"] = True
    data["payload"]["live"][0]["window"] = [0, 4096]
    raw = _bytes(data)
    record = schemas.read_line(raw)
    assert record.raw == raw
    assert record.payload.step == 2000
    assert record.payload.pinned is True
    assert record.payload.live[0].window == [0, 4096], "a nested object is read as openly as its parent"
    assert isinstance(record.payload, schemas.Checkpoint)


def test_an_unknown_word_of_an_enum_is_kept_and_a_constant_is_no_enum() -> None:
    data = _line("mitigation", schema="lineage/record/1-0-7")
    data["payload"]["after"] = {"type": "complex", "value": [0.5, 1]}
    record = schemas.read_line(_bytes(data))
    assert (record.payload.after.type, record.payload.after.value) == ("complex", [0.5, 1])
    data = _line("journal_header", schema="lineage/record/1-0-7")
    data["payload"]["format"] = "lineage-journal/2"
    with pytest.raises(schemas.RecordError, match="format"):
        schemas.read_line(_bytes(data))
    with pytest.raises(ValidationError):
        schemas.Seal(why="a word of tomorrow", heads=[], root="sha256:00")  # type: ignore[arg-type]


def test_a_new_kind_of_payload_is_kept_whole() -> None:
    data = _line("run", schema="lineage/record/1-1-0")
    data["payload"] = {"kind": "autopsy", "organ": "loader", "weight": [1, {"g": 2}]}
    record = schemas.read_line(_bytes(data))
    assert isinstance(record.payload, schemas.Opaque)
    assert record.kind == "autopsy"
    assert record.payload.model_dump() == data["payload"]


@pytest.mark.parametrize("schema", ["lineage/record/2-0-0", "lineage/record/0-9-0"])
def test_another_model_version_is_refused_with_what_to_do(schema: str) -> None:
    with pytest.raises(schemas.RecordError, match="Install the runlineage release that wrote it") as e:
        schemas.read_line(_bytes(_line("run", schema=schema)))
    assert e.value.kind == "unknown_schema"
    assert schema in str(e.value)


@pytest.mark.parametrize("schema", ["openlineage/2-0-2", "", None, 7])
def test_a_line_of_no_schema_of_ours_is_refused_by_name(schema: object) -> None:
    with pytest.raises(schemas.RecordError, match="none of ours") as e:
        schemas.read_line(_bytes(_line("run", schema=schema)))
    assert e.value.kind == "unknown_schema"


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe{}", b"[]", b"null", b'"x"', b"\x00" * 64])
def test_what_is_not_a_json_object_is_called_so(raw: bytes) -> None:
    with pytest.raises(schemas.RecordError) as e:
        schemas.read_line(raw)
    assert e.value.kind == "bad_json"


@pytest.mark.parametrize(
    "broken",
    [{"seq": -1}, {"at": "yesterday"}, {"payload": []}, {"payload": "run"}, {"payload": None}, {"id": "7"}],
    ids=str,
)
def test_a_line_that_does_not_fit_is_refused_as_invalid(broken: dict[str, Any]) -> None:
    with pytest.raises(schemas.RecordError) as e:
        schemas.read_line(_bytes(_line("run", **broken)))
    assert e.value.kind == "invalid"


def test_a_wrong_value_in_a_payload_is_named_with_its_place() -> None:
    data = _line("checkpoint")
    data["payload"]["step"] = "many"
    with pytest.raises(schemas.RecordError, match="step") as e:
        schemas.read_line(_bytes(data))
    assert e.value.kind == "invalid"


@pytest.mark.parametrize("model", schemas.PAYLOADS, ids=lambda m: m.__name__)
def test_writers_forbid_unknown_fields(model: type[schemas.Model]) -> None:
    kind = model.model_fields["kind"].default
    data = _line(kind)["payload"]
    model.model_validate(data)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model.model_validate({**data, "not_a_field": 1})


def test_records_are_immutable() -> None:
    run = schemas.Run(uid="pretrain-7b")
    with pytest.raises(ValidationError, match="frozen"):
        run.name = "other"  # type: ignore[misc]


def test_every_reference_to_a_record_is_checked_for_its_form() -> None:
    with pytest.raises(ValidationError):
        schemas.CheckpointMark(checkpoint="step-2000", mark="deleted", why="rotation")
    with pytest.raises(ValidationError):
        schemas.Anchor(root="md5", tracker="wandb", place="config")
