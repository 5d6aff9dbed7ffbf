"""Reading the values that people write into logbooks: `1.0 x initial`, `64 (96 refused)`, `13251-14000`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .._rooms import schemas
from .values import close, normal, same, same_content
from .written import is_off, powers, same_text

_ASIDE = re.compile(r"\s*\([^()]*\)")
_ASKED = re.compile(r"^(?:requested|declared|planned|believed|assumed|intended)\b[: ]*(.*)$")
_HELD = re.compile(r"^(?:effective|actual|in effect|observed)\b[: ]*(.*)$")
_COURSE = re.compile(r"\b(?:ramp|ramping|ramp-?up|warm-?up|warming up)\b|\d\s*(?:to|->)\s*\d.*\bover\b")
_DYNAMIC = re.compile(r"\b(?:dynamic|static|fixed|constant|disabled|off|none)\b")
_RANGE = re.compile(r"(?<![\d.e])(\d{2,})\s*(?:-|\u2013|\.\.|to)\s*(\d{2,})(?![\d.])")
_COUNT = re.compile(r"(\d[\d,]*)\s*(?:x\s*)?(?:nodes?|gpus?|hosts?|slices?|devices?|ranks?|chips?)\b")
_COUNTED = re.compile(r"(?:^|[^a-z])(?:nnodes|nodes|gpus|hosts|slices|devices|ranks|chips)\b")
_SPARE = re.compile(r"spare|buffer|standby|exclud|remov|replac|refus")
_WORD = re.compile(r"[a-z][a-z_]*")


@dataclass(frozen=True)
class Range:
    """A range of steps or batches, both ends included."""

    first: int
    last: int


def plain_text(value: schemas.Scalar | None) -> str:
    """The value as lower-case text without remarks in parentheses, powers as numbers; empty where there is none."""
    if value is None or value.type == "null":
        return ""
    text = powers(value.text().strip().lower())
    bare = _ASIDE.sub("", text).strip()
    return re.sub(r"\s+", " ", bare or text)


def stated(value: schemas.Scalar | None) -> bool:
    """Tell whether the source gives a value at all."""
    return bool(plain_text(value))


_EVALUATION = re.compile(r"\b(?:for|in|at|during) (?:eval|evaluation|inference)s? (?:only|alone)\b", re.I)


def equal(a: schemas.Scalar | None, b: schemas.Scalar | None) -> bool:
    """Tell whether two written values mean the same: numbers by value, text without remarks and spacing."""
    if same(a, b):
        return True
    x, y = plain_text(a), plain_text(b)
    return close(normal(schemas.Scalar.of(x)), normal(schemas.Scalar.of(y))) or same_text(x, y)


def same_mix(a: schemas.Scalar | None, b: schemas.Scalar | None) -> bool:
    """Tell whether two lists name the same sources: a person who lists them without weights names no order."""
    return same_content(normal(a), normal(b)) if a is not None and b is not None else False


def off(value: schemas.Scalar | None) -> bool:
    """Tell whether a value means that something is not in use."""
    return is_off(plain_text(value))


def asked_not_held(before: schemas.Scalar | None, after: schemas.Scalar | None) -> tuple[str, str] | None:
    """Return what was asked for and what is in effect, where the entry gives these two."""
    asked, held = _ASKED.match(plain_text(before)), _HELD.match(plain_text(after))
    return (asked[1], held[1]) if asked and held else None


def is_course(value: schemas.Scalar | None) -> bool:
    """Tell whether a value is the course of a schedule (a ramp, a warm-up), not a setting."""
    return bool(_COURSE.search(plain_text(value)))


def changes_mode(before: schemas.Scalar | None, after: schemas.Scalar | None) -> bool:
    """Tell whether two values name different ways to move (dynamic, fixed), so that somebody chose another."""
    modes = [set(_DYNAMIC.findall(plain_text(v))) for v in (before, after)]
    return modes[0] != modes[1]


def accelerators(value: schemas.Scalar | None) -> frozenset[str]:
    """The models of accelerators that a value names."""
    found = schemas.vocabulary().accelerators.findall(plain_text(value))
    return frozenset(m.replace(" ", "").replace("-", "") for m in found)


def device_counts(value: schemas.Scalar | None, name: str = "") -> frozenset[int]:
    """How many nodes or devices a value names; empty for spare or excluded ones, which share no work.

    A bare number counts where the name of the setting says what is counted (`nodes`, `num_gpus`).
    """
    text = plain_text(value)
    if text.isdigit() and _COUNTED.search(name.lower()):
        return frozenset({int(text)})
    if _SPARE.search(text):
        return frozenset()
    return frozenset(int(n.replace(",", "")) for n in _COUNT.findall(text))


def only_operational(before: schemas.Scalar | None, after: schemas.Scalar | None) -> bool:
    """Tell whether a change concerns the operation of the job: each word that came or went, and one at least."""
    vocabulary = schemas.vocabulary()
    old, new = set(_words(before)), set(_words(after))
    return (old ^ new) <= vocabulary.operational | vocabulary.aside and bool(
        (old | new) & vocabulary.operational
    )


def for_evaluation(value: schemas.Scalar | None) -> bool:
    """Tell whether a remark beside a value says that it is for evaluation alone."""
    return bool(_EVALUATION.search(value.text() if value is not None else ""))


def _words(value: schemas.Scalar | None) -> Iterable[str]:
    return _WORD.findall(plain_text(value))


def ranges(value: schemas.Scalar | None) -> list[Range]:
    """All step ranges in a value, as written: `13251-14000 + 16652-18500` gives two."""
    if value is None or value.type != "str":
        return []
    return [Range(int(a), int(b)) for a, b in _RANGE.findall(plain_text(value))]


def range_problems(value: schemas.Scalar | None, restart_from: int | None) -> list[str]:
    """What is odd about skip ranges, each of them: reversed, overlapping, not after the state restarted from."""
    found = ranges(value)
    out = [f"the range {r.first}-{r.last} ends before it begins" for r in found if r.last < r.first]
    ordered = sorted((r for r in found if r.last >= r.first), key=lambda r: r.first)
    reach: Range | None = None  # of those before, the one that goes furthest
    for r in ordered:
        if reach is not None and r.first <= reach.last:
            shared = min(reach.last, r.last) - r.first + 1
            out.append(f"the ranges {reach.first}-{reach.last} and {r.first}-{r.last} overlap by {shared}")
        reach = r if reach is None or r.last > reach.last else reach
    if restart_from is not None:
        out += [
            f"the range {r.first}-{r.last} begins at or before the restart from {restart_from}: "
            f"{restart_from - r.first + 1} of its updates are already in that state"
            for r in dict.fromkeys(ordered)
            if r.first <= restart_from <= r.last
        ]
    return out
