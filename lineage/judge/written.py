"""When two values that people wrote mean the same: `4M tokens`, `4,000,000 tokens`; `TP 8, PP 4`, `PP 4, TP 8`."""

from __future__ import annotations

import re

from .._rooms import schemas

_OFF = frozenset({"none", "off", "unset", "no", "disabled", "null", "default"})
_UNCHANGED = frozenset({"same", "unchanged", "as before", "kept", "the same", "no change"})
_CLAUSE = re.compile(r"\s*(?:[,;](?!\d{3}\b)|\s\+\s|\band\b)\s*")
_NUMBER = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?")
_SCALED = re.compile(r"(\d[\d,_]*(?:\.\d+)?)\s*([kmbgt])\b")
_SCALE = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_UNITS = {"seqs": "sequences", "seq": "sequences", "sequence": "sequences", "toks": "tokens", "tok": "tokens"}
_SUPERSCRIPT = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a", "0123456789-+"
)
_MINUS = "\u2212"
_POWER = re.compile(
    r"(?<![\w.])(?:(?P<times>\d+(?:\.\d+)?)\s*[x*\u00d7\u00b7\u22c5]\s*)?10\s*"
    r"(?:(?:\^|\*\*)\s*[({]?\s*(?P<written>[+\-\u2212]?\d{1,3})\s*[)}]?"
    r"|(?P<raised>[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,3}))(?![\w.]\d)"
)
"""`10^-4`, `1 x 10**-4`, `3 \u00d7 10\u207b\u2074`"""


def powers(text: str) -> str:
    """Write powers of ten as numbers: `1 \u00d7 10^-4` as `1e-4`."""
    return _POWER.sub(_power, text)


def _power(found: re.Match[str]) -> str:
    exponent = found["written"] or found["raised"].translate(_SUPERSCRIPT)
    return f"{found['times'] or 1}e{int(exponent.replace(_MINUS, '-'))}"


def same_text(a: str, b: str) -> bool:
    """Tell whether two lower-case texts mean the same value: numbers with their units, clauses in any order."""
    if b in _UNCHANGED or _off(a) == _off(b):
        return True
    x, y = (sorted(_clause(c) for c in _CLAUSE.split(t) if c) for t in (a, b))
    return x == y or _bare(x, y) or _bare(y, x)


def is_off(text: str) -> bool:
    """Tell whether a text means that something is not in use."""
    return text in _OFF


def _off(text: str) -> str:
    return "off" if text in _OFF else text


def _number(found: re.Match[str]) -> str:
    """A number by its value; what is none as it stands: 93e9307 is a commit."""
    value = schemas.number_of(found[0])
    return found[0] if value is None else repr(float(value))


def _clause(text: str) -> str:
    """One clause in one form: numbers by value, no space before a unit, `x` for a product, `-` for a range."""
    text = _SCALED.sub(lambda m: repr(float(m[1].replace(",", "").replace("_", "")) * _SCALE[m[2]]), text)
    text = _NUMBER.sub(_number, text)
    text = re.sub(r"\s*[x*\u00d7]\s*(?=\d|$|\s)", " x ", text)
    text = re.sub(r"(\d)\s*(?:\u2013|\.\.|\bto\b|-)\s*(?=\d)", r"\1 - ", text)
    text = re.sub(r"(\d)(?=[a-z])", r"\1 ", text)
    return " ".join(_UNITS.get(w, w) for w in text.split())


def _bare(x: list[str], y: list[str]) -> bool:
    """`64` beside `64 nodes`: a number without its unit."""
    if len(x) != 1 or len(y) != 1 or not _NUMBER.fullmatch(x[0]):
        return False
    return re.fullmatch(rf"{re.escape(x[0])} [a-z]+(?: [a-z]+)?", y[0]) is not None
