"""Small words that the whole report shares."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from .._rooms import schemas
from ..judge import rank_sets
from ..judge.graph import Graph

LONGEST = 300
"""Characters of one value in a table; the whole stands in the ledger."""


def value(scalar: schemas.Scalar | None, longest: int = LONGEST) -> str:
    """A recorded value as a person reads it."""
    if scalar is None:
        return "-"
    return shorten(scalar.text(), longest)


def shorten(text: str, longest: int = LONGEST) -> str:
    """Cut a text that would fill a page, and say so."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text):,} characters)"


def brief(text: str) -> str:
    """A change without what stands in brackets: the tables say the rest."""
    return re.sub(r" \([^()]*\)", "", text)


def number(x: float) -> str:
    """A measured value: NaN and infinities by their names."""
    return f"{x:.4g}" if math.isfinite(x) else str(schemas.float_to_json(x))


def interval(first: int, last: int) -> str:
    """Steps from first to last, both included."""
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def from_step(step: int, lower_bound: str | None) -> str:
    """`from step 34,701`; where that is only the earliest, `at or after step 34,701 (dated 2024-04-08)`."""
    return f"from step {step:,}" if lower_bound is None else f"at or after step {step:,} ({lower_bound})"


def numbers(found: Iterable[int], most: int = 8) -> str:
    """Steps or ranks, neighbours joined: `0 to 3, 7`."""
    runs = rank_sets.runs(found)
    text = ", ".join(interval(a, b) for a, b in runs[:most])
    return text + (f" and {len(runs) - most} more places" if len(runs) > most else "")


def ranks(found: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 to 7`."""
    all_ = sorted(set(found))
    return f"rank {all_[0]}" if len(all_) == 1 else f"ranks {numbers(all_)}"


def time(at: datetime) -> str:
    """An instant in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def digest(text: str | None) -> str:
    """The beginning of a digest, enough to tell digests apart."""
    if not text:
        return "-"
    name, _, hexes = text.partition(":")
    return f"{name}:{hexes[:12]}"


def short(uid: str | None) -> str:
    """The end of a uid, which tells uids of one run apart."""
    return "-" if uid is None else uid[-8:]


def segment(graph: Graph, uid: str) -> str:
    """A segment by its number; one whose own record is lost has none."""
    return f"segment {graph.number(uid)}" if uid in graph.segments else "a segment whose record is lost"


def plural(n: int, word: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def unseen_in_charts(found: Iterable[tuple[int, float]], what: str) -> str | None:
    """Name in words the steps that a chart cannot show. None where there are none."""
    listed = list(found)
    if not listed:
        return None
    kinds: dict[str, list[int]] = {}
    for step, v in listed:
        kinds.setdefault(str(schemas.float_to_json(v)), []).append(step)
    return "; ".join(
        f"{what} is {kind} at step{'s' if len(set(steps)) > 1 else ''} {numbers(steps)}"
        for kind, steps in kinds.items()
    )
