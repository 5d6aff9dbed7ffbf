"""What a rule of the suspects is: one function, the words of its line, the class of its evidence, and its source.

A rule looks at what is known around a first bad cell and says what it finds, with the records that it rests on. It
finds something that fits a family of causes, or speaks against it; it never finds a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .sources import Source

if TYPE_CHECKING:
    from .known import Known

FamilyId = Literal["data", "numerics", "optimizer", "distributed", "hardware", "code"]
Side = Literal["for", "against"]
Evidence = Literal["flip", "exact", "replay", "timing", "shape", "absence"]

EVIDENCE: dict[Evidence, str] = {
    "flip": "a replay that flips with one condition changed",
    "exact": "bits, digests, ids or counters",
    "replay": "a replay that does not flip, or changes more than one thing",
    "timing": "what changed or happened just before",
    "shape": "where and how it shows",
    "absence": "that something else was not seen",
}
"""Class of evidence -> what it is, the strongest first."""

WORDS: dict[Side, str] = {"for": "fits", "against": "speaks against"}


@dataclass(frozen=True)
class Said:
    """What a rule found: the line, and what it rests on (ids of records, or rows of a series)."""

    text: str
    records: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One rule."""

    id: str
    family: FamilyId
    side: Side
    evidence: Evidence
    says: str
    """what it looks for, and what follows, as the documentation has it"""
    source: Source
    look: Callable[[Known], Iterable[Said]]


@dataclass(frozen=True)
class Next:
    """A check that tells this family apart from others, with its command filled in."""

    text: str
    source: Source
    command: str | None = None


@dataclass(frozen=True)
class Line:
    """One line of evidence: what a rule said of one incident."""

    rule: str
    family: FamilyId
    side: Side
    evidence: Evidence
    text: str
    records: tuple[str, ...]
    source: str


@dataclass
class Family:
    """The rules of one family, in the order in which its lines stand; its checks; and what evidence may "
    "be missing."""

    id: FamilyId
    title: str
    rules: list[Rule] = field(default_factory=list)
    checks: list[Callable[[Known], Next | None]] = field(default_factory=list)
    """the one that tells most first; one that does not apply, or was made, gives None"""
    gaps: list[Callable[[Known], Iterable[str]]] = field(default_factory=list)
    """what is not on record, each with the line or command that would show it"""

    def rule(
        self, name: str, side: Side, evidence: Evidence, source: Source
    ) -> Callable[[Callable[[Known], Iterable[Said]]], Callable[[Known], Iterable[Said]]]:
        """Add a function as a rule. Its docstring is what the rule says, in the documentation too."""

        def add(look: Callable[[Known], Iterable[Said]]) -> Callable[[Known], Iterable[Said]]:
            says = " ".join((look.__doc__ or "").split())
            self.rules.append(Rule(f"{self.id}/{name}", self.id, side, evidence, says, source, look))
            return look

        return add

    def check(self, look: Callable[[Known], Next | None]) -> Callable[[Known], Next | None]:
        """Add a function as a check, after those that tell more."""
        self.checks.append(look)
        return look

    def gap(self, look: Callable[[Known], Iterable[str]]) -> Callable[[Known], Iterable[str]]:
        """Add a function that says what is not on record."""
        self.gaps.append(look)
        return look

    def lines(self, known: Known) -> list[Line]:
        """What the rules say of one incident."""
        return [
            Line(r.id, r.family, r.side, r.evidence, said.text, said.records, r.source.title)
            for r in self.rules
            for said in r.look(known)
        ]

    def next(self, known: Known) -> Next | None:
        """The check that tells most of those that are still open."""
        return next((found for check in self.checks if (found := check(known)) is not None), None)

    def missing(self, known: Known) -> list[str]:
        """What evidence is not on record."""
        return [text for gap in self.gaps for text in gap(known)]
