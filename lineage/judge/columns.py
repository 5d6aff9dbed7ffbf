"""Two states side by side: what each asked for and what was in effect, concept by concept, noise apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .conditions import Conditions
from .drift import Side, requested_only
from .environment import SWITCH_CONCEPTS
from .values import same

Kind = Literal[
    "differs",
    "one_sided",
    "bitwise",
    "operational",
    "names",
    "one_sided_noise",
    "equal",
    "equal_unclassified",
]
"""differs: of a class that bears on results, or unclassified; one_sided: such a one, and only one side shows it.
The other kinds are noise and may be folded."""

SHOWN: tuple[Kind, ...] = ("differs", "one_sided")

FOLDED: dict[Kind, str] = {
    "bitwise": "bitwise only",
    "operational": "operational",
    "names": "names, paths and logging",
    "one_sided_noise": "on record on one side only",
    "equal": "equal",
    "equal_unclassified": "unclassified and equal",
}
"""What the folded kinds are called, in the order in which they are counted."""

MOST_NAMES = 6


@dataclass(frozen=True)
class Row:
    """One concept (or one key that no concept is known for) on both sides. None: not recorded there."""

    kind: Kind
    concept: str
    title: str
    cls: schemas.ConceptClass
    a_requested: str | None
    a_effective: str | None
    b_requested: str | None
    b_effective: str | None
    note: str = ""
    a_source: str | None = None
    """id of the record that A's value was read from"""
    b_source: str | None = None


def rows(a: Conditions, b: Conditions, drift: schemas.Drift) -> list[Row]:
    """All rows: those that differ first, by class and title.

    `drift` is what was found to differ between the two; it decides which row is which.
    """
    catalogue = schemas.catalogue()
    changed = {c.concept: c for c in drift.changes}
    keys = _keys(a.side, b.side)
    out = [_row(c.concept, c, keys.get(c.concept, []), a, b, drift) for c in drift.changes]
    out += [_unclassified(c, a, b) for c in drift.unclassified]
    told = {c.keys[0] for c in drift.unclassified if c.keys}
    for concept in sorted({*keys, *_held(a.side), *_held(b.side)} - {*changed, ""}):
        if catalogue.concept(concept).noise and _requested_differs(a.side, b.side, keys.get(concept, [])):
            out.append(_names(concept, keys[concept], a, b))
        else:
            out.append(_row(concept, None, keys.get(concept, []), a, b, drift))
    for key in keys.get("", []):
        if key not in told:
            out.append(_equal_key(key, a, b))
    out += _surroundings(a, b, changed)
    order = {"R": 0, "C": 1, "H": 2, "unclassified": 3, "B": 4, "O": 5}
    kinds = [*SHOWN, *FOLDED]
    return sorted(out, key=lambda r: (kinds.index(r.kind), order[r.cls], r.title, r.concept))


def folded(found: Sequence[Row]) -> list[tuple[Kind, int]]:
    """How many rows there are of each kind that is folded."""
    counted = [(kind, sum(r.kind == kind for r in found)) for kind in FOLDED]
    return [(kind, n) for kind, n in counted if n]


def _keys(a: Side, b: Side) -> dict[str, list[str]]:
    """concept -> the config keys that carry it on either side; "" for keys that no concept is known for."""
    catalogue = schemas.catalogue()
    out: dict[str, list[str]] = {}
    names = sorted({*(a.config.values if a.config else ()), *(b.config.values if b.config else ())})
    frameworks = catalogue.frameworks_of(names)
    for key in names:
        concept = catalogue.of_key(key, frameworks)
        out.setdefault(concept.id if concept else "", []).append(key)
    return out


def _held(side: Side) -> set[str]:
    return set(side.effective.values) if side.effective else set()


def _requested_differs(a: Side, b: Side, keys: Sequence[str]) -> bool:
    return any(not same(_asked(a, k), _asked(b, k)) for k in keys)


def _asked(side: Side, key: str) -> schemas.Scalar | None:
    return side.config.values.get(key) if side.config else None


def _row(
    concept: str,
    change: schemas.Change | None,
    keys: Sequence[str],
    a: Conditions,
    b: Conditions,
    drift: schemas.Drift,
) -> Row:
    known = schemas.catalogue().concept(concept)
    cls = change.cls if change else known.cls
    differing = [k for k in keys if not same(_asked(a.side, k), _asked(b.side, k))] or list(keys)
    held_a, held_b = a.side.value(concept), b.side.value(concept)
    effective: tuple[str | None, str | None] = (
        held_a.value.text() if held_a else None,
        held_b.value.text() if held_b else None,
    )
    if change is not None and (change.effective_before is not None or change.effective_after is not None):
        effective = _text(change.effective_before), _text(change.effective_after)
    if concept in ("software", "code") or concept in SWITCH_CONCEPTS.values() or concept == "fused_kernels":
        effective = _words(concept, change, a.side, b.side) or effective
    note = ""
    if change is not None and requested_only(change):
        note = "asked for, not in effect"
    elif concept in drift.not_shown:
        note = f"not shown: {drift.not_shown[concept]}"
    elif change is not None and concept == "param_groups":
        note = change.text.removeprefix(f"{change.title}: ")  # who moved: the values are lists of names
    read = held_a is not None or held_b is not None or not keys
    sources = [c.source(concept, read) for c in (a, b)]
    asked = _requested(a.side, differing), _requested(b.side, differing)
    kind = _kind(change, concept)
    if kind == "equal" and _one_sided(asked, effective):
        kind = "one_sided" if cls in ("R", "C") else "one_sided_noise"
        note = "only B shows it" if asked[0] is None and effective[0] is None else "only A shows it"
    return Row(
        kind=kind,
        concept=concept,
        title=_title(concept),
        cls=cls,
        a_requested=asked[0],
        a_effective=effective[0],
        b_requested=asked[1],
        b_effective=effective[1],
        note=note,
        a_source=sources[0].id if sources[0] else None,
        b_source=sources[1].id if sources[1] else None,
    )


def _one_sided(asked: tuple[str | None, str | None], effective: tuple[str | None, str | None]) -> bool:
    """Whether one side shows nothing of a concept that the other has; live values on both sides are enough."""
    if None not in effective:
        return False
    return all(x is None for x in (asked[0], effective[0])) != all(
        x is None for x in (asked[1], effective[1])
    )


def _title(concept: str) -> str:
    """A concept in words; `optimizer.nesterov` says which part of the optimizer is meant."""
    known = schemas.catalogue().concept(concept)
    if known.id in ("unclassified", concept):
        return concept if known.id == "unclassified" else known.title
    return f"{known.title} ({concept.removeprefix(known.id + '.')})"


def _kind(change: schemas.Change | None, concept: str) -> Kind:
    if change is None:
        return "equal"
    if schemas.catalogue().concept(concept).noise:
        return "names"
    return {"B": "bitwise", "O": "operational"}.get(change.cls, "differs")  # type: ignore[return-value]


def _words(
    concept: str, change: schemas.Change | None, a: Side, b: Side
) -> tuple[str | None, str | None] | None:
    """Software, switches and code, by what differs: their digests would tell a person nothing."""
    if change is None:
        return None
    if concept == "code":
        return _code(a.code), _code(b.code)
    if a.environment is None or b.environment is None:
        return None
    if concept == "software":
        one, two = _installed(a.environment), _installed(b.environment)
    else:
        one, two = (
            {k: v.text() for k, v in e.switches.items() if _switch(k) == concept}
            for e in (a.environment, b.environment)
        )
    names = [n for n in sorted({*one, *two}) if one.get(n) != two.get(n)]
    if not names:
        return None
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    shown = names[:MOST_NAMES]
    left, right = (", ".join(f"{n} {side.get(n, 'none')}" for n in shown) + more for side in (one, two))
    return left, right


def _switch(name: str) -> str:
    return next((c for part, c in SWITCH_CONCEPTS.items() if part in name.lower()), "fused_kernels")


def _installed(e: schemas.Environment) -> dict[str, str]:
    return {"python": e.python, **e.builds, **e.packages, **e.variables}


def _code(code: schemas.CodeState | None) -> str | None:
    if code is None:
        return None
    if not code.repository:
        return "no repository"
    dirty = f", {code.diff_bytes:,} bytes uncommitted" if code.dirty else ""
    return f"{(code.revision or 'no revision')[:10]}{dirty}"


def _requested(side: Side, keys: Sequence[str]) -> str | None:
    """What a config asks for: the bare value of a single key, else `key=value` of each."""
    if side.config is None:
        return None
    found = [(k, side.config.values[k].text()) for k in keys if k in side.config.values]
    if len(keys) == 1:
        return found[0][1] if found else None
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return ", ".join(f"{k}={v}" for k, v in found[:MOST_NAMES]) + more if found else None


def _text(value: schemas.Scalar | None) -> str | None:
    return None if value is None else value.text()


def _unclassified(change: schemas.Change, a: Conditions, b: Conditions) -> Row:
    source_a, source_b = a.source("", False), b.source("", False)
    return Row(
        kind="differs",
        concept="unclassified",
        title=_title(change.title),
        cls="unclassified",
        a_requested=_text(change.requested_before),
        a_effective=None,
        b_requested=_text(change.requested_after),
        b_effective=None,
        a_source=source_a.id if source_a else None,
        b_source=source_b.id if source_b else None,
    )


def _names(concept: str, keys: Sequence[str], a: Conditions, b: Conditions) -> Row:
    differing = [k for k in keys if not same(_asked(a.side, k), _asked(b.side, k))]
    known = schemas.catalogue().concept(concept)
    left, right = _requested(a.side, differing), _requested(b.side, differing)
    return Row("names", concept, known.title, known.cls, left, None, right, None)


def _equal_key(key: str, a: Conditions, b: Conditions) -> Row:
    left, right = _requested(a.side, [key]), _requested(b.side, [key])
    if left != right and not same(_asked(a.side, key), _asked(b.side, key)):
        note = "it sets nothing of itself"  # a variable that others refer to, or a key whose switch is off
        return Row("names", "unclassified", key, "unclassified", left, None, right, None, note)
    return Row("equal_unclassified", "unclassified", key, "unclassified", left, None, right, None)


def _surroundings(a: Conditions, b: Conditions, changed: dict[str, schemas.Change]) -> list[Row]:
    """Code, software and hardware where they are recorded on both sides and equal."""
    out = []
    one, two = a.side, b.side
    if "code" not in changed and one.code is not None and two.code is not None:
        out.append(_plain("code", _code(one.code), _code(two.code)))
    if one.environment is None or two.environment is None:
        return out
    if "software" not in changed:
        words = [f"python {e.python}, {len(e.packages)} packages" for e in (one.environment, two.environment)]
        out.append(_plain("software", *words))
    if "hardware" not in changed:
        names = [
            ", ".join(d.name for d in e.devices) or "no accelerator"
            for e in (one.environment, two.environment)
        ]
        out.append(_plain("hardware", *names))
    return out


def _plain(concept: str, left: str | None, right: str | None) -> Row:
    known = schemas.catalogue().concept(concept)
    return Row("equal", concept, known.title, known.cls, None, left, None, right)
