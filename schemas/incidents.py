"""Incidents: something broke, what was done about it, what is known of the cause, and whether it is as before.

Recovery and cause are two things. That training goes on after a restart says nothing of why it broke, so no record of
a cause can rest on it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Code, Digest, Float, Model, Scalar, Time, Uid
from .judgements import ConceptClass, Status
from .replays import Family

IncidentStatus = Literal["open", "contained", "evidence_held", "diagnosed", "recovered", "closed"]
"""The life of an incident, in its order. It may skip a state, and goes back to none of them."""


class Message(Model):
    """Somebody was told."""

    to: str = Field(description="who was told, by the name that was given")
    text: str | None = Field(default=None, description="what was said")
    at: Time | None = Field(default=None, description="when; null: when the record was written")


class Incident(Model):
    """Something broke. Later issues of its life are later records with the same uid: each adds what is new."""

    kind: Literal["incident"] = "incident"
    uid: Uid
    status: IncidentStatus = Field(default="open", description="the furthest state that it has reached")
    reached: IncidentStatus | None = Field(
        default=None, description="the state that it reached with this record; null: `status`, if that is new"
    )
    title: str
    opened_by: Literal["alarm", "person"] = "alarm"
    owner: str | None = Field(default=None, description="who looks after it, by the name that was given")
    concept: str | None = Field(default=None, description="the training condition that it is about")
    note: str | None = Field(default=None, description="what was said when this record was written")
    first_bad_step: int | None = None
    first_bad_rank: int | None = None
    last_good_checkpoint: Uid | None = None
    code: Code | None = None
    by: str | None = Field(default=None, description="who wrote this record; null: the layer itself")
    messages: list[Message] = Field(
        default=[], description="who was told, as far as this record adds to the earlier ones"
    )
    links: list[str] = Field(default=[], description="tickets, threads, dashboards that this record adds")
    missing: list[str] = Field(
        default=[], description="what was not there when this was written, and should have been"
    )
    override: str | None = Field(default=None, description="why it went on although something was missing")


class CauseProof(Model):
    """The only proof of a cause that counts: a replay in which one condition was changed, and the symptom came or went.

    That training went on after a restart is none, and there is no field to write it in.
    """

    rests_on: Literal["replay_that_flips"] = "replay_that_flips"
    replay: Uid = Field(description="the replay with the one condition changed")
    control: Uid = Field(description="the replay with nothing changed that it is held against")
    condition: str = Field(description="the one condition, such as fp32")
    argument: str | None = None
    in_effect: Literal["yes"] = Field(description="the run shows that the change did something")
    flips: Literal[True] = Field(description="the symptom shows in one of the two and not in the other")
    confounded: Literal[False] = Field(default=False, description="nothing else was changed")


class RootCause(Model):
    """What made it break, as far as one changed condition shows. It stands apart from every recovery."""

    kind: Literal["root_cause"] = "root_cause"
    uid: Uid
    incident: Uid
    family: Family
    text: str = Field(description="the cause in words")
    proof: CauseProof
    by: str | None = None
    evidence: list[Uid] = Field(default=[], description="further records that it rests on")


class RestartPoint(Model):
    """The state from which training is to go on."""

    checkpoint: Uid
    step: int = Field(ge=0, description="completed updates in it")
    segment: Uid = Field(description="the segment that saved it")
    path: str | None = None
    why: str = Field(description="why this one")
    doubts: list[str] = Field(default=[], description="what speaks against it")


class ClaimEffect(Model):
    """What may still be concluded, for one claim."""

    claim: str
    status: Status
    reason: str


class PlannedMitigation(Model):
    """A change that is to come with the restart, and what it does to validity, as shown before it was taken."""

    uid: Uid
    concept: str
    cls: ConceptClass = Field(alias="class")
    before: Scalar | None = None
    after: Scalar | None = None
    why: str
    hypothesis: str | None = None
    smallest_justified: str | None = Field(default=None, description="why nothing smaller would do")
    effects: list[ClaimEffect] = Field(
        default=[], description="the claims that it does not leave as they were"
    )


class RecoveryCost(Model):
    """What waiting and what resuming cost, with the formula. A number that is not known is null."""

    step_time: Float | None = Field(default=None, description="seconds of a step: median of the host's times")
    steps_measured: int = Field(default=0, description="steps that this median is of")
    devices: int = Field(ge=1, description="ranks of the segment that broke")
    steps_again: int | None = Field(
        default=None, description="steps from the restart point to the last one that was made"
    )
    steps_to_bad: int | None = Field(
        default=None, description="steps from the restart point to the first bad one"
    )
    device_hours_again: Float | None = None
    device_hours_failing: Float | None = Field(
        default=None, description="what is lost if it breaks again at the same step"
    )
    waiting_per_hour: Float = Field(
        description="device-hours for each hour in which the devices are held idle"
    )
    break_even_hours: Float | None = Field(
        default=None,
        description="hours of waiting that cost as much as one resume that breaks at the same step",
    )
    price: Float | None = Field(default=None, description="of a device-hour")
    currency: str | None = None
    energy: Float | None = Field(default=None, description="kWh of a device-hour")
    formula: list[str] = Field(default=[], description="each number with how it came about")


class EvidenceState(Model):
    """One piece of evidence, and whether it is held."""

    what: str
    state: Literal["held", "missing", "gone", "none"] = Field(
        description="missing: it is there and not held; gone: it was there, and is not any more; none: it never was"
    )
    required: bool = Field(description="whether a recovery waits for it")
    text: str
    remedy: str | None = Field(default=None, description="the command or the line that holds it")
    records: list[Uid] = []


class Recovery(Model):
    """The decision how to go on: from where, with which changes, at what cost, with which evidence in hand.

    It is no explanation of what broke: see `root_cause`.
    """

    kind: Literal["recovery"] = "recovery"
    uid: Uid
    incident: Uid | None = None
    restart: RestartPoint
    mitigations: list[PlannedMitigation] = []
    confounded: bool = Field(
        default=False, description="two or more of them are of class R or C: no effect can be traced to one"
    )
    claims: list[ClaimEffect] = Field(
        default=[], description="what may be concluded from the run afterwards, all claims"
    )
    cost: RecoveryCost
    owner: str | None = None
    by: str | None = None
    messages: list[Message] = []
    evidence: list[EvidenceState] = Field(default=[], description="what was in hand when it was decided")
    override: str | None = Field(default=None, description="why it went on although evidence was missing")
    note: str | None = None
    policy: Digest = Field(description="the validity policy by which the effects were told")


class Horizon(Model):
    """The repaired run so many steps after the restart, against what the run's own history lets expect there."""

    signal: str
    steps: int = Field(description="updates after the restart")
    at_step: int
    window: int = Field(description="steps that each value is the median of")
    value: Float | None = None
    start: Float | None = Field(
        default=None, description="the same median before the incident, at the restart point"
    )
    low: Float | None = None
    high: Float | None = None
    moves: int = Field(
        default=0,
        description="moves over as many steps, in the run's own history, that the band was taken from",
    )
    position: Literal["inside", "above", "below", "non_finite", "not_reached", "not_shown"]
    text: str


class SameSteps(Model):
    """Steps that were made twice: before the incident, and again by the repaired run."""

    signal: str
    steps: int
    first: int
    last: int
    equal: int = Field(description="steps whose values are equal to the last bit")
    median: Float | None = Field(default=None, description="median of repaired minus before")
    largest: Float | None = Field(default=None, description="largest magnitude of that difference")
    text: str


class Trajectory(Model):
    """The repaired run against the pre-incident one. It says whether it goes as it went, and nothing of the cause."""

    kind: Literal["trajectory"] = "trajectory"
    incident: Uid | None = None
    recovery: Uid | None = None
    segment: Uid = Field(description="the segment that the repaired run began with")
    before: list[Uid] = Field(description="the segments of the pre-incident path, oldest first")
    from_step: int = Field(description="completed updates at the restart point")
    reached: int = Field(description="last step of the repaired run that is on record")
    horizons: list[Horizon]
    same_steps: list[SameSteps] = []
    parameters: dict[str, Scalar] = {}
    limits: list[str] = Field(default=[], description="what this does not show")
