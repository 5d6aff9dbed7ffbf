"""Reading a value as people write it: `2.5`, `wd .05, beta2 .98`, `13251-14000`, `48 nodes`, `V100 | A100`.

What can be read becomes a tagged scalar with the concept it belongs to; the rest stays text. Nothing is lost: the
texts of all parts together are the text that was given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from .._base import Scalar
from .model import Concept

NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(NUMBER)
_RANGE = re.compile(rf"({NUMBER})\s*(?:-|\u2013|\.\.|\bto\b)\s*({NUMBER})")
_VALUE_FIRST = re.compile(rf"({NUMBER})\s*(x\b|%)?\s*(.*)", re.S)
_NAME_FIRST = re.compile(
    rf"([A-Za-z][\w\- ]*?)(?:\s*[:=]\s*|\s+)({NUMBER}|true|false|on|off)\s*(%|[A-Za-z]+)?", re.I
)
_SWITCH = {"true": True, "on": True, "false": False, "off": False}
_CLAUSES = re.compile(r"\s*[;,]\s+|\s+\+\s+|\s+and\s+")
_NONE = frozenset(("", "none", "off", "null", "disabled", "unset", "n/a", "-"))


@dataclass(frozen=True)
class Part:
    """One statement in a value that a person wrote."""

    text: str
    value: Scalar
    unit: str | None = None
    """what the number counts or is a share of, in the words of the text: "nodes", "x initial", "range" """
    concept: str | None = None
    """the concept that the text names beside the value, where it names one"""


def number_of(text: str) -> float | int | None:
    """Read a whole text as a number: 1e-4, 9_765_625, 1,024, .05, NaN; None where it is not one."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        plain = text.replace("_", "").replace(",", "")
        if plain.lstrip("+-").isdigit() and len(plain) <= 40:
            return int(plain)
        value = float(plain)
        return None if math.isinf(value) else value  # 93e9307 is a commit
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    return None


def read_value(text: str, find: Callable[[str], Concept | None]) -> list[Part]:
    """Read a value that a person wrote, clause by clause. `find` looks up what a clause names."""
    text = text.strip()
    if text.lower() in _NONE:
        return [Part(text, Scalar.of(None))]
    if "|" in text:
        options = [o.strip() for o in text.split("|")]
        return [Part(text, Scalar.of([_plain(o) for o in options]), "alternatives")]
    ranges = _ranges(text)
    if ranges:
        return [Part(text, Scalar.of(ranges), "range")]
    return [_clause(c.strip(), find) for c in _CLAUSES.split(text) if c.strip()]


def _ranges(text: str) -> list[list[float | int]] | None:
    """One or more ranges and nothing else: `13251-14000 + 16652-18500`."""
    parts = [_RANGE.fullmatch(p.strip()) for p in re.split(r"[+,;]|\band\b", text)]
    if not all(parts):
        return None
    return [[number_of(p[1]) or 0, number_of(p[2]) or 0] for p in parts if p is not None]


def _clause(text: str, find: Callable[[str], Concept | None]) -> Part:
    whole = number_of(text)
    if whole is not None:
        return Part(text, Scalar.of(whole))
    first = _VALUE_FIRST.fullmatch(text)
    if first and not first[3].startswith(("-", "/", ".", "_")):
        rest = " ".join(p for p in (first[2], first[3].strip()) if p)
        known = find(rest) if rest else None
        plain = rest.replace(" ", "").isalpha() or known is not None or first[2] is not None
        if plain:
            return Part(text, _scalar(first[1]), rest, known.id if known else None)
    named = _NAME_FIRST.fullmatch(text)
    if named:
        known = find(named[1].strip())
        if known is not None:
            return Part(text, _scalar(named[2]), named[3], known.id)
    return Part(text, Scalar.of(text))


def _plain(text: str) -> float | int | str:
    found = number_of(text)
    return text if found is None else found


def _scalar(text: str) -> Scalar:
    return Scalar.of(_SWITCH.get(text.lower(), number_of(text)))
