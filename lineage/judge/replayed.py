"""The judgement of a replay: whether the recorded symptom showed again, and what that does to each kind of cause."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from . import execution
from .replayed_rules import CONTROL, RULES, SINGLE, Result

BATCHES = ("other-rank-batch", "without-sample")
"""Changes that are of the batch itself."""
NOT_ACQUITTED = (
    "a clean replay does not acquit the batch: it may need other ranks, precision or timing to do its harm"
)


@dataclass(frozen=True)
class Symptom:
    """What the alarm of the recorded step said."""

    signal: str
    abnormal: str
    value: float
    baseline: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Made:
    """One run of the step."""

    signals: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    """type and message of what ended it before it was whole"""
    not_finite: str | None = None
    """where anomaly mode stopped it: the node of the backward pass that gave a NaN"""


@dataclass(frozen=True)
class Judged:
    """What came of it."""

    result: Result
    reason: str
    shown: int


def symptom_of(alarm: schemas.Alarm) -> Symptom:
    """The symptom that an alarm names."""
    return Symptom(alarm.signal, alarm.abnormal, alarm.value, alarm.baseline, alarm.threshold)


def shows(symptom: Symptom, made: Made) -> bool | None:
    """Whether a run shows the symptom; None where it cannot tell."""
    if made.not_finite is not None:
        return True if symptom.abnormal == "non_finite" else None
    value = made.signals.get(symptom.signal)
    if value is None:
        return None
    if symptom.abnormal == "non_finite":
        return not math.isfinite(value)
    if not math.isfinite(value):
        return True
    if symptom.threshold is not None:
        return value > symptom.threshold
    if symptom.baseline is None:
        return None
    return abs(value - symptom.value) < abs(value - symptom.baseline)


def judge(
    symptom: Symptom,
    runs: Sequence[Made],
    start: schemas.ReplayStart,
    changes: Sequence[schemas.ReplayChange] = (),
    *,
    problems: Sequence[str] = (),
    beside: Result | None = None,
) -> Judged:
    """Say whether the symptom was reproduced.

    `problems`: what keeps the replay from being the recorded step. `beside`: the result of the control. Where that
    shows the symptom from the same start, another batch that does not show it tells something from any start.
    """
    idle = [c for c in changes if c.in_effect == "no"]
    if idle:
        return Judged("inconclusive", f"{idle[0].name} changed nothing: {idle[0].text}", 0)
    if not runs:
        return Judged("inconclusive", "the step was not made", 0)
    said = [shows(symptom, m) for m in runs]
    failed = next((m.error for m, s in zip(runs, said, strict=True) if m.error and not s), None)
    if failed is not None:
        return Judged("inconclusive", f"the step could not be made: {failed}", 0)
    shown = sum(1 for s in said if s)
    what = _named(symptom)
    if None in said:
        return Judged("inconclusive", _untold(symptom), shown)
    of = f"in {shown} of {len(runs)} replays" if len(runs) > 1 else ""
    if 0 < shown < len(runs):
        return Judged("inconclusive", f"{what} comes and goes: it shows {of}", shown)
    if shown:
        return Judged("reproduced", f"{what} shows again {of}".rstrip() + _far(start), shown)
    away = _apart(start, problems)
    value = _values(symptom, runs)
    other_batch = bool(changes) and all(c.name in BATCHES for c in changes) and beside == "reproduced"
    if away and not other_batch:
        return Judged("inconclusive", f"{what} does not show ({value}), but {away}", 0)
    return Judged("not_reproduced", f"{what} does not show {of}".rstrip() + f": {value}", 0)


def _named(symptom: Symptom) -> str:
    name = execution.name(symptom.signal)
    kind = "not finite" if symptom.abnormal == "non_finite" else "out of its range"
    return f"the recorded {name} ({execution.number(symptom.value)}, {kind})"


def _values(symptom: Symptom, runs: Sequence[Made]) -> str:
    values = [m.signals[symptom.signal] for m in runs]
    low, high = min(values), max(values)
    many = f"{execution.number(low)} to {execution.number(high)}" if low != high else execution.number(low)
    limit = f", {execution.number(symptom.threshold)} is the bound" if symptom.threshold is not None else ""
    return f"{execution.name(symptom.signal)} is {many}{limit}"


def _untold(symptom: Symptom) -> str:
    if symptom.signal == "grad_norm":
        return (
            "the abnormal value came with the reduction, while this rank's own loss and gradients were in range: "
            "replay the bundle of the rank that began it, or all ranks by torchrun"
        )
    return f"the replay gives no {execution.name(symptom.signal)} to hold against the recorded one"


def _far(start: schemas.ReplayStart) -> str:
    n = start.updates_between
    if n is None:
        return ", although it is not known how far the start is from the recorded one"
    return f", although the replay begins {_updates(n)} away from the recorded state" if n else ""


def _updates(n: int) -> str:
    return f"{n:,} update{'' if n == 1 else 's'}"


def _apart(start: schemas.ReplayStart, problems: Sequence[str]) -> str | None:
    """Why a replay that shows nothing tells nothing; None where it began with what the step began with."""
    n = start.updates_between
    if n is None:
        return "it is not known how far the start is from the recorded state"
    if n:
        return f"the replay begins {_updates(n)} away from the recorded state"
    other = [c.component for c in start.components if c.equal is False]
    if other:
        return f"the start differs from the recorded state in {', '.join(other)}"
    return problems[0] if problems else None


def exact(start: schemas.ReplayStart) -> bool:
    """Whether a replay began with the recorded state, as far as anything is recorded of it."""
    return start.updates_between == 0 and not any(c.equal is False for c in start.components)


def flips(control: schemas.Replay | None, result: Result) -> bool | None:
    """Whether the symptom shows in one of control and changed replay alone; None where one of them cannot tell."""
    if control is None or "inconclusive" in (control.result, result):
        return None
    return control.result != result


def effects(
    judged: Judged,
    start: schemas.ReplayStart,
    given: Collection[str],
    changes: Sequence[schemas.ReplayChange] = (),
    flipped: bool | None = None,
) -> list[schemas.FamilyEffect]:
    """What the replay does to each kind of cause.

    Nothing where it is inconclusive or confounded. A changed replay says something only beside a control in which the
    symptom shows. Where the start is another state, nothing is said that rests on arithmetic.
    """
    if judged.result == "inconclusive" or len(changes) > 1:
        return []
    if changes and flipped is not (judged.result == "not_reproduced"):
        return []  # the control shows no symptom, or cannot tell
    condition = changes[0].name if changes else CONTROL
    same = exact(start)
    out = []
    for rule in RULES:
        if (rule.condition, rule.result) != (condition, judged.result) or not rule.when(given):
            continue
        out += [
            schemas.FamilyEffect(
                family=e.family,
                aspect=e.aspect,
                direction=e.direction,
                text=e.text,
                rule=rule.id,
                source=rule.source,
            )
            for e in rule.effects
            if same or not e.arithmetic
        ]
    return out


def limits(
    judged: Judged,
    start: schemas.ReplayStart,
    given: Collection[str],
    changes: Sequence[schemas.ReplayChange],
) -> list[str]:
    """What the replay does not show, in words."""
    out = []
    if judged.result == "not_reproduced" and not any(c.name in BATCHES for c in changes):
        out.append(NOT_ACQUITTED)
    if not exact(start):
        out.append("its start is not the recorded state, so it says nothing of arithmetic")
    unknown = [c.component for c in start.components if c.equal is None]
    if unknown:
        out.append(f"not recorded, so not compared at the start: {', '.join(unknown)}")
    if SINGLE in given:
        out.append("one device made the step of one rank: collectives and other ranks' parts are not in it")
    if len(changes) > 1:
        out.append(
            f"{' and '.join(c.name for c in changes)} were changed at once: no effect can be traced to one"
        )
    out += [f"{c.name}: {c.text}" for c in changes if c.in_effect == "not_shown"]
    return out
