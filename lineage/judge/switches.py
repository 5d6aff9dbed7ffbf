"""Keys that are without effect: those of a section that is switched off, those that another key stands above.

`fp16.initial_scale_power` sets nothing while `fp16.enabled` is off. What the switch is set to must be known: where a
framework works it out when it runs, its keys count as in effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from .values import close, normal

if TYPE_CHECKING:
    from .asked import Asked, Entry

_OFF = (None, False, 0.0, "no", "off", "disable", "disabled", "never")
_SWITCHES = ("enabled", "enable")
"""Keys that switch the section they stand in."""


def without_effect(entry: Entry, asked: Asked) -> str | None:
    """Return why a key sets nothing in its config ("fp16.enabled is off"), or None where it does or may."""
    key = schemas.plain_key(entry.key)
    section = _own_section(key, asked)
    if section is not None:
        return f"{section} is off"
    row = entry.meaning.key if entry.meaning else None
    conditions = [row.when] if row is not None and row.when else []
    conditions += _of_sections(key, asked)
    for text in conditions:
        condition = schemas.Condition.read(text)
        if _holds(condition, key, asked) is False:
            return _words(condition)
    return None


def _own_section(key: str, asked: Asked) -> str | None:
    """The switch of a section that the key stands in, where it is off: `ema.enabled` of `ema.decay`."""
    parts = key.split(".")
    for i in range(len(parts) - 1, 0, -1):
        for name in _SWITCHES:
            switch = ".".join([*parts[:i], name])
            held = asked.keys.get(switch)
            if switch != key and held is not None and held.normal is False:
                return switch
    return None


def _of_sections(key: str, asked: Asked) -> list[str]:
    """The conditions of the sections of its framework that a key stands in, but for the switch itself."""
    out = []
    for id_ in asked.frameworks:
        for section, text in schemas.catalogue().frameworks[id_].when:
            switch = schemas.Condition.read(text).key
            inside = f".{key}".find(f".{section}.") >= 0
            if inside and not f".{key}".endswith(f".{switch}"):
                out.append(text)
    return out


def _holds(condition: schemas.Condition, key: str, asked: Asked) -> bool | None:
    known, value = _value(condition.key, key, asked)
    if not known:
        return None
    if condition.values:
        wanted = [normal(schemas.Scalar.of(v)) for v in condition.values]
        held = value if isinstance(value, tuple) else (value,)
        on = any(close(_lower(h), w) for h in held for w in wanted)
    else:
        on = not any(value is o or (value == o and type(value) is type(o)) for o in _OFF)
    return not on if condition.negated else on


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _value(switch: str, key: str, asked: Asked) -> tuple[bool, Any]:
    """What a switch is set to, and whether that is known."""
    if switch.startswith("."):  # a neighbour in the same section, which is off where it is not stated
        held = asked.keys.get(key.rpartition(".")[0] + switch)
        return (True, None) if held is None else (not (held.open or held.derived), held.normal)
    meaning = schemas.catalogue().meaning(switch, asked.frameworks)
    if meaning is None:
        held = asked.keys.get(switch)
        return (False, None) if held is None else (not (held.open or held.derived), held.normal)
    place = (meaning.concept.id, meaning.setting)
    entries = asked.settings.get(place, [])
    if entries:
        return not any(e.open or e.derived for e in entries), entries[0].normal
    held_by_default = asked.default(*place)
    return held_by_default is not None, normal(held_by_default)


def _words(condition: schemas.Condition) -> str:
    name = condition.key.lstrip(".")
    if not condition.values:
        return f"{name} is {'set' if condition.negated else 'off'}"
    return f"{name} is {'' if condition.negated else 'not '}{' or '.join(condition.values)}"
