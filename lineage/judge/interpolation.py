"""References inside a config: `${optim.lr}`, `${oc.env:NAME}`, `$NAME` of a launch script's own variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .._rooms import schemas

_REFERENCE = re.compile(r"\$\{\s*(?:oc\.env\s*:\s*|env\s*:\s*)?([A-Za-z_][\w.]*)\s*\}|\$([A-Za-z_]\w*)")
_DEEPEST = 16


def resolve(values: Mapping[str, schemas.Scalar]) -> tuple[Mapping[str, schemas.Scalar], frozenset[str]]:
    """Put values in place of references to other keys of the same config.

    A variable of a launch script is a key `env:NAME`. What the config does not hold, and what refers to itself,
    keeps its own text. Returns the values, and the keys that others refer to.
    """
    with_reference = [k for k, v in values.items() if isinstance(v.value, str) and "$" in v.value]
    if not with_reference:
        return values, frozenset()
    used: set[str] = set()
    out = dict(values)
    for key in with_reference:
        out[key] = _resolved(values[key], values, used, (key,))
    return out, frozenset(used)


def unresolved(value: schemas.Scalar | None) -> bool:
    """Tell whether a value still refers to something that the config does not hold."""
    return (
        value is not None
        and isinstance(value.value, str)
        and _REFERENCE.search(value.value.strip()) is not None
    )


def _resolved(
    value: schemas.Scalar, values: Mapping[str, schemas.Scalar], used: set[str], path: tuple[str, ...]
) -> schemas.Scalar:
    if not isinstance(value.value, str) or "$" not in value.value or len(path) > _DEEPEST:
        return value
    text = value.value.strip()
    whole = _REFERENCE.fullmatch(text)
    if whole:
        found = _look_up(whole, values, path)
        if found is None:
            return value
        used.add(found)
        return _resolved(values[found], values, used, (*path, found))

    def put(match: re.Match[str]) -> str:
        found = _look_up(match, values, path)
        if found is None or values[found].type == "masked":
            return match[0]
        used.add(found)
        return _resolved(values[found], values, used, (*path, found)).text()

    made = _REFERENCE.sub(put, text)
    return schemas.Scalar.of(made) if made != text else value


def _look_up(match: re.Match[str], values: Mapping[str, schemas.Scalar], path: tuple[str, ...]) -> str | None:
    name = match[1] or match[2]
    for key in (name, f"env:{name}"):
        if key in values and key not in path:
            return key
    return None
