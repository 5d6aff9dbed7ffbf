"""Reading lines that this or another version wrote: open classes, and the raw bytes kept.

Readers are open where writers are closed. A newer addition is read without loss (its unknown fields and words
stay on the object, the raw line is kept word for word); an unknown MODEL is refused with a clear word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from ._base import Model
from .envelope import PAYLOADS, RECORD_SCHEMA, Envelope

_SCHEMA = re.compile(r"^lineage/record/(\d+)-(\d+)-(\d+)$")
_MODEL = int(_SCHEMA.match(RECORD_SCHEMA).group(1))  # type: ignore[union-attr]


class RecordError(ValueError):
    """A line cannot be read as a record. `kind` says why: bad_json, unknown_schema or invalid."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Opaque(BaseModel):
    """A payload of a kind that this version does not know; nothing of it is lost."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read: the envelope's fields, the payload, the raw line and where it stood."""

    id: str
    run: str
    segment: str
    rank: int
    step: int | None
    at: datetime
    mono: float
    seq: int
    prev: str | None
    payload: Any
    raw: bytes
    caused_by: tuple[str, ...] = ()
    supersedes: str | None = None
    facets: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    @property
    def kind(self) -> str:
        """The payload's kind, such as `checkpoint`."""
        return str(self.payload.kind)


@cache
def open_class(model: type[Model]) -> type[Model]:
    """Return the open twin of a closed model: unknown fields, and unknown words of an enum, kept at every depth."""
    fields = {name: (info, _opened(info.annotation)) for name, info in model.model_fields.items()}
    changed = {name: (info, new) for name, (info, new) in fields.items() if new != info.annotation}
    body: dict[str, Any] = {
        "__module__": model.__module__,
        "model_config": ConfigDict(extra="allow"),
        "__annotations__": {
            name: Annotated[(new, *info.metadata)] if info.metadata else new
            for name, (info, new) in changed.items()
        },
    }
    for name, (info, _) in changed.items():
        body[name] = _field(info)
    return type(model.__name__, (model,), body)


def _field(info: FieldInfo) -> Any:
    """The default and the alias of a field, for a model that declares it anew."""
    if info.default_factory is not None:
        return Field(default_factory=info.default_factory, alias=info.alias)
    return Field(default=info.default, alias=info.alias)


def _opened(annotation: Any) -> Any:
    """Replace every closed model inside an annotation by its open twin, and every enum by its type.

    A constant, such as `kind`, is no enum: another value there is another thing.
    """
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return open_class(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(_opened(arguments[0]), *arguments[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(_opened(a) for a in arguments)]  # noqa: UP007 - built at run time
    if origin is Literal and len(arguments) > 1:
        return Union[(annotation, *dict.fromkeys(map(type, arguments)))]
    if origin in (list, dict, tuple):
        return origin[tuple(_opened(a) for a in arguments)]
    return annotation


_BY_KIND = {m.model_fields["kind"].default: m for m in PAYLOADS}


def read_payload(data: dict[str, Any]) -> Any:
    """Read a payload by its kind; an unknown kind becomes `Opaque`."""
    kind = data.get("kind")
    model = _BY_KIND.get(kind) if isinstance(kind, str) else None
    if model is None:
        return Opaque.model_validate(data)
    try:
        return model.model_validate(data)
    except ValidationError:
        return open_class(model).model_validate(data)  # unknown fields of a newer addition


def read_line(raw: bytes, *, file: str = "", line: int = 0) -> Record:
    """Read one raw journal line.

    Raises `RecordError` with kind `bad_json`, `unknown_schema` or `invalid`; the text says what to do.
    """
    if len(raw) < _LARGE:
        return _read_line(raw, file, line)
    return replace(_read_large(raw), file=file, line=line)


_LARGE = 256 * 1024
"""Bytes from which on a line is kept as read: a process that reads its ledger several times parses a config of
100,000 values once."""


@lru_cache(maxsize=2)
def _read_large(raw: bytes) -> Record:
    return _read_line(raw, "", 0)


def _read_line(raw: bytes, file: str, line: int) -> Record:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise RecordError("bad_json", f"not JSON: {e}") from None
    if not isinstance(data, dict):
        raise RecordError("bad_json", "a JSON object is due on each line")
    schema = data.get("schema")
    match = _SCHEMA.match(schema) if isinstance(schema, str) else None
    if match is None:
        raise RecordError("unknown_schema", f"schema {schema!r} is none of ours (lineage/record/...)")
    if int(match.group(1)) != _MODEL:
        raise RecordError(
            "unknown_schema",
            f"schema {schema} has major version {match.group(1)}; this version reads {_MODEL}. "
            "Install the runlineage release that wrote it, or a newer one. Nothing was changed.",
        )
    if not isinstance(data.get("payload"), dict):
        raise RecordError("invalid", "payload: a JSON object is due here")
    try:
        payload = read_payload(data["payload"])
        head: Any = _head_class().model_validate({k: v for k, v in data.items() if k != "payload"})
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise RecordError("invalid", f"{where}: {first['msg']}") from None
    return Record(
        id=head.id,
        run=head.run,
        segment=head.segment,
        rank=head.rank,
        step=head.step,
        at=head.at,
        mono=head.mono,
        seq=head.seq,
        prev=head.prev,
        payload=payload,
        raw=raw,
        caused_by=tuple(head.caused_by),
        supersedes=head.supersedes,
        facets=head.facets,
        file=file,
        line=line,
    )


@cache
def _head_class() -> type[BaseModel]:
    """The envelope without its payload, open: what every line of this MODEL has, whatever it carries."""
    fields: dict[str, Any] = {
        name: (
            Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation,
            _field(info),
        )
        for name, info in Envelope.model_fields.items()
        if name != "payload"
    }
    return create_model("EnvelopeHead", __config__=ConfigDict(extra="allow", populate_by_name=True), **fields)
