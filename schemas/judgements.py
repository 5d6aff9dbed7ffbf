"""Drift, regimes, mitigations, verdicts and alarms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Code, Digest, Float, Model, Scalar, Uid
from .runs import Place

ConceptClass = Literal["R", "C", "B", "O", "H", "unclassified"]
"""R new regime; C conditional; B bitwise only; O operational; H evidence or hazard."""

Status = Literal["holds", "caveat", "not_shown", "broken"]
"""From best to worst; the worst wins."""

STATUS_ORDER: tuple[Status, ...] = ("holds", "caveat", "not_shown", "broken")


class Change(Model):
    """One concept that differs between two sides. Requested and effective stand beside each other."""

    concept: str
    cls: ConceptClass = Field(alias="class")
    title: str = Field(description="the concept in words")
    keys: list[str] = Field(default=[], description="config keys that carry it")
    requested_before: Scalar | None = None
    requested_after: Scalar | None = None
    effective_before: Scalar | None = None
    effective_after: Scalar | None = None
    read_from: str | None = None
    mitigation: Uid | None = Field(
        default=None, description="the declared mitigation that this change answers to"
    )
    text: str = Field(description="one line a person reads")
    evidence: list[Uid] = Field(default=[], description="the records on which it rests")


class Drift(Model):
    """What changed between a parent and what runs now."""

    kind: Literal["drift"] = "drift"
    moment: Literal["resume", "in_run", "reported"] = "resume"
    parent_checkpoint: Uid | None = None
    from_step: int = Field(description="the first update made under the new values")
    lower_bound: str | None = Field(
        default=None,
        description="where no step is known and `from_step` is only the earliest: what is known instead, as a date",
    )
    changes: list[Change]
    unclassified: list[Change] = []
    confounded: bool = Field(description="two or more changes of class R or C at one restart")
    undeclared: list[str] = Field(default=[], description="concepts changed without a declared mitigation")
    unproven: list[str] = Field(default=[], description="declared mitigations without evidence of effect")
    not_shown: dict[str, str] = Field(default={}, description="concept or component -> what would show it")


class Regime(Model):
    """A regime opens: the conditions that results depend on are other than before."""

    kind: Literal["regime"] = "regime"
    id: Digest = Field(description="sha256 over canonical JSON of the effective values of classes R and C")
    index: int = Field(ge=0, description="number on its branch, from 0")
    from_step: int
    lower_bound: str | None = Field(default=None, description="as in the drift that opens it")
    previous: Digest | None = None
    values: dict[str, Scalar]
    because: list[str] = Field(default=[], description="the changes, one line each")


class Mitigation(Model):
    """A declared intervention. It is in effect only with evidence."""

    kind: Literal["mitigation"] = "mitigation"
    uid: Uid
    concept: str
    before: Scalar | None = None
    after: Scalar | None = None
    who: str | None = None
    why: str
    hypothesis: str | None = None
    smallest_justified: str | None = Field(default=None, description="why nothing smaller would do")


class MitigationEffect(Model):
    """Evidence for or against a declared mitigation being in effect."""

    kind: Literal["mitigation_effect"] = "mitigation_effect"
    mitigation: Uid
    in_effect: Literal["yes", "no", "not_shown"]
    from_step: int | None = None
    to_step: int | None = Field(default=None, description="last update under it; None while it lasts")
    effective: Scalar | None = None
    text: str
    evidence: list[Uid] = []


class ChainLink(Model):
    """One change on the path from the reference to the subject."""

    code: Code
    concept: str
    step: int
    segment: Uid | None = None
    declared: bool = False
    effect: Status
    text: str
    records: list[Uid] = []


class ClaimVerdict(Model):
    """What may be concluded, for one claim."""

    claim: str
    status: Status
    reason: str
    chain: list[ChainLink] = []
    show: str | None = Field(
        default=None, description="for not_shown: the line of code or command that would show it"
    )


class Verdict(Model):
    """The judgement of a run, a checkpoint or a pair, claim by claim."""

    kind: Literal["verdict"] = "verdict"
    subject: str = Field(description="run:<id>, checkpoint:<uid>")
    reference: str = Field(default="self", description="self, run:<id> or checkpoint:<uid>")
    status: Status = Field(
        description="the worst over the claims that flag a run: all but bitwise reproduction and throughput"
    )
    since_step: int | None = Field(
        default=None, description="first step from which a claim that flags a run is broken"
    )
    confounded: bool = False
    claims: list[ClaimVerdict]
    path: list[Uid] = Field(default=[], description="the segments walked, oldest first")
    policy: Digest


class Alarm(Model):
    """An abnormal value begins, changes or ends."""

    kind: Literal["alarm"] = "alarm"
    code: Code
    phase: Literal["onset", "change", "end"]
    signal: Literal["loss", "grad_norm_local", "grad_norm", "replicas"]
    scope: Literal["rank", "reduced", "group"]
    abnormal: Literal["non_finite", "out_of_range", "slow_rise", "new_level", "differs"] = Field(
        description="new_level: what stayed out of range for long is the baseline from here on; differs: ranks "
        "that must hold the same bits do not"
    )
    value: Float
    baseline: Float | None = Field(default=None, description="median of the layer's own healthy values")
    threshold: Float | None = None
    tensors: list[str] = Field(default=[], description="parameters with non-finite values, in the order seen")
    detector: dict[str, Scalar] = Field(
        default={}, description="name and parameters, so that it can be re-run"
    )
    text: str


class Cell(Model):
    """One abnormal cell: a rank at a step, and where it is known the layer and the tensor."""

    segment: Uid
    rank: int
    step: int
    signal: str = Field(
        description="a signal of the series, a kind of row of the tensors (gradient, activation, weight, ...), "
        "`replica:<tensor>` or `evaluation:<key>`"
    )
    abnormal: Literal["non_finite", "out_of_range", "differs"] = Field(
        description="differs: from what must be equal on other ranks"
    )
    value: Float
    text: str
    layer: str | None = None
    tensor: str | None = None
    order: int | None = Field(
        default=None, description="place among those of its kind in the order of execution, from 0"
    )
    last_good: int | None = Field(
        default=None,
        description="where it is not read at each step: the last step at which it was read and was as it should be",
    )


class Check(Model):
    """A check that tells explanations of a symptom apart."""

    text: str
    source: str = Field(description="where the check is from")
    command: str | None = Field(default=None, description="the command that does it, where there is one")


class Symptom(Model):
    """A class that what was seen belongs to. It says where and when, and no cause."""

    cls: Literal[
        "global",
        "one_rank",
        "some_ranks",
        "one_tensor",
        "after_restart",
        "evaluation_only",
        "unknown",
    ] = Field(alias="class")
    reason: str = Field(description="why this class, with the numbers; for unknown, what is missing")
    evidence: list[str] = []
    checks: list[Check] = Field(default=[], description="what to do next, the one that tells most first")


class BadSample(Model):
    """A sample of the first bad rank and step whose own loss is abnormal or stands out."""

    micro: int = Field(description="micro-batch of the step, from 0")
    place: int = Field(description="place in the micro-batch, from 0")
    sample: str | None = Field(default=None, description="the id that the loop or the data set gave it")
    digest: str | None = None
    loss: Float
    text: str


class FirstBad(Model):
    """Where it began, as far as the ledger shows."""

    kind: Literal["first_bad"] = "first_bad"
    cell: Cell | None
    ties: list[Cell] = []
    place: Place | None = Field(default=None, description="where the rank of the cell ran")
    last_good_step: int | None = None
    last_good_checkpoint: Uid | None = None
    first_bad_checkpoint: Uid | None = None
    spread: list[str] = Field(default=[], description="how it spread from there, in order")
    later: list[str] = Field(default=[], description="later symptoms, which are not the beginning")
    samples: list[BadSample] = []
    symptoms: list[Symptom] = Field(default=[], description="the classes that it belongs to")
    gaps: list[str] = Field(default=[], description="ranks or steps that the ledger does not show")
    not_shown: list[str] = Field(
        default=[], description="what cannot be known of it, and what would show it where that is known"
    )
