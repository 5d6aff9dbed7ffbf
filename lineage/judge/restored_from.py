"""Where a state came from that a resume did not restore: another save, or another rank of the same one.

Only digests decide. A state that no save on record had stays unexplained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._rooms import schemas
from . import rank_sets

CHECK = "restored-from/1"
TELLING = ("weights", "buffers", "master_weights", "ema", "optimizer_state", "rng")
"""Components that no two states have alike by chance. A loss scale or a counter may be an earlier one's for many
reasons: it is told along with these, and never alone."""


@dataclass(frozen=True)
class Saved:
    """A component as one rank recorded it at one save."""

    checkpoint: str
    step: int
    rank: int
    path: str | None
    replicated: bool


@dataclass(frozen=True)
class Origin:
    """What one rank holds of one component, and the save that had it."""

    rank: int
    component: str
    saved: Saved
    named: str
    """uid of the checkpoint that was named as loaded"""

    @property
    def other_rank(self) -> bool:
        """Whether the save is the right one, and the rank is not."""
        return self.saved.checkpoint == self.named


def origins(records: Sequence[schemas.Record], segment: str) -> list[Origin]:
    """Each component that differs on a rank of a segment, and is what some save had."""
    known = _saves(r for r in records if r.segment != segment)  # its own saves came after the load
    out = []
    for r in records:
        if r.kind != "restore" or r.segment != segment or r.payload.scope != "rank":
            continue
        for c in r.payload.components:
            if c.status != "differs" or c.live is None:
                continue
            found = _nearest(known.get((c.component, c.live), ()), r.payload.checkpoint, r.rank)
            if found is not None:
                out.append(Origin(r.rank, c.component, found, r.payload.checkpoint))
    return out


def _saves(records: Iterable[schemas.Record]) -> Mapping[tuple[str, str], list[Saved]]:
    """(component, digest) -> the saves that had it."""
    found: dict[tuple[str, str], dict[tuple[str, int], Saved]] = defaultdict(dict)
    for r in records:
        if r.kind != "checkpoint":
            continue
        p = r.payload
        for c in p.live:
            if c.digest is not None:
                saved = Saved(p.uid, p.step, r.rank, p.path, c.scope == "replicated")
                found[c.component, c.digest][p.uid, r.rank] = saved
    return {key: list(of.values()) for key, of in found.items()}


def _nearest(found: Sequence[Saved], named: str, rank: int) -> Saved | None:
    """Another rank of the named save; else this rank at another save, the newest first; else any rank there.

    Where two saves had the same, nothing tells which of them it is, and the newest stands for both.
    """
    here = [s for s in found if s.checkpoint == named]
    if here:
        return min(here, key=lambda s: s.rank) if all(s.rank != rank for s in here) else None
    return max(found, key=lambda s: (s.rank == rank or s.replicated, s.step), default=None)


def findings(records: Sequence[schemas.Record], segment: str) -> list[schemas.Finding]:
    """What ranks of a segment hold that is of another save, or another rank's. Random numbers stand in LIN-R006."""
    groups: dict[tuple[str, int | None], list[Origin]] = defaultdict(list)
    for o in origins(records, segment):
        if o.other_rank and o.component != "rng":
            groups["", o.saved.rank].append(o)
        elif not o.other_rank:
            groups[o.saved.checkpoint, None].append(o)
    steps = {r.payload.uid: r.payload.step for r in records if r.kind == "checkpoint"}
    return [
        _of_rank(found, rank, steps) if rank is not None else _of_save(found, steps)
        for (_, rank), found in groups.items()
        if rank is not None or any(o.component in TELLING for o in found)
    ]


def _of_save(found: Sequence[Origin], steps: Mapping[str, int]) -> schemas.Finding:
    saved, ranks = found[0].saved, sorted({o.rank for o in found})
    named = steps.get(found[0].named)
    other = f", and step {named:,} was named" if named is not None else ""
    same = named == saved.step
    what = f"an earlier save of step {saved.step:,}" if same else f"the save of step {saved.step:,}"
    return _finding(
        "LIN-C008",
        found,
        f"{rank_sets.words(ranks)} went on from {what}{'' if same else other}: {_components(found)}",
        {"step": saved.step, "named_step": named, "checkpoint": saved.checkpoint, **_began(named)},
        "load all components on all ranks from one save; where this one was meant, name it: resumed_from=path",
    )


def _began(named: int | None) -> dict[str, object]:
    """The first update that was made with what was loaded."""
    return {} if named is None else {"first_step": named + 1}


def _of_rank(found: Sequence[Origin], rank: int, steps: Mapping[str, int]) -> schemas.Finding:
    ranks = sorted({o.rank for o in found})
    return _finding(
        "LIN-C009",
        found,
        f"{rank_sets.words(ranks)} {'holds' if len(ranks) == 1 else 'hold'} what rank {rank} saved: "
        f"{_components(found)}",
        {"of_rank": rank, **_began(steps.get(found[0].named))},
        "save what is each rank's own under a key, or in a file, of its own, and load it from there: under one key of "
        "all ranks one of them survives",
    )


def _components(found: Sequence[Origin]) -> str:
    names = dict.fromkeys(schemas.catalogue().concept(o.component).title for o in found)
    return ", ".join(names)


def _finding(
    code: str, found: Sequence[Origin], text: str, values: Mapping[str, object], remedy: str
) -> schemas.Finding:
    ranks = sorted({o.rank for o in found})
    more = {"ranks": rank_sets.text(ranks), "rank": ranks[0] if len(ranks) == 1 else None}
    return schemas.Finding(
        code=code,
        check=CHECK,
        severity="fault",
        subject="resume",
        text=text,
        names=sorted({o.component for o in found}),
        values={k: schemas.Scalar.of(v) for k, v in {**values, **more}.items() if v is not None},
        remedy=remedy,
    )
