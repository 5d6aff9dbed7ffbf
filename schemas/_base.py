"""Building blocks of every record: closed models, and values that survive JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Model(BaseModel):
    """A closed, frozen model: what a writer may emit."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=True)


def _read_float(value: object) -> object:
    if isinstance(value, str):
        if value not in NON_FINITE:
            raise ValueError(f'a number, "NaN", "Infinity" or "-Infinity" is due here, not {value!r}')
        return NON_FINITE[value]
    return value


def float_to_json(value: float) -> float | str:
    """Give a float its form in JSON: a number, or one of the three names of `NON_FINITE`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


Float = Annotated[
    float,
    BeforeValidator(_read_float),
    PlainSerializer(float_to_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, *({"const": name} for name in NON_FINITE)]}),
]
"""A float64. NaN and infinities are values: in JSON they are the strings of `NON_FINITE`."""


def _iso(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Time = Annotated[
    AwareDatetime,
    PlainSerializer(_iso, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A UTC instant with microseconds, written `2026-11-29T16:00:00.000000Z`."""


def now() -> datetime:
    """Return the present instant in UTC."""
    return datetime.now(UTC)


Digest = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*:[0-9a-f]+$")]
"""A digest with its algorithm, such as `sha256:9f86...`."""

Uid = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
"""A UUIDv7 in its usual lower-case form."""

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""A lineage run id. It names a folder, so it is one plain name and never a path."""

Code = Annotated[str, Field(pattern=r"^LIN-[A-Z]\d{3}$")]
"""A stable code of a finding or an error; each has a page in the documentation."""


_FITS: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "masked": type(None),
    "bool": bool,
    "int": int,
    "float": (float, int),
    "str": str,
    "repr": str,
    "list": list,
}


class Scalar(Model):
    """One config value with its type, so that the string "NaN" and NaN differ.

    `masked` stands for a value that looked like a secret: neither it nor a digest of it is stored.
    `repr` stands for an object that has no plain form; its text is kept, shortened to 4,096 characters.
    """

    type: Literal["null", "bool", "int", "float", "str", "list", "repr", "masked"]
    value: Any = None

    @model_validator(mode="before")
    @classmethod
    def _by_type(cls, data: object) -> object:
        """Read `value` by its `type`: only a float turns "NaN" into a number."""
        if not isinstance(data, dict):
            return data
        kind, value = data.get("type"), data.get("value")
        if isinstance(kind, str) and kind not in _FITS and cls.model_config.get("extra") == "allow":
            return data  # a reader meets a type of a newer addition
        if kind == "float":
            value = _read_float(value)
        elif kind == "list":
            value = [cls.model_validate(v) for v in value or []]
        fits = _FITS.get(str(kind))
        if (
            fits is None
            or not isinstance(value, fits)
            or (isinstance(value, bool) and kind in ("int", "float"))
        ):
            raise ValueError(f"type {kind!r} does not go with the value {value!r}")
        return {**data, "value": float(value) if kind == "float" else value}  # type: ignore[arg-type]

    @field_serializer("value", when_used="json")
    def _to_json(self, value: Any) -> Any:
        if self.type == "float":
            return float_to_json(value)
        return [v.model_dump(mode="json") for v in value] if self.type == "list" else value

    @classmethod
    def of(cls, value: object) -> Scalar:
        """Tag a plain Python value.

        Sequences keep their order; anything without a plain form becomes `repr`.
        """
        if isinstance(value, Scalar):
            return value
        if value is None:
            return cls.model_construct(type="null", value=None)
        if isinstance(value, bool):
            return cls.model_construct(type="bool", value=value)
        if isinstance(value, int):
            return cls.model_construct(type="int", value=int(value))
        if isinstance(value, float):
            return cls.model_construct(type="float", value=float(value))
        if isinstance(value, str):
            return cls.model_construct(type="str", value=str(value))
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
            return cls.model_construct(type="list", value=[cls.of(v) for v in value])
        if isinstance(value, Mapping):
            return cls.model_construct(type="list", value=[cls.of([k, v]) for k, v in value.items()])
        return cls.model_construct(type="repr", value=repr(value)[:4096])

    def __eq__(self, other: object) -> bool:
        """Equal in type and value, also across the open and the closed class; NaN equals NaN."""
        if not isinstance(other, Scalar) or self.type != other.type:
            return False
        if self.type == "float":
            return bool(float_to_json(self.value) == float_to_json(other.value))
        return bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    def plain(self) -> Any:
        """Return the Python value again (`None` for `masked`)."""
        if self.type == "list" and isinstance(self.value, list):
            return [v.plain() for v in self.value]
        if self.type == "float" and self.value is not None:
            return float(self.value)
        return self.value

    def text(self) -> str:
        """Return the value as a person would read it."""
        if self.type == "masked":
            return "(masked)"
        if self.type == "null":
            return "none"
        if self.type == "list" and isinstance(self.value, list):
            return "[" + ", ".join(v.text() for v in self.value) + "]"
        if self.type == "float":
            return f"{self.plain():.8g}"
        return str(self.value)


MASKED = Scalar(type="masked")
