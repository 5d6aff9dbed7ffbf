"""Where the values of an imported run stand: the line, entry or event of the file that they were read from."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from . import series


def at(ledger: Path, segment: str, rank: int, step: int) -> list[str]:
    """The places that say something of a step of a rank, as `line 812 of x.log`; empty where nothing was imported.

    A step may stand in several: training and validation, or a step that was logged twice.
    """
    out: list[str] = []
    for table in series.of_segment(ledger, segment, "sources"):
        here = table.filter(pc.and_(pc.equal(table["step"], step), pc.equal(table["rank"], rank)))
        for file, place, line in zip(
            *(here[name].to_pylist() for name in ("file", "place", "line")), strict=True
        ):
            out.append(f"{place} {line:,} of {file}")
    return list(dict.fromkeys(out))
