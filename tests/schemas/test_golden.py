"""Golden files: byte-exact lines of every payload kind, of every published version."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import schemas
from schemas import publish

from . import make_golden

JOURNALS = sorted(make_golden.GOLDEN.glob("*/journal.jsonl"))
LINES = [(p.parent.name, n, raw) for p in JOURNALS for n, raw in enumerate(p.read_bytes().splitlines(), 1)]
IDS = [f"{version}-line{n}-{json.loads(raw)['payload']['kind']}" for version, n, raw in LINES]


def _schema(name: str, version: str) -> dict[str, Any]:
    """The published schema; for the present version the generated one stands in until it is published."""
    file = f"{name}-{version}.json"
    path = publish.PUBLISHED / file
    text = path.read_bytes() if path.exists() else publish.generate()[file]
    schema: dict[str, Any] = json.loads(text)
    return schema


def _plain(value: Any) -> Any:
    """Give NaN one identity, so that equal records compare equal."""
    if isinstance(value, float) and math.isnan(value):
        return "the value NaN"
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def test_the_writer_still_writes_the_golden_bytes() -> None:
    for name, data in make_golden.files().items():
        golden = make_golden.GOLDEN / make_golden.version() / name
        assert golden.read_bytes() == data, (
            f"{golden}: if the version was not released, run make_golden again"
        )


def test_every_payload_kind_has_a_golden_line() -> None:
    golden = {json.loads(raw)["payload"]["kind"] for v, _, raw in LINES if v == make_golden.version()}
    assert golden == {m.model_fields["kind"].default for m in schemas.PAYLOADS}


def test_every_field_of_every_payload_is_filled_in_some_golden_line() -> None:
    filled: dict[type, set[str]] = {}

    def walk(value: Any) -> None:
        if isinstance(value, schemas.Model):
            default = type(value).model_fields
            names = {n for n in default if getattr(value, n) not in (None, [], {}, "")}
            filled.setdefault(type(value), set()).update(names)
            for name in default:
                walk(getattr(value, name))
        elif isinstance(value, dict | list):
            for v in value.values() if isinstance(value, dict) else value:
                walk(v)

    for raw in (raw for v, _, raw in LINES if v == make_golden.version()):
        walk(schemas.Envelope.model_validate_json(raw))
    empty = {f"{m.__name__}.{n}" for m, names in filled.items() for n in set(m.model_fields) - names}
    assert empty == set()


@pytest.mark.parametrize(("version", "number", "raw"), LINES, ids=IDS)
def test_a_golden_line_validates_against_its_json_schemas(version: str, number: int, raw: bytes) -> None:
    data = json.loads(raw)
    for name, part in (("record", data), (data["payload"]["kind"], data["payload"])):
        schema = _schema(name, version)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(part)


@pytest.mark.parametrize(("version", "number", "raw"), LINES, ids=IDS)
def test_a_golden_line_reads_and_dumps_to_equal_values(version: str, number: int, raw: bytes) -> None:
    record = schemas.read_line(raw, file="journal.jsonl", line=number)
    assert record.raw == raw, "re-emitting copies the raw line"
    assert (record.file, record.line) == ("journal.jsonl", number)
    again = record.payload.model_dump(mode="json", by_alias=True)
    stored = json.loads(raw)["payload"]
    assert {k: again[k] for k in stored} == stored
    if version == make_golden.version():
        assert schemas.Envelope.model_validate_json(raw).to_line() == raw


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda p: p.parent.name)
def test_a_golden_journal_is_a_whole_chain(journal: Path, tmp_path: Path) -> None:
    from lineage import open_ledger

    folder = tmp_path / "journal" / "segment"
    folder.mkdir(parents=True)
    (folder / "node1-00000-1-1.jsonl").write_bytes(journal.read_bytes())
    ledger = open_ledger(tmp_path)
    assert ledger.damage == []
    assert len(ledger.records) == len(journal.read_bytes().splitlines())


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda p: p.parent.name)
def test_nan_and_infinities_survive_as_values_and_the_word_nan_as_a_word(journal: Path) -> None:
    records = [schemas.read_line(raw) for raw in journal.read_bytes().splitlines()]
    config = next(r.payload for r in records if r.kind == "config")
    assert config.values["data.note"].plain() == "NaN"
    assert config.values["loss.cap"].plain() == math.inf
    alarms = [r.payload for r in records if r.kind == "alarm"]
    assert math.isnan(alarms[0].value)
    assert alarms[1].value == -math.inf
    assert math.isnan(alarms[1].detector["limit"].plain())
    assert alarms[1].threshold == math.inf


@pytest.mark.parametrize(
    "sidecar", sorted(make_golden.GOLDEN.glob("*/lineage.json")), ids=lambda p: p.parent.name
)
def test_a_golden_sidecar_is_read_from_its_checkpoint_folder(sidecar: Path) -> None:
    from lineage.ledger import sidecars

    found = sidecars.read(sidecar.parent)
    assert found is not None
    assert found.checkpoint.step == 2000
    assert found.ancestors[0] == found.checkpoint.parents[0]
    assert found.model_dump_json(by_alias=True).encode() == sidecar.read_bytes()
