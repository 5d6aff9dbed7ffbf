"""What the catalogue is made of: claims, concepts, keys, frameworks, and overrides of the policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..judgements import STATUS_ORDER, ConceptClass, Status


@dataclass(frozen=True)
class Claim:
    """A downstream conclusion that somebody may want to draw."""

    id: str
    title: str
    needs: tuple[str, ...] = ()
    flags: bool = True
    """whether a verdict of this claim flags the run; one that does not is shown with the others"""


@dataclass(frozen=True)
class Effects:
    """What a change does to the claims, and why in words that complete "... changed, and ..."."""

    cls: ConceptClass
    reason: str
    breaks: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def of(self, claim: str) -> Status:
        """What a change does to a claim."""
        if claim in self.breaks:
            return "broken"
        return "caveat" if claim in self.caveats else "holds"


@dataclass(frozen=True)
class Concept:
    """A training condition, its class, and what a change of it does."""

    id: str
    title: str
    cls: ConceptClass
    reason: str
    breaks: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    condition: str | None = None
    """the class stands while this is so; None where it is unconditional"""
    otherwise: Effects | None = None
    """class and effects where the condition does not hold"""
    noise: bool = False
    """a change is no part of drift"""
    numeric: bool = False
    """a number is due; other text is kept, and said"""
    ordered: bool = False
    """the order of a list matters, not only its content"""
    off: tuple[float, ...] = ()
    """values that mean none"""
    words: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    overrides: Mapping[str, Status] = field(default_factory=dict)

    @property
    def conditional(self) -> bool:
        """Whether the class depends on something that a config alone may not show."""
        return self.condition is not None

    def effect(self, claim: str, cls: ConceptClass | None = None) -> Status:
        """What a change of this concept does to a claim.

        `cls` is the class that the change at hand was given: that of `otherwise`, where the condition does not
        hold, or "O" for a change that shows nowhere.
        """
        chosen = self.effects(cls)
        if chosen is None:
            return "holds"
        return self.overrides.get(claim) or chosen.of(claim)

    def effects(self, cls: ConceptClass | None = None) -> Effects | None:
        """The effects under a class; None for a change that shows nowhere."""
        if self.otherwise is not None and cls == self.otherwise.cls != self.cls:
            return self.otherwise
        if cls == "O" != self.cls:
            return None
        return Effects(self.cls, self.reason, self.breaks, self.caveats)

    def why_so(self, claim: str, effect: Status) -> str:
        """The reason for an effect that a change had: that of the other class where the class does not lead to it."""
        if self.otherwise is not None and self.effect(claim) != effect == self.otherwise.of(claim):
            return self.otherwise.reason
        return self.reason

    def why(self, cls: ConceptClass | None = None) -> str:
        """The reason that goes with a class, to be read aloud."""
        chosen = self.effects(cls)
        return chosen.reason if chosen else "what it sets stays as it was in effect"


UNCLASSIFIED = Concept(
    id="unclassified",
    title="unclassified config key",
    cls="unclassified",
    reason="no concept is known for this key, so what it does to results is not known either",
)


@dataclass(frozen=True)
class Key:
    """A config key of a framework, or of any training script where `framework` is empty."""

    name: str
    concept: str
    setting: str = ""
    """keys of one setting are names of one thing; "" is the concept's main value"""
    framework: str = ""
    default: Any = None
    has_default: bool = False
    since: str | None = None
    until: str | None = None
    derived: tuple[Any, ...] = ()
    """values that state nothing: the framework works them out"""
    unit: Literal["samples", "tokens"] = "samples"
    negates: bool = False
    """True says what False says under the setting's other key"""
    ranks: bool = False
    """an accumulation that counts the micro-batches of all ranks"""
    open: bool = False
    """free-form in the framework, so its source does not list it"""
    beside: str | None = None
    """the key means this only where the config has a key of that concept too"""

    def applies(self, version: str | None) -> bool:
        """Whether the key exists in a version of its framework; an unknown version has every key."""
        if version is None:
            return True
        at = version_of(version)
        return not (
            (self.since is not None and at < version_of(self.since))
            or (self.until is not None and at >= version_of(self.until))
        )


@dataclass(frozen=True)
class Framework:
    """A framework, and what is true of every run in it."""

    id: str
    title: str
    distribution: str | None = None
    repository: str | None = None
    extends: str | None = None
    read: tuple[str, ...] = ()
    """versions or commits whose source the keys were compared with"""
    beside: str | None = None
    """a second distribution whose keys stand here too"""
    beside_read: tuple[str, ...] = ()
    loss: Literal["tokens", "means"] | None = None
    loss_since: str | None = None
    lengths: Literal["equal"] | None = None
    """every sequence has the same number of targets, so a mean of means is the mean over tokens"""


@dataclass(frozen=True)
class Override:
    """A cell of the policy that a site or a run set otherwise, with who answers for it and why."""

    concept: str
    claim: str
    status: Status
    was: Status
    who: str
    why: str
    source: str

    @property
    def weaker(self) -> bool:
        """Whether it lets pass what the shipped policy does not."""
        return STATUS_ORDER.index(self.status) < STATUS_ORDER.index(self.was)


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version, for comparison: "0.3.1rc2" is (0, 3, 1)."""
    numbers = [int(n) for n in re.match(r"(?:\d+\.)*\d*", text.strip())[0].split(".") if n]  # type: ignore[index]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
