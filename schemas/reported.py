"""What others reported of a run: entries of logbooks, launch scripts and configs, and how they are judged."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Model, Scalar, Uid
from .judgements import ConceptClass, Status


class Source(Model):
    """Where a value was read. Machine facts stand above human text."""

    name: str = Field(description="file, or the citation that the entry itself gives")
    place: str | None = Field(default=None, description="line, entry number, key or version inside it")
    authority: Literal["machine", "person"] = Field(
        description="machine: a config, a launch script, a log; person: what somebody wrote down"
    )


class Reported(Model):
    """One entry that was read into the ledger: at this point, this concept went from one value to another.

    Nothing is dropped: a field that cannot be read as what it should be is kept as it stands, and `problems`
    says so.
    """

    kind: Literal["reported"] = "reported"
    uid: Uid
    order: int = Field(ge=0, description="number of the entry in its source, from 0")
    step: int | None = None
    date: str | None = Field(default=None, description="as written, such as 2022-03 or 2022-03-24")
    restart_from: int | None = Field(
        default=None, description="completed updates in the state restarted from"
    )
    placed_by: Literal["step", "restart", "neighbours", "nothing"] = "nothing"
    placed_at: int | None = Field(
        default=None,
        description="the step at which it is placed; a lower bound where `placed_by` is neighbours",
    )
    concept: str = Field(description="the word of the source")
    cls: ConceptClass | None = Field(
        default=None, alias="class", description="class of the difference, where two configs were compared"
    )
    comparison: Uid | None = Field(
        default=None,
        description="the comparison of two configs that this is a difference of; its differences came together",
    )
    keys: list[str] = Field(
        default=[], description="config keys that carry it, where two configs were compared"
    )
    difference: str | None = Field(
        default=None, description="every one of these keys with its two values, masked, in one line"
    )
    before: Scalar | None = Field(
        default=None, description="value of the first of `keys`, or as the source gives it"
    )
    after: Scalar | None = None
    text: str | None = Field(default=None, description="what a person wrote beside it, masked; never judged")
    problems: list[str] = Field(default=[], description="what could not be read, placed or believed")
    extra: dict[str, Scalar] = Field(
        default={}, description="other fields of the entry, masked; never judged"
    )
    source: Source


class ReportedJudgement(Model):
    """Whether an entry opens a new regime, and the rule that decides it."""

    kind: Literal["reported_judgement"] = "reported_judgement"
    reported: Uid
    regime_change: Literal["yes", "no", "cannot_tell"]
    concepts: list[str] = Field(description="canonical concepts that the entry's word stands for")
    cls: ConceptClass = Field(alias="class")
    rule: str = Field(description="the rule that decided, such as value-changed or operation-only")
    reason: str = Field(description="one sentence a person can read aloud")
    beside: list[Uid] = Field(
        default=[], description="other entries at the same restart that change the regime"
    )
    effects: dict[str, Status] = Field(default={}, description="claim -> what the change does to it")
