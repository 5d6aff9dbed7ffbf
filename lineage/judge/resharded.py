"""Whether a state was restored, whatever the number of ranks and the sharding on either side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from .. import digest_text
from . import rank_sets
from .whole_state import WholeState, placed

Status = Literal["restored", "differs", "absent", "not_recorded"]


@dataclass
class Component:
    """One component on both sides."""

    status: Status
    equal: int = 0
    """tensors with the same digest"""
    differing: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """tensors of the save that the live state has not"""
    new: list[str] = field(default_factory=list)
    """tensors of the live state that the save had not"""
    zero: list[str] = field(default_factory=list)
    """of those that differ: every bit of them is 0 now, as something made anew has them"""
    unknown: dict[str, str] = field(default_factory=dict)
    """tensors that cannot be compared -> why"""


@dataclass
class Resharded:
    """A save and the state of a resume beside each other."""

    saved_ranks: tuple[int, ...]
    live_ranks: tuple[int, ...]
    missing: dict[str, tuple[int, ...]]
    """side -> ranks that wrote nothing down"""
    components: dict[str, Component] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst of the components; nothing at all is `not_recorded`."""
        found = {c.status for c in self.components.values()}
        return next((s for s in _WORST if s in found), "not_recorded")

    def lines(self, most: int = 4) -> list[str]:
        """What was found, in words: a head, and a line for each component."""
        sides = f"saved on {_ranks(self.saved_ranks)}, resumed on {_ranks(self.live_ranks)}"
        some = any(c.status == "restored" for c in self.components.values())
        word = (
            "what can be compared is equal" if self.status == "not_recorded" and some else _WORDS[self.status]
        )
        out = [f"{sides}: {word}"]
        out += [f"{name}: {_said(c, most)}" for name, c in self.components.items()]
        for side, ranks in self.missing.items():
            if ranks:
                out.append(f"{side}: {rank_sets.words(ranks)} wrote nothing down")
        return out


_WORST: tuple[Status, ...] = ("differs", "absent", "not_recorded", "restored")
_WORDS = {
    "restored": "equal",
    "differs": "not equal",
    "absent": "not all restored",
    "not_recorded": "cannot be told",
}


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"{len(ranks):,} rank{'' if len(ranks) == 1 else 's'}"


def _said(c: Component, most: int) -> str:
    parts = [f"{c.equal:,} tensors equal"]
    for word, names in (("differ", c.differing), ("absent", c.absent), ("new", c.new)):
        if names:
            parts.append(f"{len(names):,} {word} ({_some(names, most)})")
    if c.unknown:
        first, why = next(iter(c.unknown.items()))
        parts.append(f"{len(c.unknown):,} cannot be compared ({first}: {why})")
    return ", ".join(parts)


def _some(names: Iterable[str], most: int) -> str:
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def compare(saved: WholeState, live: WholeState) -> Resharded:
    """Compare the state at a save with that before the first step after a load, tensor by tensor."""
    out = Resharded(saved.ranks, live.ranks, {"at the save": saved.missing, "at the resume": live.missing})
    for key in sorted({*saved.tensors, *live.tensors}):
        component, name = placed(*key)
        found = out.components.setdefault(component, Component("restored"))
        a, b = saved.tensors.get(key), live.tensors.get(key)
        if a is None or b is None:
            side = live if b is None else saved
            if not side.tensors or side.missing:
                found.unknown[name] = "nothing is on record of it on the other side"
            else:
                (found.absent if b is None else found.new).append(name)
        elif a.digest is None or b.digest is None:
            found.unknown[name] = (a.why if a.digest is None else b.why) or ""
        elif a.digest == b.digest:
            found.equal += 1
        else:
            found.differing.append(name)
            if b.head is not None and b.digest == digest_text.finish(b.head, [0, 0]):
                found.zero.append(name)  # each element adds its bits times a weight, so zeros add nothing
    for c in out.components.values():
        c.status = _status(c)
    return out


def _status(c: Component) -> Status:
    if c.differing:
        return "differs"
    if c.absent or c.new:
        return "absent" if c.absent else "differs"
    return "not_recorded" if c.unknown else "restored"
