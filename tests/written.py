"""Ledgers written with the product's own journals and series, rank by rank, with any habit on demand.

For what no loop does on demand: ranks that are missing, clocks that are off, two writers of one rank, ten thousand of
them. Each rank has a journal file and series files of its own, as a process of training leaves them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import schemas
from lineage.ledger.journal import Journal
from lineage.ledger.series import SeriesWriter
from tests.judge.builders import uid

START = datetime(2026, 1, 1, tzinfo=UTC)


def usual(rank: int, step: int, signal: str) -> float:
    """A healthy value: a falling loss and steady norms, with a little noise that any rank and step has again."""
    noise = random.Random(f"{rank} {step} {signal}").gauss(0.0, 0.02)
    if signal == "loss":
        return 2.0 + 2.0 * math.exp(-step / 50) + noise
    level = {"grad_norm_local": 1.0, "grad_norm": 0.5}.get(signal, 1.0)
    if signal == "grad_norm":
        noise = random.Random(f"{step} {signal}").gauss(0.0, 0.02)  # reduced: the same on every rank
    return level * math.exp(noise)


@dataclass
class Written:
    """One run's ledger. `rank` writes what one process of a segment leaves."""

    path: Path
    world: int
    per_node: int = 8
    steps: int = 40
    signals: Sequence[str] = ("loss", "grad_norm_local", "grad_norm")
    spoiled: Mapping[tuple[int, int, str], float] = field(default_factory=dict)
    """(rank, step, signal) -> the value that stands there instead"""

    def place(self, rank: int) -> schemas.Place:
        """Where a rank runs: eight to a node, each on a device of its own."""
        return schemas.Place(
            node=f"n{rank // self.per_node}",
            local_rank=rank % self.per_node,
            device=f"GPU-{rank:05d}",
            pid=1000 + rank,
        )

    def rank(
        self,
        rank: int,
        *,
        segment: int = 1,
        first: int = 1,
        last: int | None = None,
        clock: float = 0.0,
        place: schemas.Place | None = None,
        ends: bool = True,
        name: str = "",
        spoiled: Mapping[tuple[int, int, str], float] | None = None,
        values: Any = usual,
        **info: Any,
    ) -> None:
        """Write a rank's journal and its series from step `first` to `last`."""
        last = self.steps if last is None else last
        place = place or self.place(rank)
        journal = Journal(self.path, "written", uid(segment), rank, place, fsync=False)
        made = schemas.Segment(uid=uid(segment), world_size=self.world, place=place, **info)
        journal.append(made, step=first - 1)
        rows = [
            {
                "segment": uid(segment),
                "rank": rank,
                "step": step,
                "signal": signal,
                "value": (spoiled or self.spoiled).get((rank, step, signal), values(rank, step, signal)),
                "at": START + timedelta(seconds=10 * step + clock),
            }
            for step in range(first, last + 1)
            for signal in self.signals
        ]
        for row in rows:
            v = row["value"]
            row |= {
                "n_nan": int(math.isnan(v)),
                "n_posinf": int(v == math.inf),
                "n_neginf": int(v == -math.inf),
            }
        self.table("probes", rows, rank, segment, name)
        if ends:
            journal.append(schemas.SegmentEnd(last_step=last), step=last)
        journal.close()

    def table(
        self, table: str, rows: Sequence[Mapping[str, Any]], rank: int, segment: int = 1, name: str = ""
    ) -> Path | None:
        """Write rows as one sealed series file of a rank."""
        writer = SeriesWriter(
            self.path, uid(segment), f"{self.place(rank).node}-{rank:05d}-{1000 + rank}-1{name}", table
        )
        writer.write(rows)
        return writer.close()

    def all(self, ranks: Iterable[int] | None = None, **more: Any) -> Path:
        """Write every rank, or some, and return the ledger's folder."""
        for r in range(self.world) if ranks is None else ranks:
            self.rank(r, **more)
        return self.path


def from_one_rank(rank: int, step: int, world: int, until: int = 0) -> dict[tuple[int, int, str], float]:
    """One rank's gradient breaks before the reduction; the reduced one on all ranks, and from the next step on all."""
    out = {(rank, step, "grad_norm_local"): math.nan}
    out |= {(r, step, "grad_norm"): math.nan for r in range(world)}
    for later in range(step + 1, until + 1):
        out |= {
            (r, later, s): math.nan for r in range(world) for s in ("loss", "grad_norm_local", "grad_norm")
        }
    return out
