"""Bad habits of the first hour: what destroys the evidence, and what makes an effect untraceable."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..._rooms import schemas
from ..execution import LOCAL
from .audited import Audited, number_of
from .rules import Told, rule

SKIPS = ("batch_skip", "data_filter")
"""Concepts by which samples are left out."""
RATE = ("learning_rate", "lr_schedule")
"""Concepts by which the rate is lowered: its peak, or what the scheduler gives at the step of the restart."""
_RATE_AT = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) at step ", re.I)
DATA_REPLAYS = ("other-rank-batch", "without-sample")
SPIKES = 2
"""Spikes from which on a habit can be spoken of."""


@rule(
    "LIN-U001",
    "restart-before-preserving",
    "warning",
    "lineage incident preserve {run}, before checkpoints rotate away; next time before the restart",
)
def restart_before_preserving(a: Audited) -> Iterable[Told]:
    """The run broke and was restarted, and nothing of the broken segment had been kept by then."""
    told = {f.segment for f in a.said_by("LIN-I004")}
    for segment, bad in a.bads.items():
        following = a.next_after(segment)
        if following is None or a.imported(segment) or a.number(segment) in told:
            continue
        at = a.began[following]
        if a.kept(segment, at):
            continue
        later = a.kept(segment)
        then = (
            f"; it was kept at {later[0].at:%Y-%m-%d %H:%M} UTC"
            if later
            else "; nothing of it is kept to this day"
        )
        yield Told(
            f"segment {a.number(segment)} broke at step {bad.cell.step if bad.cell else 0:,}, and segment "
            f"{a.number(following)} began at {at:%Y-%m-%d %H:%M} UTC before anything of it was kept{then}",
            _ids(a.of("segment", following)[:1]),
            a.number(segment),
            bad.cell.step if bad.cell else None,
        )


@rule(
    "LIN-U002",
    "several-at-once",
    "warning",
    "where the effect matters, resume again from the same checkpoint with one change at a time",
)
def several_at_once(a: Audited) -> Iterable[Told]:
    """Two or more changes that results depend on at one restart: whatever followed can be traced to none of them."""
    broke = {a.next_after(s) for s in a.bads}
    for segment in a.graph.segments:
        for r in a.drifts(segment):
            changes = a.altering(r)
            if len({_what(c) for c in changes}) < 2:
                continue
            why = " after the run broke" if segment in broke and r.payload.moment == "resume" else ""
            names = ", ".join(dict.fromkeys(c.title for c in changes))
            yield Told(
                f"{len({_what(c) for c in changes})} changes at once at step {r.payload.from_step:,}{why}: {names}",
                (r.id,),
                a.number(segment),
                r.payload.from_step,
                severity=None if why or r.payload.moment == "in_run" else "note",
            )


@rule(
    "LIN-U003",
    "lower-rate-first",
    "warning",
    "make the bad step again with one condition changed (`lineage replay`) before the rate: a lower rate makes most "
    "symptoms smaller, whatever they come from",
)
def lower_rate_first(a: Audited) -> Iterable[Told]:
    """The first thing that was done after the run broke was to lower the learning rate, and no replay had
    been made."""
    for segment in a.bads:
        following = a.next_after(segment)
        at = a.bad_at[segment]
        candidates = [] if following is None else [(following, r) for r in a.drifts(following, "resume")[:1]]
        if at is not None:
            candidates += [(segment, r) for r in a.drifts(segment, "in_run") if r.at > at][:1]
        for where, r in candidates:
            lowered = next((c for c in r.payload.changes if c.concept in RATE and _lower(c)), None)
            if lowered is not None and not a.replayed_before(r.at):
                yield Told(
                    f"after segment {a.number(segment)} broke, the first move was a lower rate: "
                    f"{lowered.text}; no replay "
                    "had been made by then",
                    (r.id,),
                    a.number(where),
                    r.payload.from_step,
                )


@rule(
    "LIN-U004",
    "only-after-reduction",
    "warning",
    "lineage.attach(None, model=model) on every rank records each rank's own loss and gradient, before "
    "anything is reduced",
)
def only_after_reduction(a: Audited) -> Iterable[Told]:
    """A run on several ranks of which some recorded nothing of their own, before the reduction."""
    for segment in a.live:
        info = a.graph.segments[segment]
        if info.world_size < 2:
            continue
        own = {r for r, s in a.signals.get(segment, {}).items() if {*LOCAL} & s}
        if len(own) >= info.world_size:
            continue
        what = "no rank" if not own else f"{len(own):,} of {info.world_size:,} ranks"
        yield Told(
            f"in segment {a.number(segment)} {what} recorded a loss or gradient of its own before the "
            "reduction: on which "
            "rank something begins cannot be told from what is reduced",
            _ids(a.of("segment", segment)[:1]),
            a.number(segment),
        )


@rule(
    "LIN-U005",
    "undeclared-change",
    "warning",
    "declare it with its reason: rec.mitigate(concept=..., before=..., after=..., why=...); undo it if it "
    "was not meant",
)
def undeclared_change(a: Audited) -> Iterable[Told]:
    """A change that results depend on, which nobody declared."""
    for segment in a.graph.segments:
        for r in a.drifts(segment):
            names = [c for c in a.altering(r) if c.concept in r.payload.undeclared]
            if names:
                yield Told(
                    f"undeclared at step {r.payload.from_step:,}: {'; '.join(c.text for c in names[:4])}"
                    + (f"; and {len(names) - 4} more" if len(names) > 4 else ""),
                    (r.id,),
                    a.number(segment),
                    r.payload.from_step,
                )


@rule(
    "LIN-U006",
    "blamed-on-samples",
    "warning",
    "make the step again without the sample, and with another rank's batch: `lineage replay BUNDLE --change "
    "without-sample:N`, then `--change other-rank-batch`",
)
def blamed_on_samples(a: Audited) -> Iterable[Told]:
    """Every spike was answered by leaving samples out, and no replay shows that it goes with them."""
    answered: list[tuple[str, schemas.Record]] = []
    for segment in a.bads:
        following = a.next_after(segment)
        if following is None:
            continue  # it has not been answered yet
        moves = [r for r in a.drifts(following, "resume") if a.altering(r)]
        if not moves or any(c.concept not in SKIPS for r in moves for c in a.altering(r)):
            return  # something else was tried, or it was gone through again as it was
        answered.append((segment, moves[0]))
    shown = any(
        len(r.payload.changes) == 1 and r.payload.changes[0].name in DATA_REPLAYS and r.payload.flips is True
        for r in a.of("replay")
    )
    if len(answered) >= SPIKES and not shown:
        yield Told(
            f"{len(answered)} spikes were answered, and each by leaving samples out; no replay shows that one "
            "goes with its samples",
            _ids(r for _, r in answered),
        )


@rule(
    "LIN-U007",
    "no-longer-crashes",
    "warning",
    "lineage recover compare {run} holds the repaired run against the one before the incident",
)
def no_longer_crashes(a: Audited) -> Iterable[Told]:
    """The run was declared recovered, or the incident closed, without holding the repaired run against
    the old one."""
    for life in a.lives:
        done = life.reached("recovered") or life.reached("closed")
        if done is None:
            continue
        compared = [r for r in life.trajectories if r.at <= done.at]
        judged = [
            h for r in compared for h in r.payload.horizons if h.position not in ("not_reached", "not_shown")
        ]
        if judged:
            continue
        word = "recovered" if life.reached("recovered") else "closed"
        what = "no value of it reached a horizon" if compared else "it was held against nothing"
        yield Told(
            f"the incident {life.latest.title!r} was declared {word} at {done.at:%Y-%m-%d %H:%M} UTC, and "
            "the repaired run "
            f"was not compared with the one before ({what}): that it goes on is not that it goes as before",
            (done.record,),
            a.number(life.segment),
        )


def _what(c: schemas.Change) -> str:
    """What of a run a change is of: all of the state that a resume did not restore is one thing."""
    return "state" if c.concept in (*schemas.COMPONENTS, "state_edit") else c.concept


def _lower(c: schemas.Change) -> bool:
    """Whether a lower value was asked for, or came into effect: the move counts, in effect or not."""
    for before, after in ((c.effective_before, c.effective_after), (c.requested_before, c.requested_after)):
        x, y = _leading(before), _leading(after)
        if x is not None and y is not None and y < x:
            return True
    return False


def _leading(value: schemas.Scalar | None) -> float | None:
    """A number, or the rate that a schedule's text begins with: `0.05 at step 20 (...)`."""
    found = number_of(value)
    if found is None and value is not None and (m := _RATE_AT.match(value.text())):
        found = float(m[1])
    return found


def _ids(records: Iterable[schemas.Record]) -> tuple[str, ...]:
    return tuple(r.id for r in records)
