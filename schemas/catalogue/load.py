"""Reading the catalogue's tables: shipped, then a site's, then a run's. What is wrong in one is said."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..judgements import Status
from .lookup import Catalogue
from .model import Claim, Concept, Effects, Framework, Key, Override, Pattern

_HERE = Path(__file__).parent
_CLASSES = ("R", "C", "B", "O", "H")
_STATUSES: tuple[Status, ...] = ("holds", "caveat", "broken")


class CatalogueError(ValueError):
    """A table of the catalogue that cannot be read; the message says which one, what is wrong, what is due."""


def build(*tables: Mapping[str, Any], sources: Iterable[str] = ()) -> Catalogue:
    """Build a catalogue from tables; the first defines, later ones add concepts and keys, and override cells.

    A table has `claim`, `concept`, `framework` with `keys` (shipped), or `concept`, `key` and `policy` (added).
    `sources` names the tables, for messages and for the record of overrides. Raises `CatalogueError`.
    """
    names = [*sources, *(f"table {i + 1}" for i in range(len(tables)))][: len(tables)]
    concepts: dict[str, Concept] = {}
    claims: dict[str, Claim] = {}
    frameworks: dict[str, Framework] = {}
    keys: list[Key] = []
    overrides: list[Override] = []
    patterns: list[Pattern] = []
    for table, source in zip(tables, names, strict=True):
        for row in table.get("claim", ()):
            claims[row["id"]] = Claim(
                row["id"], row["title"], tuple(row.get("needs", ())), bool(row.get("flags", True))
            )
        for row in table.get("concept", ()):
            concept, own = _concept(row, claims, concepts, source)
            concepts[concept.id] = concept
            keys += own
            patterns += [Pattern(glob, concept.id) for glob in row.get("patterns", ())]
        for group in table.get("frameworks", ()):
            framework = _framework(group["framework"], group.get("when", {}), source)
            frameworks[framework.id] = framework
            told = group.get("patterns", {})
            patterns += [Pattern(glob, c, framework.id) for c, globs in told.items() for glob in globs]
            keys += _framework_keys(framework.id, group.get("keys", {}))
        keys += [_key(row, source) for row in table.get("key", ())]
        for row in table.get("policy", ()):
            override = _override(row, concepts, claims, source)
            overrides.append(override)
            held = concepts[override.concept]
            effects = {**held.overrides, override.claim: override.status}
            concepts[override.concept] = replace(held, overrides=effects)
    for key in keys:
        if key.concept not in concepts:
            known = ", ".join(sorted(concepts))
            raise CatalogueError(f"the key {key.name} names the concept {key.concept!r}; known are: {known}")
    for pattern in patterns:
        named = concepts.get(pattern.concept)
        if named is None or not named.noise:
            raise CatalogueError(
                f"the pattern {pattern.glob} stands under {pattern.concept!r}: only a concept that has no part in "
                "the update (noise = true) may take keys by a pattern"
            )
    sha = hashlib.sha256(b"lineage-policy-v2\n")
    told_in_order = sorted(map(repr, (*keys, *patterns)))
    for part in (*concepts.values(), *told_in_order, *frameworks.values(), *claims.values()):
        sha.update(f"{part if isinstance(part, str) else repr(part)}\n".encode())
    return Catalogue(
        concepts=concepts,
        claims=claims,
        frameworks=frameworks,
        keys=tuple(keys),
        overrides=tuple(overrides),
        patterns=tuple(patterns),
        digest="sha256:" + sha.hexdigest(),
    )


def _concept(
    row: Mapping[str, Any], claims: Mapping[str, Claim], known: Mapping[str, Concept], source: str
) -> tuple[Concept, list[Key]]:
    for name in ("id", "title", "class", "reason"):
        if not isinstance(row.get(name), str):
            raise CatalogueError(f"{source}: a concept ({row.get('id', row)}) needs {name!r} as text")
    id_ = row["id"]
    if id_ in known:
        raise CatalogueError(
            f"{source}: the concept {id_} is there already. Add keys to it with [[key]], and set what a change "
            "of it does with [[policy]], which asks for who and why"
        )
    otherwise = row.get("otherwise")
    concept = Concept(
        id=id_,
        title=row["title"],
        cls=row["class"],
        reason=row["reason"],
        breaks=tuple(row.get("breaks", ())),
        caveats=tuple(row.get("caveats", ())),
        condition=row.get("condition"),
        otherwise=_effects(otherwise) if otherwise else None,
        noise=bool(row.get("noise", False)),
        numeric=bool(row.get("numeric", False)),
        ordered=bool(row.get("ordered", False)),
        off=tuple(row.get("off", ())),
        words=tuple(row.get("words", ())),
        under=tuple(row.get("under", ())),
        owns=tuple(row.get("owns", ())),
        top=tuple(row.get("top", ())),
    )
    for effects in (concept, concept.otherwise):
        if effects is None:
            continue
        if effects.cls not in _CLASSES:
            raise CatalogueError(f"{source}: {id_} has the class {effects.cls!r}; there are R, C, B, O and H")
        unknown = {*effects.breaks, *effects.caveats} - set(claims)
        if unknown:
            raise CatalogueError(
                f"{source}: concept {id_} names unknown claims {sorted(unknown)}; known: {sorted(claims)}"
            )
    keys = [Key(name, id_) for name in row.get("keys", ())]
    keys += [Key(n, id_, setting) for setting, names in row.get("settings", {}).items() for n in names]
    keys += [Key(name, id_, beside=other) for name, other in row.get("beside", {}).items()]
    return concept, keys


def _effects(row: Mapping[str, Any]) -> Effects:
    return Effects(row["class"], row["reason"], tuple(row.get("breaks", ())), tuple(row.get("caveats", ())))


def _framework(row: Mapping[str, Any], when: Mapping[str, str], source: str) -> Framework:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    fields["when"] = tuple(when.items())
    try:
        return Framework(**fields)
    except TypeError as e:
        raise CatalogueError(f"{source}: framework {row.get('id', '?')}: {e}") from None


def _framework_keys(framework: str, groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Key]:
    return [
        _key({**row, "key": name, "concept": concept, "framework": framework}, framework)
        for concept, rows in groups.items()
        for name, row in rows.items()
    ]


_FIELDS = frozenset(
    [
        "key",
        "concept",
        "setting",
        "framework",
        "default",
        "since",
        "until",
        "derived",
        "unit",
        "negates",
        "ranks",
        "open",
        "beside",
        "keeps",
        "none",
        "values",
        "when",
    ]
)


def _key(row: Mapping[str, Any], source: str) -> Key:
    unknown = set(row) - _FIELDS
    if unknown or "key" not in row or "concept" not in row:
        what = f"knows nothing of {sorted(unknown)}" if unknown else "needs 'key' and 'concept'"
        raise CatalogueError(f"{source}: the key {row.get('key', row)} {what}")
    rest = {k: v for k, v in row.items() if k not in ("key", "derived", "keeps", "none", "values")}
    return Key(
        name=row["key"],
        has_default="default" in row,
        derived=tuple(row.get("derived", ())),
        keeps=tuple(row.get("keeps", ())),
        none=tuple(row.get("none", ())),
        values=tuple(row.get("values", {}).items()),
        **rest,
    )


def _override(
    row: Mapping[str, Any], concepts: Mapping[str, Concept], claims: Mapping[str, Claim], source: str
) -> Override:
    for name in ("concept", "claim", "status", "who", "why"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise CatalogueError(f"{source}: an override of the policy needs {name!r} as text: {dict(row)}")
    if row["concept"] not in concepts or row["claim"] not in claims or row["status"] not in _STATUSES:
        raise CatalogueError(
            f"{source}: there is no cell {row['concept']} x {row['claim']} = {row['status']}; claims are "
            f"{', '.join(claims)}, and a status is one of {', '.join(_STATUSES)}"
        )
    was = concepts[row["concept"]].effect(row["claim"])
    return Override(row["concept"], row["claim"], row["status"], was, row["who"], row["why"], source)


@cache
def shipped_table() -> dict[str, Any]:
    """Return the shipped tables as one."""
    table = tomllib.loads((_HERE / "concepts.toml").read_text(encoding="utf-8"))
    files = sorted((_HERE / "frameworks").glob("*.toml"))
    return {**table, "frameworks": [tomllib.loads(f.read_text(encoding="utf-8")) for f in files]}


@cache
def shipped() -> Catalogue:
    """Return the shipped catalogue, without what a site or a run adds."""
    return build(shipped_table(), sources=["shipped"])


def extended(*layers: tuple[str, Mapping[str, Any]]) -> Catalogue:
    """Return the shipped catalogue with the tables of a site and of a run on top, each under its name.

    Raises `CatalogueError`.
    """
    return build(shipped_table(), *(t for _, t in layers), sources=["shipped", *(n for n, _ in layers)])


_installed: Catalogue | None = None


def catalogue() -> Catalogue:
    """Return the catalogue in use: the shipped one, unless `install` set another."""
    return _installed if _installed is not None else shipped()


def install(other: Catalogue | None) -> None:
    """Use another catalogue in this process from now on; None goes back to the shipped one."""
    global _installed
    _installed = other
