"""What the catalogue is made of: claims, concepts, keys, frameworks, and overrides of the policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
class Versions:
    """A range of versions, both ends included; None where an end is open."""

    first: tuple[int, ...] | None = None
    last: tuple[int, ...] | None = None

    @classmethod
    def of(cls, rows: Iterable[Key]) -> Versions:
        """The versions in which all of some keys exist; any, where no version has them all."""
        known = list(rows)
        since = max((version_of(r.since) for r in known if r.since is not None), default=None)
        until = min((version_of(r.until) for r in known if r.until is not None), default=None)
        if since is not None and until is not None and since >= until:
            return cls()
        return cls(since, (*until[:-1], until[-1] - 1, 10**9) if until else None)


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
    keeps: tuple[Any, ...] = ()
    """values that leave things as they are, such as starting from what is resumed"""
    none: tuple[Any, ...] = ()
    """values by which the setting is not used, such as a limit of -1"""
    values: tuple[tuple[str, Any], ...] = ()
    """what a value is called under the setting's present key, where an older key called it otherwise"""
    when: str | None = None
    """the key has an effect only while this condition holds; see `Condition`"""

    def applies(self, version: str | None) -> bool:
        """Whether the key exists in a version of its framework; an unknown version has every key."""
        return version is None or self.within(Versions(version_of(version), version_of(version)))

    def within(self, versions: Versions) -> bool:
        """Whether the key exists in some version of a range."""
        return not (
            (self.since is not None and versions.last is not None and versions.last < version_of(self.since))
            or (
                self.until is not None
                and versions.first is not None
                and versions.first >= version_of(self.until)
            )
        )

    def present(self, value: Any) -> Any:
        """What a value is called under the setting's present key."""
        if not self.values:
            return value
        told = dict(self.values)
        if isinstance(value, list | tuple):
            return [told.get(str(v).lower(), v) for v in value]
        return told.get(str(value).lower(), value)


@dataclass(frozen=True)
class Condition:
    """When a key has an effect: `fp16.enabled` is on, `lr_decay_style=WSD|cosine` is one of these, `!` is none of it.

    A key with a dot in front stands in the same section: `!.remote` holds where the section has no `remote`.
    """

    key: str
    values: tuple[str, ...] = ()
    """texts in lower case; none: anything that switches on"""
    negated: bool = False

    @classmethod
    def read(cls, text: str) -> Condition:
        """Read one from the text in a table."""
        name, equals, values = text.strip().removeprefix("!").partition("=")
        told = tuple(v.strip().lower() for v in values.split("|")) if equals else ()
        return cls(name.strip(), told, text.strip().startswith("!"))


@dataclass(frozen=True)
class Pattern:
    """Keys of a framework (or of any script) that belong to a concept without a part in the update.

    A pattern without a dot is compared with the last name of a key, one with a dot with the whole key or its tail;
    `*` stands for anything but a dot, `**` for anything.
    """

    glob: str
    concept: str
    framework: str = ""

    def regex(self) -> re.Pattern[str]:
        """The pattern over a key in its plain form."""
        parts = [re.escape(p).replace(r"\*", r"[^.]*") for p in self.glob.split("**")]
        return re.compile(r"(?:^|.*\.)" + ".*".join(parts) + "$")


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
    when: tuple[tuple[str, str], ...] = ()
    """section -> the condition under which its keys have an effect"""


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
