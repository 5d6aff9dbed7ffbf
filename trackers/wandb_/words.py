"""Values and findings in the words that stand on the page."""

from __future__ import annotations

import math
from typing import Any

from .._rooms import schemas

SIGNALS = {"loss": "loss", "grad_norm_local": "local gradient norm", "grad_norm": "gradient norm"}
LONGEST_VALUE = 500
"""Characters of one config value that are shown."""


def number(value: float) -> str:
    """Return a number in words that survive every chart: NaN and infinities are named."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Infinity" if value > 0 else "-Infinity"
    return f"{value:.6g}"


def signal(name: str) -> str:
    """Return a signal's name in words; an unknown one with spaces."""
    return SIGNALS.get(name, name.replace("_", " "))


def where(rank: int, step: int | None, segment: int = 1) -> str:
    """Return a cell's place: rank, step, and the segment unless it is the first."""
    at = "unknown step" if step is None else f"step {step:,}"
    return f"rank {rank}, {at}" + ("" if segment == 1 else f" (segment {segment})")


def scalar(value: schemas.Scalar | None) -> Any:
    """Return a config value as the page can filter it: a plain one where possible, else words.

    None becomes "not shown"; masked values stay masked; NaN and infinities, which W&B's JSON would
    refuse or alter, become their names.
    """
    if value is None:
        return "not shown"
    if value.type in ("bool", "int"):
        return value.value
    if value.type == "float":
        plain = float(value.plain())
        return plain if math.isfinite(plain) else number(plain)
    text = value.text()
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"


def key(text: str) -> str:
    """Return a text as part of a config key: W&B takes a dot for nesting."""
    return text.replace(".", "/")


def cell(found: schemas.Cell, segment: int = 1) -> str:
    """Return a first bad cell as one line."""
    state = (
        f"is {number(found.value)}"
        if found.abnormal == "non_finite"
        else f"is out of its range ({number(found.value)})"
    )
    named = (found.tensor or found.layer) if found.signal not in SIGNALS else None  # a norm is of all of them
    of = f" of {named}" if named else ""
    return f"{where(found.rank, found.step, segment)}: {signal(found.signal)}{of} {state}"
