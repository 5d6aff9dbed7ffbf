"""What the ranks of one segment started from, beside each other: the checkpoint, and the random numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .._rooms import schemas
from . import rank_sets

CHECK = "starts-over-ranks/1"


def findings(records: Sequence[schemas.Record], segment: str) -> list[schemas.Finding]:
    """What is odd about how the ranks of a segment started; usually nothing."""
    return [*_parents(records, segment), *_random_numbers(records, segment)]


def _parents(records: Iterable[schemas.Record], segment: str) -> list[schemas.Finding]:
    """Ranks that name different checkpoints as what they were resumed from."""
    newest: dict[int, schemas.Segment] = {
        r.rank: r.payload for r in records if r.kind == "segment" and r.segment == segment
    }
    by_parent: dict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    for rank, s in newest.items():
        by_parent[s.parent_checkpoint, s.parent_step].append(rank)
    if len(by_parent) < 2:
        return []
    classes = sorted(by_parent.items(), key=lambda item: (-len(item[1]), item[1]))
    said = "; ".join(
        f"{rank_sets.words(ranks)}: "
        + (f"the checkpoint of step {step:,}" if step is not None else "no checkpoint is named")
        for (_, step), ranks in classes[:4]
    )
    majority = 2 * len(classes[0][1]) > len(newest)
    odd = [r for _, ranks in classes[1:] for r in ranks] if majority else []
    steps = {step for _, step in by_parent}
    named = None not in steps and len(steps) > 1
    return [
        _finding(
            "LIN-R005",
            "fault" if named else "warning",
            "start",
            f"ranks started from different states: {said}",
            {
                "odd_ranks": rank_sets.text(odd),
                "rank": odd[0] if len(odd) == 1 else None,
                "ranks": rank_sets.text(newest),
            },
            "restart all ranks from one checkpoint; where only the name is missing, give resumed_from on every rank",
        )
    ]


def _random_numbers(records: Sequence[schemas.Record], segment: str) -> list[schemas.Finding]:
    """Ranks whose random numbers after the load are those that another rank saved."""
    saved: dict[str, dict[int, dict[str, str]]] = defaultdict(dict)
    for r in records:
        if r.kind == "checkpoint":
            for c in r.payload.live:
                if c.component == "rng":
                    unused = c.detail["unused"].text().split(",") if "unused" in c.detail else []
                    saved[r.payload.uid][r.rank] = {
                        n: v.text() for n, v in c.detail.items() if n != "unused" and n not in unused
                    }
    steps = {r.payload.uid: r.payload.step for r in records if r.kind == "checkpoint"}
    out = []
    for r in records:
        if r.kind != "restore" or r.segment != segment:
            continue
        of = saved.get(r.payload.checkpoint, {})
        for c in r.payload.components:
            taken: dict[tuple[int, ...], list[str]] = defaultdict(list)
            for generator, held in c.parts.items() if c.component == "rng" else ():
                owners = _owners(of, r.rank, generator, held.text())
                if owners:
                    taken[tuple(owners)].append(generator)
            named = steps.get(r.payload.checkpoint)
            out += [_taken(r.rank, owners, generators, named) for owners, generators in taken.items()]
    return out


def _owners(saved: Mapping[int, Mapping[str, str]], rank: int, generator: str, held: str) -> list[int]:
    """The ranks that saved what this rank holds, where it saved something else itself."""
    own = saved.get(rank, {}).get(generator)
    if own is None or own == held:
        return []
    return [other for other, states in saved.items() if other != rank and states.get(generator) == held]


def _taken(rank: int, owners: Sequence[int], generators: Sequence[str], saved: int | None) -> schemas.Finding:
    return _finding(
        "LIN-R006",
        "fault",
        "random numbers",
        f"rank {rank} has, after the load, the random numbers that {rank_sets.words(owners)} saved "
        f"({', '.join(generators)})",
        {
            "first_step": None if saved is None else saved + 1,
            "rank": rank,
            "of_rank": owners[0],
            "generators": ", ".join(generators),
        },
        "load the state of each rank's own generators: its file, its key, its place in the list",
    )


def _finding(
    code: str, severity: str, subject: str, text: str, values: dict[str, object], remedy: str
) -> schemas.Finding:
    return schemas.Finding(
        code=code,
        check=CHECK,
        severity=severity,
        subject=subject,
        text=text,
        values={k: schemas.Scalar.of(v) for k, v in values.items() if v is not None},
        remedy=remedy,
    )
