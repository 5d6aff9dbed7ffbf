"""Ranks that read each other's data, told by what the same steps held elsewhere: on an abandoned branch, in a twin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .._rooms import schemas
from .probed import MOST

CHECK = "data-order-over-ranks/1"
LEAST = 2
"""Steps in a row: one batch may be twice in the data."""


@dataclass(frozen=True)
class Batch:
    """The digest of one rank's micro-batch."""

    rank: int
    step: int
    micro: int
    digest: str


@dataclass(frozen=True)
class Taken:
    """From one step on a rank reads what another one read there."""

    rank: int
    of: int
    step: int
    until: int
    steps: int


def find(here: Iterable[Batch], there: Iterable[Batch]) -> list[Taken]:
    """Ranks that read another rank's data, by the steps that both sides have. `there` is what they are held against."""
    mine, theirs = _by_step(here), _by_step(there)
    taken: dict[tuple[int, int], list[int]] = defaultdict(list)
    for step in sorted(mine.keys() & theirs.keys()):
        whose: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for rank, digests in theirs[step].items():
            whose[digests].add(rank)
        for rank, digests in mine[step].items():
            owners = whose.get(digests, set())
            if owners and rank not in owners and rank in theirs[step] and len(owners) == 1:
                taken[rank, next(iter(owners))].append(step)
    return [
        Taken(rank, of, steps[0], steps[-1], len(steps))
        for (rank, of), steps in sorted(taken.items())
        if len(steps) >= LEAST
    ]


def _by_step(batches: Iterable[Batch]) -> Mapping[int, Mapping[int, tuple[str, ...]]]:
    found: dict[int, dict[int, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for b in batches:
        found[b.step][b.rank][b.micro] = b.digest
    return {
        step: {rank: tuple(d for _, d in sorted(micros.items())) for rank, micros in ranks.items()}
        for step, ranks in found.items()
    }


def findings(taken: Iterable[Taken], where: str) -> list[schemas.Finding]:
    """One finding for all ranks concerned. `where`: what they were held against, in words."""
    every = sorted(taken, key=lambda t: (t.step, t.rank))
    if not every:
        return []
    pairs = {(t.rank, t.of) for t in every}
    mutual = sorted({tuple(sorted(p)) for p in pairs if (p[1], p[0]) in pairs})
    first = every[0]
    said = ", ".join(f"{a} and {b}" for a, b in mutual[:4])
    what = (
        f"ranks {said} read each other's data"
        if mutual
        else f"rank {first.rank} reads the data of rank {first.of}"
    )
    values: dict[str, object] = {
        "first_step": first.step,
        "steps": max(t.steps for t in every),
        "rank": first.rank,
        "least_steps": LEAST,
    }
    return [
        schemas.Finding(
            code="LIN-R007",
            check=CHECK,
            severity="warning",
            subject="batches",
            text=f"from step {first.step:,} on {what}, held against {where}",
            names=[f"rank {t.rank} reads what rank {t.of} read" for t in every][:MOST],
            count=len(every),
            values={k: schemas.Scalar.of(v) for k, v in values.items()},
            remedy="look at how the sampler gets its rank, and what of the loader's state was restored on which rank",
        )
    ]
