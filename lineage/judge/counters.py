"""The optimizer's own step counter beside the steps: does it follow, and does a save hold the state of its step?

Adam corrects its moments by that counter. One that stands still leaves the correction of its first updates in force.
A save whose counter is not that of its step was taken at another moment of the loop than its name says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._rooms import schemas

CHECK = "step-counter/1"
LEAST = 8
"""Updates between two readings that tell whether a counter moves."""
NEAR = 100
"""Updates between a reading and a save, at most: what was skipped between is known for certain only nearby."""


@dataclass(frozen=True)
class Reading:
    """The counter after a step, and what shows that the step updated anything."""

    step: int
    counter: float
    weight_norm: float | None = None


@dataclass(frozen=True)
class Save:
    """A save: the step that it was given, and the counter that the optimizer held."""

    step: int
    counter: float
    path: str | None = None


@dataclass(frozen=True)
class Counted:
    """What one segment tells of one rank's counter."""

    readings: Sequence[Reading]
    saves: Sequence[Save] = ()
    idle: frozenset[int] = frozenset()
    """steps that made no update: skipped by a scaler, or held back"""


def findings(counted: Counted) -> list[schemas.Finding]:
    """What is odd about the counter of a segment; usually nothing."""
    still = _still(counted)
    return [still] if still else [f for s in counted.saves if (f := _save(s, counted)) is not None]


def _still(counted: Counted) -> schemas.Finding | None:
    """A counter that is the same at readings between which the weights moved."""
    found = sorted(counted.readings, key=lambda r: r.step)
    for n, first in enumerate(found):
        same = [r for r in found[n + 1 :] if r.counter == first.counter]
        last = same[-1] if same and all(r.counter == first.counter for r in found[n + 1 :]) else None
        if last is None or last.step - first.step < LEAST or last.weight_norm in (None, first.weight_norm):
            continue
        updates = sum(s not in counted.idle for s in range(first.step + 1, last.step + 1))
        if updates < LEAST:
            continue
        values = {
            "first_step": first.step,
            "last_step": last.step,
            "counter": first.counter,
            "updates": updates,
            "least_updates": LEAST,
        }
        return _finding(
            "LIN-C021",
            "fault",
            f"the step counter stands at {first.counter:g} from step {first.step:,} to step {last.step:,}, while "
            f"{updates:,} updates moved the weights: moments are corrected each time as in the first updates",
            values,
            "look at what advances the counter in this optimizer, and whether an option keeps an older behaviour; runs "
            "with and without it are not comparable",
        )
    return None


def _save(save: Save, counted: Counted) -> schemas.Finding | None:
    """A save whose counter is not what the nearest reading and the steps between make of it."""
    known = [r for r in counted.readings if r.step - 1 <= save.step <= r.step + NEAR]
    if not known:
        return None
    near = min(known, key=lambda r: abs(save.step - r.step))
    low, high = sorted((near.step, save.step))
    updates = sum(s not in counted.idle for s in range(low + 1, high + 1))
    expected = near.counter + (updates if save.step >= near.step else -updates)
    off = save.counter - expected
    if off == 0 or not _follows(counted, near, save):
        return None
    when = "after" if off > 0 else "before"
    many = f"{abs(off):g} update{'' if abs(off) == 1 else 's'}"
    values = {
        "first_step": save.step,
        "counter": save.counter,
        "expected": expected,
        "off": off,
        "read_at": near.step,
    }
    return _finding(
        "LIN-C022",
        "warning",
        f"the save of step {save.step:,} holds the optimizer's state {many} {when} that step: its counter is "
        f"{save.counter:g}, and {near.counter:g} at step {near.step:,} makes {expected:g}",
        values,
        "save after the update and after the loop's own counter was increased, or give rec.checkpoint the step that "
        "the state is of; a resume repeats or leaves out what is between",
        names=[save.path] if save.path else [],
    )


def _follows(counted: Counted, near: Reading, save: Save) -> bool:
    """Whether the counter is known to take one step per update: by two readings, or by two saves that agree."""
    others = [(r.step, r.counter) for r in counted.readings if r.step != near.step]
    for step, counter in others:
        low, high = sorted((near.step, step))
        updates = sum(s not in counted.idle for s in range(low + 1, high + 1))
        if abs(counter - near.counter) != updates:
            return False
    return bool(others) or near.counter == near.step


def _finding(
    code: str,
    severity: str,
    text: str,
    values: Mapping[str, object],
    remedy: str,
    names: Sequence[str] = (),
) -> schemas.Finding:
    return schemas.Finding(
        code=code,
        check=CHECK,
        severity=severity,
        subject="optimizer",
        text=text,
        names=list(names),
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy=remedy,
    )
