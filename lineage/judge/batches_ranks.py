"""Ranks that read the same data, from what each wrote down by itself: no rank ever asks another."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._rooms import schemas
from .probed import finding
from .repeats import SHORT

LEAST = 4
"""Samples that two ranks must have in common before anything is said: a few may be twice in the data."""
SHARE = 0.02
"""Share of a rank's samples from which on an overlap is told."""
SPARE = 10
"""Samples in common that a pass over the data which just ended explains, though no rank read one of its own again."""
SAME = 0.9
"""Share of a rank's samples, all at one lag, from which on two ranks read one shard."""
TOGETHER = 8
"""Ranks of one sample that are paired; where more have it, they are in one group anyway."""


@dataclass(frozen=True)
class Read:
    """One sample that a rank read: its place in the order of what the rank read, and what it is."""

    rank: int
    step: int
    place: int
    key: str
    tokens: int | None = None
    name: str | None = None


def judge(reads: Iterable[Read], group: int | None = None) -> list[schemas.Finding]:
    """Compare the ranks of one segment over some steps that follow each other: at most two findings.

    A sample that a rank reads more than once counts for its first place. Two ranks that read the same samples in the
    same order at some lag read one shard; others with a part in common overlap. Where ranks read their own samples
    again, a pass over the data ended between: what was dealt out anew is in common by chance, and no overlap.

    `group`: ranks that hold one replica of the model between them (tensor, pipeline and context parallel), which
    are meant to read the same at the same steps; None where that is not known. Then equal groups of ranks are a note.
    """
    at: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    names: dict[str, str] = {}
    total: Counter[int] = Counter()
    again: Counter[int] = Counter()
    steps: set[int] = set()
    for r in reads:
        if r.tokens is not None and r.tokens < SHORT:
            continue
        steps.add(r.step)
        if r.rank not in at[r.key]:
            total[r.rank] += 1
            at[r.key][r.rank] = (r.step, r.place)
            names.setdefault(r.key, r.name or r.key)
        elif at[r.key][r.rank][0] != r.step:
            again[r.rank] += 1
    lags, shared = _paired(at, names)
    same: list[Pair] = []
    part: list[Pair] = []
    for pair, found in lags.items():
        common = sum(found.values())
        least = min(total[pair[0]], total[pair[1]])
        if common < LEAST or common < SHARE * least:
            continue
        lag, most = found.most_common(1)[0]
        within = least - abs(lag) * least / max(1, len(steps))  # the window shows no more at this lag
        if most >= SAME * within and most >= LEAST:
            same.append((pair, lag, common, least))
        elif not _dealt_anew(common, 2 * again.total() / len(total)):
            part.append((pair, lag, common, least))
    same = [p for p in same if not _meant(p, same, group)]
    out = []
    if same:
        out.append(_one_shard(same, shared, steps, note=group is None and _regular(same, len(total))))
    if part:
        out.append(_overlap(part, shared, steps))
    return out


def _paired(
    at: dict[str, dict[int, tuple[int, int]]], names: dict[str, str]
) -> tuple[dict[tuple[int, int], Counter[int]], dict[tuple[int, int], list[str]]]:
    """By pair of ranks: how many steps apart each sample that both read was read, and the names of the first ones."""
    lags: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    shared: dict[tuple[int, int], list[str]] = defaultdict(list)
    for key, ranks in at.items():
        some = sorted(ranks)[:TOGETHER]
        for i, a in enumerate(some):
            for b in some[i + 1 :]:
                lags[a, b][ranks[b][0] - ranks[a][0]] += 1
                if len(shared[a, b]) < LEAST:
                    shared[a, b].append(names[key])
    return lags, shared


def _dealt_anew(common: int, by_chance: float) -> bool:
    """Whether two ranks have no more in common than a new order of the data explains.

    `by_chance`: twice the samples that a rank read again itself, on average over ranks. As many are dealt to another
    rank that were this one's before, and the other way round.
    """
    return common <= SPARE + 2 * by_chance + 4 * math.sqrt(by_chance)


Pair = tuple[tuple[int, int], int, int, int]
"""(ranks, lag in steps, samples in common, samples of the one that read fewer)"""


def _groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """Ranks that hang together by pairs."""
    groups: list[set[int]] = []
    for (a, b), *_ in pairs:
        touching = [g for g in groups if a in g or b in g]
        groups = [g for g in groups if g not in touching] + [set().union({a, b}, *touching)]
    return sorted(sorted(g) for g in groups)


def _meant(pair: Pair, pairs: Sequence[Pair], group: int | None) -> bool:
    """Whether two ranks that read the same are of one replica, as far as their groups are no larger than one."""
    if group is None or group < 2 or pair[1] != 0:
        return False
    a = pair[0][0]
    return next(len(g) for g in _groups(pairs) if a in g) <= group


def _regular(pairs: Sequence[Pair], ranks: int) -> bool:
    """Whether all ranks stand in several groups of one size that read the same at the same steps."""
    groups = _groups(pairs)
    whole = len({len(g) for g in groups}) == 1 and sum(map(len, groups)) == ranks
    return whole and len(groups) > 1 and all(p[1] == 0 for p in pairs)


def _ranks(group: Sequence[int]) -> str:
    shown = ", ".join(map(str, group[:8]))
    return shown + (f" and {len(group) - 8} more" if len(group) > 8 else "")


def _one_shard(
    pairs: list[Pair], shared: dict[tuple[int, int], list[str]], steps: set[int], *, note: bool
) -> schemas.Finding:
    groups = _groups(pairs)
    lag = max(abs(p[1]) for p in pairs)
    late = f", up to {lag:,} steps apart" if lag else ", at the same steps"
    said = "; ".join(f"ranks {_ranks(g)}" for g in groups[:4])
    found = finding(
        "LIN-B004",
        "ranks/1",
        "note" if note else "warning",
        "batches",
        f"{said} read the same samples in the same order{late}",
        [],
        "give each data-parallel rank its own part (DistributedSampler, rank and world size of the loader, its seed); "
        "ranks of one tensor-, pipeline- or context-parallel group are meant to read the same",
    )
    return _with(found, pairs, shared, steps, groups=len(groups), lag=lag)


def _overlap(pairs: list[Pair], shared: dict[tuple[int, int], list[str]], steps: set[int]) -> schemas.Finding:
    (a, b), _, common, least = max(pairs, key=lambda p: p[2] / p[3])
    found = finding(
        "LIN-B003",
        "ranks/1",
        "warning",
        "batches",
        f"ranks {a} and {b} have {common:,} samples in common, {common / least:.0%} of what one of them read"
        + (f"; so have {len(pairs) - 1:,} more pairs of ranks" if len(pairs) > 1 else ""),
        [],
        "see how shards are dealt out to ranks and loader workers; or the data holds these samples more than once",
    )
    return _with(found, pairs, shared, steps, share=common / least)


def _with(
    found: schemas.Finding,
    pairs: list[Pair],
    shared: dict[tuple[int, int], list[str]],
    steps: set[int],
    **more: float,
) -> schemas.Finding:
    names = list(dict.fromkeys(n for pair, *_ in pairs for n in shared[pair]))[:64]
    values: dict[str, object] = {
        "first_step": min(steps),
        "steps": len(steps),
        "pairs": len(pairs),
        "in_common": max(p[2] for p in pairs),
        **more,
    }
    return found.model_copy(
        update={
            "names": names,
            "count": max(p[2] for p in pairs),
            "values": {k: schemas.Scalar.of(v) for k, v in values.items()},
        }
    )
