"""Steps at which values are not finite: which of them are looked at whole, and which only repeat the one before.

After a weight broke, every value of every rank is NaN, for as long as nobody looks. The cells of a step that shows the
very same values as the step before would say nothing new, so they are left out, and it is said how long it stays so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

WHOLE_STEPS = 10
"""A segment's first steps with such values, each looked at whole: of a rank's first eight, all tensors are told."""
CHANGES = 10
"""Further steps that differ from the step before and are looked at whole; of more of them one value is kept."""
KEPT = pa.schema([("segment", pa.string()), ("step", pa.int64()), ("whole", pa.bool_())])


@dataclass
class Storms:
    """The steps of all segments with values that are not finite."""

    kept: dict[tuple[str, int], bool] = field(default_factory=dict)
    """(segment, step) that is looked at, whole or not"""
    same_until: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """segment -> step -> the last of the steps after it that repeat it"""
    notes: list[str] = field(default_factory=list)

    def table(self) -> pa.Table:
        """The relation `kept`."""
        rows = [(s, step, whole) for (s, step), whole in self.kept.items()]
        columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
        return pa.Table.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, KEPT, strict=True)], schema=KEPT
        )


def of(*signatures: Iterable[tuple[str, int, int, int]]) -> Storms:
    """Find them from (segment, step, which values, how many) of several tables; of one table in any number of parts."""
    by: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    for i, rows in enumerate(signatures):
        for segment, step, which, n in rows:
            found = by[segment].setdefault(step, [(0, 0)] * len(signatures))
            found[i] = (found[i][0] ^ which, found[i][1] + n)
    out = Storms()
    for segment, steps in by.items():
        _of_segment(segment, steps, out)
    return out


def _of_segment(segment: str, steps: dict[int, Any], out: Storms) -> None:
    changes = thin = 0
    last = None
    for nth, step in enumerate(sorted(steps)):
        if nth < WHOLE_STEPS:
            out.kept[segment, step] = True
            last = step
        elif (
            last is not None
            and steps.get(step - 1) == steps[step]
            and out.same_until[segment].get(last, last) == step - 1
        ):
            out.same_until[segment][last] = step
        else:
            changes += 1
            thin += changes > CHANGES
            out.kept[segment, step] = changes <= CHANGES
            last = step if changes <= CHANGES else None
    if thin:
        out.notes.append(
            f"which values are not finite changes at {WHOLE_STEPS + CHANGES + thin:,} steps: of {thin:,} of them one "
            "value each is told"
        )
