"""Capture of a config: flattened to dotted leaves, typed, masked, digested."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .._rooms import schemas
from . import canonical, plain, secrets, sources

DEEPEST = 64
"""Levels that are followed; what lies deeper is cut with a `repr` that says so."""
MOST = 100_000
"""Leaves that are kept; the rest is cut with a `repr` that counts them."""


def capture(source: object, argv: Sequence[str] | None = None, name: str | None = None) -> schemas.Config:
    """Read a config into its record.

    `source` is a dict, argparse.Namespace, dataclass, pydantic model, OmegaConf, wandb.config, an MLflow run,
    an object with `to_dict()`, or the path of a YAML, JSON or TOML file. `argv` is the command line to keep
    beside it. `name` says where it came from if the object does not show it, such as "mlflow" for a mapping
    of its params.

    Secrets are masked in keys, values and `argv` before the digest is made. Raises `TypeError` for an object
    that holds no config, `FileNotFoundError` and `ValueError` for a file that is missing or malformed.
    """
    kind, tree = sources.read(source)
    found = list(itertools.islice(leaves(tree), MOST + 1))
    values: dict[str, schemas.Scalar] = {}
    count = 0
    suspects = secrets.suspects([_beside(key, value) for key, value in found[:MOST]])
    for number, (key, value) in enumerate(found[:MOST]):
        if number not in suspects and _is_plain(value) and not secrets.is_secret_key(key):
            _put(values, canonical.text(key), plain.untouched(value))
            continue
        held, hit = plain.scalar(key, value) if not isinstance(value, _Cut) else (value.scalar(), False)
        shown, in_key = secrets.mask(canonical.text(key))
        count += hit or bool(in_key)
        _put(values, shown, held)
    if len(found) > MOST:
        values["..."] = schemas.Scalar(type="repr", value=f"<more than {MOST:,} values: cut>")
    masked_argv, _ = secrets.mask_argv([canonical.text(a) for a in argv or ()])
    return schemas.Config(
        source=name or kind,
        values=values,
        digest=canonical.digest({k: v.model_dump(mode="json") for k, v in values.items()}),
        masked=count,
        argv=masked_argv,
    )


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, float) or (type(value) is str and len(value) <= 512)


def _beside(key: str, value: object) -> str:
    """Return the text in which a secret of a plain value would be seen."""
    return f"{key}\n{key}={value}\n{value}" if type(value) is str and _is_plain(value) else key


def _put(values: dict[str, schemas.Scalar], key: str, held: schemas.Scalar) -> None:
    """Store a leaf. Two leaves may share a dotted name (`{"a.b": 1, "a": {"b": 2}}`): both are kept."""
    free, n = key, 2
    while free in values:
        if values[free] == held and held.type != "masked":
            return
        free, n = f"{key}#{n}", n + 1
    values[free] = held


class _Cut:
    """A place where a config was not followed further."""

    def __init__(self, why: str) -> None:
        self.why = why

    def scalar(self) -> schemas.Scalar:
        return schemas.Scalar(type="repr", value=f"<{self.why}: cut>")


class _Unread(_Cut):
    """A value that raised when it was read."""

    def scalar(self) -> schemas.Scalar:
        return schemas.Scalar(type="repr", value=f"<could not be read: {self.why}>")


def leaves(tree: object) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every leaf: mappings by key, lists of mappings by index.

    Lists of plain values are leaves. A config that contains itself is cut where it comes back to itself.
    """
    yield from _walk("", tree, {})


def _walk(key: str, value: object, above: dict[int, str]) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, str | int | float):
        yield key, value
        return
    try:
        entries = _entries(value)
    except Exception as error:  # an object of the user's may do anything when it is read
        if not key:
            raise
        yield key, _Unread(type(error).__name__)
        return
    if entries is None:
        yield key, value
    elif not entries and key:
        yield key, [] if isinstance(value, list | tuple) else _Empty()
    elif id(value) in above:
        yield key, _Cut(f"a cycle back to {above[id(value)] or 'the top'}")
    elif len(above) >= DEEPEST:
        yield key, _Cut(f"deeper than {DEEPEST} levels")
    else:
        above[id(value)] = key
        for name, child in entries:
            yield from _walk(f"{key}.{name}" if key else name, child, above)
        del above[id(value)]


class _Empty:
    """A section without entries."""

    def __repr__(self) -> str:
        return "{}"


def _entries(value: object) -> list[tuple[str, Any]] | None:
    """Return the children of a container, or None for a leaf."""
    found = sources.mapping_of(value)
    if found is not None:
        return [(_name(k), v) for k, v in found[1].items()]
    if type(value).__name__ == "ListConfig":
        value = list(value)  # type: ignore[call-overload]
    if isinstance(value, list | tuple):
        if not value:
            return []
        if any(_has_names(v) for v in value):
            return [(str(i), v) for i, v in enumerate(value)]
    return None


def _has_names(value: object, depth: int = 0) -> bool:
    if value is None or isinstance(value, str | int | float):
        return False
    if isinstance(value, list) and depth > 8:
        return True  # walk into it, so that a list within itself is cut
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return any(_has_names(v, depth + 1) for v in value)
    try:
        return sources.mapping_of(value) is not None
    except Exception:
        return True  # walk into the list, so that only this entry is lost


def _name(key: object) -> str:
    return key if isinstance(key, str) else plain.describe(key)
