"""Series that do not show what happens: dead, stale, or too coarse to show it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .._rooms import schemas
from .series_names import shows_rewards
from .series_shape import CHANCE, Logged, Stand, chance, finding, grid, moved, significant, stands

LEAST = 5
"""Equal rows that a stale value, or a norm that is always zero, has at least."""
LEAST_ALWAYS = 20
"""The same for a series that never moved at all, or a loss that is zero."""
QUANTA = 4.0
"""A series is coarse where its usual move is at most so many of its smallest steps."""
LEAST_COARSE = 64


def dead(found: Sequence[Logged], s: Logged) -> Iterator[schemas.Finding]:
    """Exactly zero from some row on, while training went on."""
    name = s.name
    if name is None or not name.main or 0.0 not in s.values:
        return
    if name.kind == "loss" and any(shows_rewards(x.key) for x in found):
        return
    least = LEAST if name.kind != "loss" else LEAST_ALWAYS
    finite = sum(map(math.isfinite, s.values))
    for stand in stands(s.values):
        always = stand.rows == finite
        to_the_end = stand.last == len(s.values) - 1
        if (
            stand.value != 0.0
            or stand.rows < (least if always else LEAST_ALWAYS)
            or not (always or to_the_end)
        ):
            continue
        if not always and chance(s, stand) > CHANCE:
            continue  # it had shrunk into its last decimal
        first, last = s.steps[stand.first], s.steps[stand.last]
        other = moved(found, s, min(first, last), max(first, last), least=LEAST - 1)
        if other is None:
            continue
        since = f"in all {stand.rows:,} rows" if always else f"from step {first:,} on, {stand.rows:,} rows"
        yield finding(
            "series-dead/1",
            "LIN-S001",
            "warning",
            s,
            f"exactly 0 {since}, while {other.key} moved: it shows nothing of training",
            "what reads it lost its source (hooks of a replaced model, gradients already cleared), or nothing is "
            "trained: do not take it as evidence",
            first_step=first,
            last_step=last,
            least=least,
            beside=other.said,
        )


def stale(found: Sequence[Logged], s: Logged) -> Iterator[schemas.Finding]:
    """The last value again and again, while training went on."""
    name = s.name
    if name is None:
        return
    all_ = stands(s.values)
    if len(all_) == 1 and name.main:
        yield from _never_moved(found, s, all_[0])
        return
    lengths = sorted(x.rows for x in all_)
    usual = lengths[:-1][(len(lengths) - 2) // 2] if len(lengths) > 1 else 0
    long = [x for x in all_ if x.rows >= LEAST and x.value != 0.0]
    # A value that is logged in each row and made once in several steps stands still by nature.
    if not long or usual > 2 or sum(x.rows == 1 for x in all_) < len(long):
        return
    shown = []
    for stand in long:
        first, last = s.steps[stand.first], s.steps[stand.last]
        if _clipped(s, stand) or chance(s, stand) > CHANCE:
            continue
        other = moved(found, s, min(first, last), max(first, last), least=LEAST - 1)
        if other is not None:
            shown.append((stand, other))
    if not shown:
        return
    worst, other = max(shown, key=lambda x: x[0].rows)
    first, last = s.steps[worst.first], s.steps[worst.last]
    more = f", and at {len(shown) - 1} more places" if len(shown) > 1 else ""
    ends = " to its end" if worst.last == len(s.values) - 1 else ""
    yield finding(
        "series-stale/1",
        "LIN-S002",
        "warning" if name.main else "note",
        s,
        f"the same value {worst.value:.9g} in {worst.rows:,} rows, steps {first:,}-{last:,}{ends}{more}, while "
        f"{other.key} moved: the last value is repeated",
        "look at what is logged when a step is skipped or a value is missing; those rows are no evidence",
        value=worst.value,
        first_step=first,
        last_step=last,
        places=len(shown),
        chance=chance(s, worst),
        least=LEAST,
        most_chance=CHANCE,
        beside=other.said,
    )


def _never_moved(found: Sequence[Logged], s: Logged, stand: Stand) -> Iterator[schemas.Finding]:
    """One value from the first row to the last, written too finely to be a setting or a threshold."""
    if stand.rows < LEAST_ALWAYS or stand.value == 0.0 or significant(stand.value) <= 3:
        return
    first, last = s.steps[stand.first], s.steps[stand.last]
    other = moved(found, s, min(first, last), max(first, last), least=LEAST_ALWAYS // 2)
    if other is not None:
        yield finding(
            "series-stale/1",
            "LIN-S002",
            "warning",
            s,
            f"the same value {stand.value:.9g} in all {stand.rows:,} rows, while {other.key} moved",
            "what reads it sees something else than what is trained: do not take it as evidence",
            value=stand.value,
            first_step=first,
            last_step=last,
            least=LEAST_ALWAYS,
            beside=other.said,
        )


def _clipped(s: Logged, stand: Stand) -> bool:
    """A norm after clipping stands at the threshold, which is round and which it never exceeds."""
    if s.name is None or s.name.kind == "loss":
        return False
    most = max(v for v in s.values if math.isfinite(v))
    return stand.value >= most * (1 - 1e-5) and significant(round(stand.value, 4)) <= 3


def quantised(s: Logged) -> Iterator[schemas.Finding]:
    """Written so coarsely that its usual move is a few of the smallest steps that can be written."""
    name = s.name
    if name is None or not name.main or s.own:
        return
    finite = [v for v in s.values if math.isfinite(v)]
    tail = finite[-128:]
    if len(tail) < LEAST_COARSE or len(set(tail)) < 2:
        return
    sizes = [abs(b - a) for a, b in pairwise(tail)]
    size, by = grid(tail)
    typical = statistics.median(x for x in sizes if x > 0)
    equal = sum(x == 0 for x in sizes) / len(sizes)
    most = max(x.rows for x in stands(tail))
    if (
        size <= 0
        or typical > QUANTA * size
        or equal < 0.05
        or most == statistics.median_low([x.rows for x in stands(tail)])
    ):
        return
    yield finding(
        "series-quantised/1",
        "LIN-S003",
        "note",
        s,
        f"{len(set(tail)):,} values in the last {len(tail):,} rows, in steps of {size:.4g} ({by}): smaller changes do "
        "not show",
        "log it as float32 with all digits before comparing runs by it",
        resolution=size,
        distinct=len(set(tail)),
        looked_at=len(tail),
        usual_move=typical,
        most_quanta=QUANTA,
    )
