"""What is odd about what was read: entries that contradict themselves or others, configs that are left out in part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._rooms import schemas
from . import words

FEW = 12
"""Lines that a terminal shows; `lineage import --json` and the report list all."""


def odd(records: Iterable[schemas.Record]) -> list[str]:
    """One line for each thing that is odd, in the order of the source, entries with the same oddity together.

    What two compared configs leave open is no oddity: it stands among what is not shown.
    """
    found = list(records)
    several = len({r.run for r in found}) > 1
    by_problem: dict[tuple[str, str], list[int]] = {}
    reported = [r for r in found if r.kind == "reported" and r.payload.comparison is None]
    for r in sorted(reported, key=lambda r: (r.run, r.payload.order)):
        for p in r.payload.problems:
            by_problem.setdefault((r.run if several else "", p), []).append(r.payload.order + 1)
    out = [f"{_entries(run, numbers)}: {p}" for (run, p), numbers in by_problem.items()]
    configs = [r for r in found if r.kind == "config"]
    out += [f"config ({r.payload.source}): {p}" for r in configs for p in getattr(r.payload, "problems", [])]
    return list(dict.fromkeys(out))


def _entries(run: str, numbers: Sequence[int]) -> str:
    word = "entry" if len(numbers) == 1 else "entries"
    return f"{run + ', ' if run else ''}{word} {words.numbers(numbers)}"


def lines(records: Iterable[schemas.Record], most: int = FEW) -> Sequence[str]:
    """The first of them, and how many more there are."""
    found = odd(records)
    more = len(found) - most
    return [*found[:most], f"and {more} more"] if more > 0 else found
