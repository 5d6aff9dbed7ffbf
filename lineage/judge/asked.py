"""What one config asks for, in the catalogue's terms: each key with its concept, setting and normalised value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._rooms import schemas
from .blend import blend
from .command import expand
from .interpolation import resolve, unresolved
from .switches import without_effect
from .values import normal

Setting = tuple[str, str]
"""(concept, setting)"""


@dataclass(frozen=True)
class Entry:
    """One key of a config."""

    key: str
    value: schemas.Scalar
    normal: Any
    meaning: schemas.Meaning | None
    derived: bool = False
    """it states nothing: the framework works the value out"""
    open: bool = False
    """it refers to something that the config does not hold"""
    keeps: bool = False
    """it leaves things as they are"""

    @property
    def unit(self) -> str:
        """In what a batch size counts."""
        return self.meaning.key.unit if self.meaning and self.meaning.key else "samples"


@dataclass
class Asked:
    """A config, read."""

    frameworks: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    possible: Mapping[str, schemas.Versions] = field(default_factory=dict)
    """framework -> the versions that have all the keys of the config"""
    settings: dict[Setting, list[Entry]] = field(default_factory=dict)
    unknown: dict[str, Entry] = field(default_factory=dict)
    keys: dict[str, Entry] = field(default_factory=dict)
    """plain key -> what stands there, whether it is known or not"""
    idle: dict[str, str] = field(default_factory=dict)
    """key -> why it sets nothing here: the switch that is off"""

    def entries(self, concept: str, setting: str = "") -> list[Entry]:
        """The keys that state a setting; those that leave it to the framework do not."""
        return [e for e in self.settings.get((concept, setting), ()) if not e.derived and not e.keeps]

    def left(self, concept: str, setting: str = "") -> list[Entry]:
        """The keys that leave a setting to the framework ("auto") or as it was."""
        return [e for e in self.settings.get((concept, setting), ()) if e.derived or e.keeps]

    def stated(self, concept: str, setting: str = "") -> Any:
        """The normal form of a setting: as stated, else the framework's default, else None."""
        found = self.entries(concept, setting)
        if found:
            return None if found[0].open else found[0].normal
        held = self.default(concept, setting)
        return normal(held) if held is not None else None

    def default(self, concept: str, setting: str) -> schemas.Scalar | None:
        """The default of a setting in the framework that the config belongs to, where it is known.

        A setting that the config leaves to be worked out ("auto") is not at its default.
        """
        if self.left(concept, setting):
            return None
        found = schemas.catalogue().default(concept, setting, self.frameworks, self.versions, self.possible)
        if found is None:
            return None
        value = schemas.Scalar.of(None if found[0] in found[1].none else found[0])
        # A default that says "worked out by the framework" states nothing.
        return None if normal(value) in [normal(schemas.Scalar.of(d)) for d in found[1].derived] else value

    def without(self, section: str, framework: str) -> bool:
        """Tell whether a config has nothing in a section: it says none there, or the section is off by default."""
        held = self.keys.get(section)
        if held is not None:
            return held.normal is None and not held.derived and not held.open
        if framework not in self.frameworks or not schemas.catalogue().off_by_default(section, framework):
            return False
        mine = (
            e.meaning.key.name for side in self.settings.values() for e in side if e.meaning and e.meaning.key
        )
        return not any(name.startswith(f"{section}.") for name in mine)

    def number(self, concept: str, setting: str = "") -> float | None:
        """A setting as a number, or None."""
        value = self.stated(concept, setting)
        return value if isinstance(value, float) else None


def read(
    configs: Iterable[schemas.Config | None], versions: Iterable[Mapping[str, str]] = ()
) -> list[Asked | None]:
    """Read configs of one program, each in the light of all: what one leaves out another may state.

    `versions` are the installed packages beside each config, for defaults that changed between versions.
    """
    given = list(configs)
    known = [*versions, *({} for _ in given)]
    resolved = [resolve(expand(c.values)) if c is not None else None for c in given]
    keys = {k for r in resolved if r is not None for k in r[0]}
    frameworks = schemas.catalogue().frameworks_of(keys)
    out: list[Asked | None] = []
    cache: dict[str, schemas.Meaning | None] = {}
    for found, packages in zip(resolved, known, strict=False):
        out.append(None if found is None else _read(*found, frameworks, packages, cache))
    return out


def _read(
    values: Mapping[str, schemas.Scalar],
    used: frozenset[str],
    frameworks: tuple[str, ...],
    versions: Mapping[str, str],
    cache: dict[str, schemas.Meaning | None],
) -> Asked:
    catalogue = schemas.catalogue()
    for key in values:
        if key not in cache:
            cache[key] = catalogue.meaning(key, frameworks)
    rows = [m.key for k in values if (m := cache[k]) is not None and m.key is not None]
    possible = {f: schemas.Versions.of(r for r in rows if r.framework == f) for f in frameworks}
    asked = Asked(frameworks, versions, possible)
    present = {m.concept.id for k in values if (m := cache[k]) is not None}
    for key, value in values.items():
        meaning = cache[key]
        if catalogue.depends(key):  # what else the config has decides what the key means
            meaning = catalogue.meaning(key, frameworks, present)
        entry = _entry(key, value, meaning)
        asked.keys.setdefault(schemas.plain_key(key), entry)
        if key in used and (entry.meaning is None or key.startswith("env:")):
            continue  # a variable: the keys that refer to it say it
        if entry.meaning is None:
            asked.unknown[key] = entry
        else:
            place = (entry.meaning.concept.id, entry.meaning.setting)
            asked.settings.setdefault(place, []).append(entry)
    known = [e for entries in asked.settings.values() for e in entries]
    why = {e.key: without_effect(e, asked) for e in (*known, *asked.unknown.values())}
    asked.idle = {k: w for k, w in why.items() if w is not None}
    for place, entries in asked.settings.items() if asked.idle else ():
        asked.settings[place] = [e for e in entries if e.key not in asked.idle]
    asked.unknown = {k: e for k, e in asked.unknown.items() if k not in asked.idle}
    return asked


def form_of(value: schemas.Scalar, concept: schemas.Concept | None, row: schemas.Key | None = None) -> Any:
    """The normal form of a value; what means none in a concept, such as a dropout of 0, is None."""
    form = normal(value)
    if row is not None and row.values:
        form = normal(schemas.Scalar.of(row.present(list(form) if isinstance(form, tuple) else form)))
    if concept is None:
        return form
    if concept.id == "data_mix":
        return blend(form)
    none = (*concept.off, *(normal(schemas.Scalar.of(v)) for v in (row.none if row else ())))
    return None if isinstance(form, float) and form in none else form


def _entry(key: str, value: schemas.Scalar, meaning: schemas.Meaning | None) -> Entry:
    row = meaning.key if meaning else None
    form = form_of(value, meaning.concept if meaning else None, row)
    if row is not None and row.negates and isinstance(form, bool):
        form, value = not form, schemas.Scalar.of(not form)
    warmup = meaning is not None and (meaning.concept.id, meaning.setting) == ("warmup", "")
    if meaning is not None and warmup and isinstance(form, float) and 0 < form < 1:
        meaning = schemas.Meaning(meaning.concept, "fraction", row)  # below one step: a share of the run
    derived, keeps = (
        row is not None and any(form == normal(schemas.Scalar.of(v)) for v in values)
        for values in ((row.derived, row.keeps) if row is not None else ((), ()))
    )
    return Entry(key, value, form, meaning, derived, unresolved(value), keeps)
