"""Floats and config scalars: every value survives JSON, with its type."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import schemas
from schemas import Scalar

FLOAT = TypeAdapter(schemas.Float)
FLOAT_SCHEMA = jsonschema.Draft202012Validator(FLOAT.json_schema(mode="serialization"))
SCALAR_SCHEMA = jsonschema.Draft202012Validator(TypeAdapter(list[Scalar]).json_schema(mode="serialization"))

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


@given(st.floats())
def test_a_float_survives_json(value: float) -> None:
    text = FLOAT.dump_json(value)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    FLOAT_SCHEMA.validate(json.loads(text))
    again = FLOAT.validate_json(text)
    assert again == value or (math.isnan(again) and math.isnan(value))


@pytest.mark.parametrize("text", ['"nan"', '"inf"', '"+Infinity"', '"1.0"', "null", "true_", '""'])
def test_other_spellings_are_no_floats(text: str) -> None:
    with pytest.raises(ValidationError):
        FLOAT.validate_json(text)


@given(VALUES)
def test_a_config_value_survives_json_with_its_type(value: Any) -> None:
    scalar = Scalar.of(value)
    text = scalar.model_dump_json()
    SCALAR_SCHEMA.validate([json.loads(text)])
    again = Scalar.model_validate_json(text)
    assert _same(again.plain(), value)
    assert again.model_dump_json() == text


def test_the_word_nan_and_the_value_nan_differ() -> None:
    word, value = Scalar.of("NaN"), Scalar.of(math.nan)
    assert word.model_dump(mode="json") == {"type": "str", "value": "NaN"}
    assert value.model_dump(mode="json") == {"type": "float", "value": "NaN"}


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), (None, "None"), ([1], "[1]"), (0, False)])
def test_values_that_look_alike_keep_their_types(one: object, other: object) -> None:
    assert Scalar.of(one).model_dump(mode="json") != Scalar.of(other).model_dump(mode="json")


@pytest.mark.parametrize(
    "data",
    [
        {"type": "int", "value": "1"},
        {"type": "bool", "value": 1},
        {"type": "int", "value": True},
        {"type": "float", "value": "nan"},
        {"type": "masked", "value": "hunter2"},
        {"type": "complex", "value": 1},
        {"value": 1},
    ],
    ids=str,
)
def test_a_value_that_does_not_go_with_its_type_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Scalar.model_validate(data)


def test_a_masked_value_leaves_nothing_behind() -> None:
    assert schemas.MASKED.model_dump(mode="json") == {"type": "masked", "value": None}
    assert schemas.MASKED.text() == "(masked)"


def test_an_object_without_a_plain_form_keeps_its_text_cut_to_4096_characters() -> None:
    class Wide:
        def __repr__(self) -> str:
            return "w" * 5000

    scalar = Scalar.of(Wide())
    assert scalar.type == "repr"
    assert scalar.value == "w" * 4096


def test_times_are_written_in_utc_with_microseconds() -> None:
    adapter = TypeAdapter(schemas.Time)
    written = adapter.dump_json(adapter.validate_python("2026-11-29T17:00:00+01:00"))
    assert written == b'"2026-11-29T16:00:00.000000Z"'


def test_a_scalar_equals_its_open_twin_and_nan_equals_nan() -> None:
    """A value read from a newer writer is the same value."""
    twin = schemas.open_class(schemas.Scalar)
    for value in (1, 1.5, "x", None, True, [1, "a"], float("nan")):
        one = schemas.Scalar.of(value)
        other = twin.model_validate({**one.model_dump(mode="json"), "unit": "m"})
        assert one == other
        assert other == one
        assert len({one, other}) == 1
    assert schemas.Scalar.of(1) != schemas.Scalar.of(1.0)
    assert schemas.Scalar.of("NaN") != schemas.Scalar.of(float("nan"))
