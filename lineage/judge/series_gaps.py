"""Values that are not there: rows that a series lacks, series that stopped, and non-finite values put out of sight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .._rooms import schemas
from .series_names import words
from .series_shape import CHANCE, Logged, blocks, chance, finding, main, spans, stands

HISTORY = 20
"""Rows in which a series came with its companion each time, before a missing one means something."""
PLACES = 5
"""More gaps than that are another rhythm of logging, unless they lie where values are not finite."""
STOPPED = 20
"""Rows of the companion after which a series has stopped."""
HIDDEN = 3
"""Rows in a row in which a value stands still beside one that is not finite."""
LIMITS = {
    1.7976931348623157e308: "the largest float64, which MLflow stores for an infinity",
    3.4028234663852886e38: "the largest float32, which torch.nan_to_num puts for an infinity",
    3.3895313892515355e38: "the largest bfloat16, which torch.nan_to_num puts for an infinity",
}


def missing(found: Sequence[Logged], s: Logged) -> Iterator[schemas.Finding]:
    """Rows of the companion in which the series is absent, after it had come with it each time."""
    if s.name is None or not s.name.main or not s.steps:
        return
    best: tuple[list[int], Logged] | None = None
    for c in found:
        if c is s or (c.by, c.rank) != (s.by, s.rank) or not _companion(c):
            continue
        lacking = _lacking(s, c)
        if lacking and (best is None or len(lacking) < len(best[0])):
            best = lacking, c
    if best is None:
        return
    lacking, c = best
    last = max(s.steps)
    gap, after = [x for x in lacking if x < last], [x for x in lacking if x > last]
    bad = _not_finite(found, s)
    if gap:
        shown = bad & set(gap)
        if len(blocks(gap, c.steps)) <= PLACES or len(shown) >= 0.8 * len(gap):
            yield _gap(s, c, gap, sorted(shown))
    if len(after) >= STOPPED or (after and bad & set(after)):
        at = (
            f", where {spans(sorted(bad & set(after)), c.steps)} is not finite beside it"
            if bad & set(after)
            else ""
        )
        yield finding(
            "series-stopped/1",
            "LIN-S005",
            "warning",
            s,
            f"missing from step {after[0]:,} on{at}: {c.key} came {len(after):,} more times",
            "look why it is no longer read or logged; from there on it shows nothing, which is not zero",
            last_step=last,
            lacking=len(after),
            least=STOPPED,
            beside=c.said,
        )


def _gap(s: Logged, c: Logged, gap: Sequence[int], shown: Sequence[int]) -> schemas.Finding:
    why = f"; at {spans(shown, c.steps)} another value is not finite" if shown else ""
    many = "1 row" if len(gap) == 1 else f"{len(gap):,} rows"
    return finding(
        "series-gap/1",
        "LIN-S004",
        "warning" if shown or (s.name and s.name.kind == "loss") else "note",
        s,
        f"absent from {many} of {c.key}, steps {spans(gap, c.steps)}, though it had come with it in each row "
        f"before{why}",
        "take those steps for non-finite until something shows otherwise; a field that is left out at NaN looks "
        "like this",
        lacking=len(gap),
        first_step=gap[0],
        history=HISTORY,
        most_places=PLACES,
        beside=c.said,
    )


def _companion(c: Logged) -> bool:
    """A series that only rows of training have: evaluation rows often carry an epoch or a step too."""
    return (c.name is not None and c.name.main) or of_training(c.key)


def of_training(key: str) -> bool:
    """Whether a key is of the learning rate, which rows of evaluation seldom have."""
    said = frozenset(words(key))
    return "lr" in said or {"learning", "rate"} <= said


def _lacking(s: Logged, c: Logged) -> list[int]:
    """Steps of `c` that `s` lacks, where the two had come together at least `HISTORY` times before."""
    have = set(s.steps)
    first = s.steps[0]
    lacking = sorted({x for x in c.steps if x > first} - have)
    if not lacking:
        return []
    before = {x for x in c.steps if first <= x < lacking[0]}
    apart = {x for x in have if x < lacking[0]} ^ before
    return lacking if len(before) >= HISTORY and not apart else []


def _not_finite(found: Sequence[Logged], but: Logged) -> set[int]:
    """Steps at which another loss or norm of this rank is not finite."""
    return {
        step
        for other in main(found)
        if other is not but and other.rank == but.rank
        for step, v in zip(other.steps, other.values, strict=True)
        if not math.isfinite(v)
    }


def replaced(s: Logged) -> Iterator[schemas.Finding]:
    """Numbers that stand for a value that was not finite."""
    for limit, what in LIMITS.items():
        at = [step for step, v in zip(s.steps, s.values, strict=True) if abs(v) == limit]
        if at:
            yield finding(
                "series-replaced/1",
                "LIN-S006",
                "warning",
                s,
                f"{limit:.4g} at steps {spans(at, s.steps)}: {what}",
                "read those rows as infinite",
                first_step=at[0],
                lacking=len(at),
            )
    if s.name is None or s.name.kind != "norm":
        return
    at = [step for step, v in zip(s.steps, s.values, strict=True) if v < 0]
    if at:
        yield finding(
            "series-replaced/1",
            "LIN-S006",
            "warning",
            s,
            f"below zero at steps {spans(at, s.steps)}, which no norm is: a code for a value that is missing or not "
            "finite",
            "DeepSpeed's ZeRO-3 writes -1 for a norm that is not finite; read those rows as non-finite",
            first_step=at[0],
            lacking=len(at),
        )


def frozen_at_nan(found: Sequence[Logged], s: Logged) -> Iterator[schemas.Finding]:
    """Zero, or the last value again, in rows in which another loss or norm is not finite."""
    if s.name is None or not s.name.main:
        return
    for other in main(found):
        if other is s or other.rank != s.rank:
            continue
        beside = other.at()
        runs: list[list[int]] = [[]]
        before = math.nan
        for step, v in zip(s.steps, s.values, strict=True):
            if not math.isfinite(beside.get(step, 0.0)) and math.isfinite(v) and v in (0.0, before):
                runs[-1].append(step)
            elif runs[-1]:
                runs.append([])
            before = v
        worst = max(runs, key=len)
        if len(worst) >= HIDDEN and not _by_chance(s, worst):
            yield finding(
                "series-hidden/1",
                "LIN-S006",
                "warning",
                s,
                f"finite and unmoved at steps {spans(worst, s.steps)}, where {other.key} is not finite",
                "a filter in front of the log leaves non-finite values out: switch it off, and read those rows as "
                "non-finite",
                first_step=worst[0],
                lacking=len(worst),
                least=HIDDEN,
                beside=other.said,
            )
            return


def _by_chance(s: Logged, rows: Sequence[int]) -> bool:
    """Whether a coarse series may well stand still for so long without a filter."""
    last = len(s.steps) - 1 - s.steps[::-1].index(rows[-1])
    stand = next(x for x in stands(s.values) if x.first <= last <= x.last)
    if stand.first == 0 and stand.last == len(s.values) - 1:  # it never moved at all
        return stand.rows < HISTORY
    return chance(s, stand) > CHANCE
