"""The suspects of one incident: each family's lines, in an order that follows from classes of evidence alone.

No line is counted and nothing is weighed. Of two families the one comes first that has evidence for it while the other
has none; else the one whose strongest class speaks for it: for each class, from the strongest, it is asked whether what
a family has of it speaks for it, for and against, or against. Families that this does not part are ties, and are said
so. The order is no order of likelihood: it says where evidence lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from . import (
    code_config,
    data,
    distributed,
    hardware_software,
    numerics,
    optimizer_schedule,
    replays,
    sources,
)
from .known import Known
from .rules import EVIDENCE, Evidence, Family, Line, Next, Rule, Side

FAMILIES: tuple[Family, ...] = (
    data.family,
    numerics.family,
    optimizer_schedule.family,
    distributed.family,
    hardware_software.family,
    code_config.family,
)
"""All families; families without evidence stand in this order, as a tie."""


@dataclass(frozen=True)
class Suspect:
    """One family, with all that is known of it."""

    family: str
    title: str
    place: int
    """1 for the first; families that evidence does not part have one place"""
    lines: tuple[Line, ...]
    next: Next | None
    missing: tuple[str, ...]

    def of(self, side: Side) -> list[Line]:
        """The lines that fit, or those that speak against, the strongest class first."""
        order = list(EVIDENCE)
        return sorted((n for n in self.lines if n.side == side), key=lambda n: order.index(n.evidence))

    @property
    def strongest(self) -> Evidence | None:
        """The strongest class of evidence for it; None without any."""
        fits = self.of("for")
        return fits[0].evidence if fits else None

    @property
    def replayed(self) -> bool:
        """Whether a replay flips with one condition of this family: what is needed before a cause may be "
        "confirmed."""
        return self.strongest == "flip"


@dataclass(frozen=True)
class Suspects:
    """All families, in order."""

    found: tuple[Suspect, ...]
    answer: str
    """in one sentence; `unknown` where nothing fits any family"""
    missing: tuple[str, ...] = ()
    """evidence that is on record for no family, and would tell most"""

    @property
    def unknown(self) -> bool:
        """Whether no evidence fits any family."""
        return all(s.strongest is None for s in self.found)

    @property
    def first(self) -> list[Suspect]:
        """The families at the first place; none where nothing fits any."""
        return [] if self.unknown else [s for s in self.found if s.place == 1]


def suspects(known: Known) -> Suspects:
    """Judge one incident."""
    told = replays.lines(known)
    found = [(f, [*f.lines(known), *(n for n in told if n.family == f.id)]) for f in FAMILIES]
    ordered = sorted(found, key=lambda item: _key(item[1]), reverse=True)
    out: list[Suspect] = []
    place = 1
    for _, same in groupby(ordered, key=lambda item: _key(item[1])):
        group = list(same)
        for f, lines in group:
            out.append(Suspect(f.id, f.title, place, tuple(lines), f.next(known), tuple(f.missing(known))))
        place += len(group)
    return Suspects(tuple(out), _answer(out), tuple(_missing(known)))


def _key(lines: Sequence[Line]) -> tuple[bool, tuple[int, ...]]:
    """What families are ordered by: whether anything fits, then class by class whether it fits or speaks against."""
    by_class = {c: {n.side for n in lines if n.evidence == c} for c in EVIDENCE}
    nets = tuple(("for" in sides) - ("against" in sides) for sides in by_class.values())
    return any(n.side == "for" for n in lines), nets


def _answer(found: Sequence[Suspect]) -> str:
    first = [s for s in found if s.place == 1]
    if first[0].strongest is None:
        return "unknown: nothing on record fits any family. That is an answer; what would tell more is listed below"
    names = " and ".join(s.title for s in first)
    what = EVIDENCE[first[0].strongest]
    if len(first) == 1:
        confirmed = (
            "a replay flips with one condition of it"
            if first[0].replayed
            else "no replay that flips with one condition confirms it yet"
        )
        return f"{names} first: {what}; {confirmed}. That something fits is not shown to be the cause"
    return f"{names} stand alike ({what}): what is on record does not part them"


def _missing(known: Known) -> list[str]:
    """Evidence that no family can do without."""
    out = []
    if known.bundle is None:
        out.append(
            "the evidence of the bad step in a bundle, so that it can be made again: `lineage bundle show`"
        )
    elif not known.replays:
        out.append(
            f"a replay: `{known.replay()}`, first with nothing changed, then with one `--change` at a time. A cause is "
            "confirmed by a replay that flips with one condition, and by nothing else"
        )
    return out


def rules() -> list[Rule]:
    """All rules, family by family."""
    return [r for f in FAMILIES for r in f.rules]


def checks_of(known: Known, first: Sequence[Suspect]) -> list[Next]:
    """The checks that part families that stand alike, each once."""
    out: list[Next] = []
    for s in first:
        if s.next is not None and s.next not in out:
            out.append(s.next)
    return out or [
        Next("the step again from the last good checkpoint, with every rank recording", sources.GUIDE)
    ]
