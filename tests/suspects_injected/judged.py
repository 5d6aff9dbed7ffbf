"""What `lineage suspects` says of the runs, beside what was done to them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .loop import draw
from .runs import BY_NAME, LESS, WORLD, Kind, Less, Seen, ledger

NOTHING: Mapping[str, Any] = {"place": 1, "evidence": None}
"""What is said of a family where there is no bad cell to suspect anything of."""


@dataclass(frozen=True)
class Judged:
    """One run."""

    name: str
    seed: int
    kind: Kind
    less: Less | None
    cell: dict[str, Any] | None
    right: bool
    """whether the first bad cell is the right one"""
    answer: str
    suspects: Sequence[Mapping[str, Any]]
    missing: tuple[str, ...]
    """what is said to be missing of the families that stand first, and of all"""

    @property
    def true(self) -> Mapping[str, Any]:
        """What is said of the true family."""
        return next((s for s in self.suspects if s["family"] == self.kind.family), NOTHING)

    @property
    def first(self) -> list[str]:
        """The families at the first place; none where nothing fits any."""
        return [s["family"] for s in self.suspects if s["place"] == 1 and s["evidence"] is not None]

    @property
    def alone(self) -> bool:
        """Whether the true family stands first, and alone."""
        return self.first == [self.kind.family]

    @property
    def below_none(self) -> bool:
        """Whether the true family stands below a false one for which there is no evidence: what must never be."""
        return any(
            s["place"] < self.true["place"] and s["evidence"] is None and s["family"] != self.kind.family
            for s in self.suspects
        )

    @property
    def names_missing(self) -> bool:
        """Whether what would tell more is named: for a run with less on record, the very thing that is missing."""
        return any(self.less is None or self.less.missing in text for text in self.missing)


def judge(folder: Path, name: str, seed: int, seen: Seen) -> Judged:
    """Ask the command line, as a user does."""
    less = name.endswith("-less")
    kind = BY_NAME[name.removesuffix("-less")]
    done = subprocess.run(
        [sys.executable, "-m", "lineage", "suspects", str(ledger(folder, name, seed)), "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout)
    cell = said.get("cell")
    suspects = said["suspects"] or []
    missing = [*said.get("not_shown", ()), *(t for s in suspects for t in s["not_shown"])]
    return Judged(
        name,
        seed,
        kind,
        next((x for x in LESS if x.kind == kind.name), None) if less else None,
        cell,
        cell is not None and kind.right(draw(kind.name, seed, WORLD), cell, seen),
        said.get("answer", said.get("reason", "")),
        suspects,
        tuple(missing),
    )
