"""Sets of ranks as text: `0-3,8-11`. Groups of thousands of ranks stay short."""

from __future__ import annotations

from collections.abc import Iterable


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of neighbours, in order; every number once."""
    out: list[tuple[int, int]] = []
    for n in sorted(set(numbers)):
        if out and n == out[-1][1] + 1:
            out[-1] = out[-1][0], n
        else:
            out.append((n, n))
    return out


def text(ranks: Iterable[int]) -> str:
    """Ranks in order, runs of neighbours as ranges; every rank once."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs(ranks))


def parse(written: str) -> tuple[int, ...]:
    """The ranks that a text names. Raises `ValueError` where it is none."""
    found: list[int] = []
    for part in filter(None, written.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def words(ranks: Iterable[int], most: int = 8) -> str:
    """`rank 3`, `ranks 0-2, 5`, and beyond `most` ranges how many ranks there are in all."""
    every = sorted(set(ranks))
    parts = text(every).split(",")
    shown = ", ".join(parts[:most]) + (f", ... ({len(every):,} in all)" if len(parts) > most else "")
    return f"rank{'s' if len(every) > 1 else ''} {shown}"
