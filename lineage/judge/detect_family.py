"""A family of streams judged together: the layers of one step, or its ranks.

Hundreds of layers must not mean hundreds of times the alarms, and a global norm hides a layer (with 300 layers of
equal norm, one at ten times its norm moves the whole by 1.15). So each member is compared with its own recent
values, in the log domain, but what is judged is two numbers per step, each a stream with a spike detector of its
own. The rate of false alarms then hardly grows with the number of members, however they move together:

- the **worst** member: each member's value relative to the middle member of the step, its distance from that
  ratio's own recent median in its own deviations, and the largest of these distances over the family;
- the **vote**: the jump that `vote_share` of the members exceed together, which is what all of them do when the
  batch or the learning rate is at fault.

Non-finite values are named member by member. Flagged values never enter a baseline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from .detect_window import Window
from .detectors import TO_SIGMA, Abnormal, Detector, Plain, Rule, check_state, parameters_of

WORST = Rule(
    "worst-member/1",
    log=False,
    warmup=16,
    window=128,
    centre=64,
    sigmas=7.0,
    relative=0.0,
    absolute=2.0,
    patience=256,
)
"""How far the worst member's distance may lie above what it usually is; unit: deviations of a member.

Its patience and that of the vote are longer than a member's, which is to move first."""
VOTE = Rule(
    "member-vote/1", log=False, warmup=16, sigmas=6.5, relative=0.0, absolute=math.log(3.0), patience=256
)
"""How far the jump of a share of the members may lie above what it usually is; unit: nats."""


@dataclass(frozen=True)
class FamilyRule:
    """The parameters of a family's detector; recorded with each finding."""

    name: str
    warmup: int = 16
    """healthy values of a member before it takes part"""
    window: int = 64
    """healthy values that a member's deviation is estimated from"""
    centre: int = 9
    """healthy values that a member's baseline is the median of"""
    least_scale: float = 0.05
    """least deviation of a member, in nats"""
    least_jump: float = math.log(3.0)
    """least jump of a single member beyond the middle member's, in nats"""
    stay: float = 0.5
    """a member that is flagged stays so above this share of the bound that it passed, in nats"""
    vote_share: float = 0.25
    """the vote needs this share of the members, and three of them"""
    patience: int = 64
    """flagged values of a member in a row after which their level becomes its baseline"""

    def parameters(self) -> dict[str, Plain]:
        """This rule and those of its two streams as plain values."""
        out = parameters_of(self)
        for prefix, rule in (("worst", WORST), ("vote", VOTE)):
            out |= {f"{prefix}.{k}": v for k, v in rule.parameters().items()}
        return out


LAYERS = FamilyRule("layers/1")
RANKS_OVER_TIME = FamilyRule("ranks-over-time/1")
"""Ranks with their past, where `detect_ranks` has none: finds far smaller jumps, after a warm-up."""


@dataclass(frozen=True)
class FamilyFinding:
    """What is abnormal among the members of a family at one step."""

    abnormal: Abnormal
    by: Literal["non_finite", "worst", "vote", "new_level"]
    members: tuple[str, ...]
    """the members that are abnormal, the farthest first; non-finite ones in the order given"""
    value: float
    """the first one's norm"""
    baseline: float | None
    """what was usual for that member"""
    threshold: float | None
    """the norm from which that member would have been flagged"""
    of: int
    """members that took part"""
    detector: Mapping[str, Plain] = field(default_factory=dict)


class _Member:
    """One member's healthy values, in nats: the last few as they were, more of them relative to the middle member."""

    __slots__ = ("bound", "flagged", "last", "moves", "relative")

    def __init__(self, rule: FamilyRule, healthy: Iterable[Sequence[float]] = ()) -> None:
        self.last: deque[float] = deque(maxlen=rule.centre)
        self.relative, self.moves = Window(rule.window), Window(rule.window - 1)
        self.flagged: list[tuple[float, float]] = []
        self.bound: float | None = None
        """the jump that it was flagged for passing, while it is flagged"""
        for x, r in healthy:
            self.accept(x, r)

    def accept(self, x: float, r: float) -> None:
        if len(self.relative):
            self.moves.push(abs(r - self.relative.newest()))
        self.relative.push(r)
        self.last.append(x)


class _Place(NamedTuple):
    """Where one member stands at this step, in nats: its jump, and its jump relative to the middle member."""

    name: str
    jump: float
    alone: float
    scale: float


class Family:
    """Judges the norms of all members of one step. Costs O(window) per member at most, and no array library."""

    def __init__(self, rule: FamilyRule = LAYERS, state: Mapping[str, Any] | None = None) -> None:
        """A new detector, or one that goes on from what `state()` gave."""
        if state is not None:
            check_state(state, rule.name)
        self.rule = rule
        self._worst = Detector(WORST, state["worst"] if state else None)
        self._vote = Detector(VOTE, state["vote"] if state else None)
        self._members: dict[str, _Member] = {}
        for name, kept in (state["members"] if state else {}).items():
            member = self._members[name] = _Member(rule)
            member.relative = Window(rule.window, kept["relative"])
            steps = zip(kept["relative"], kept["relative"][1:], strict=False)
            member.moves = Window(rule.window - 1, (abs(b - a) for a, b in steps))
            member.last.extend(kept["last"])
            member.flagged = [(x, r) for x, r in kept["flagged"]]
            member.bound = kept["bound"]

    def state(self) -> dict[str, Any]:
        """All that the next verdict depends on, as JSON values."""
        members = {
            name: {
                "relative": member.relative.values(),
                "last": list(member.last),
                "flagged": [list(pair) for pair in member.flagged],
                "bound": member.bound,
            }
            for name, member in self._members.items()
        }
        return {
            "name": self.rule.name,
            "worst": self._worst.state(),
            "vote": self._vote.state(),
            "members": members,
        }

    def update(self, norms: Mapping[str, float]) -> list[FamilyFinding]:
        """Judge one step's values by member. A member that is absent or zero (an expert without tokens) is left out."""
        out: list[FamilyFinding] = []
        broken = tuple(n for n, v in norms.items() if not math.isfinite(v))
        if broken:
            out.append(self._finding("non_finite", broken, norms[broken[0]], of=len(norms)))
        xs = {n: math.log(v) for n, v in norms.items() if math.isfinite(v) and v > 0.0}
        if not xs:
            return out
        middle = median(xs.values())
        places = self._places(xs, middle)
        flagged: set[str] = set()
        for by, found, threshold in (self._single(places), self._voted(places)):
            if found:
                flagged.update(p.name for p in found)
                p = found[0]
                value = norms[p.name]
                baseline = _exp(xs[p.name] - (p.alone if by == "worst" else p.jump))
                names = tuple(q.name for q in found)
                out.append(self._finding(by, names, value, len(places), baseline, baseline * _exp(threshold)))
        moved = [n for n, x in xs.items() if self._enter(n, x, x - middle, n in flagged)]
        if moved:
            out.append(self._finding("new_level", tuple(moved), norms[moved[0]], len(places)))
        return out

    def _places(self, xs: Mapping[str, float], middle: float) -> list[_Place]:
        """The members that have enough healthy values."""
        out = []
        for name, x in xs.items():
            member = self._members.get(name)
            if member is None or len(member.relative) < self.rule.warmup:
                continue
            usual = median(member.relative.tail(self.rule.centre))
            scale = max(TO_SIGMA * member.moves.median(), self.rule.least_scale)
            out.append(_Place(name, x - median(member.last), x - middle - usual, scale))
        return out

    def _single(self, places: list[_Place]) -> tuple[Literal["worst"], list[_Place], float]:
        """The members above what the worst member may be, and the first one's limit in nats."""
        if not places:
            return "worst", [], math.inf
        places = sorted(places, key=lambda p: p.alone / p.scale, reverse=True)
        found = self._worst.update(places[0].alone / places[0].scale)
        limit = math.inf
        if found is not None and found.abnormal == "out_of_range" and found.threshold is not None:
            limit = found.threshold
        odd: list[_Place] = []
        first = math.inf
        for p in places:
            member = self._members[p.name]
            bound = max(limit * p.scale, self.rule.least_jump)
            if member.bound is not None:
                bound = min(bound, self.rule.stay * member.bound)
            if p.alone > bound:
                first = first if odd else bound
                member.bound = member.bound or bound
                odd.append(p)
        return "worst", odd, first

    def _voted(self, places: list[_Place]) -> tuple[Literal["vote"], list[_Place], float]:
        """The members that jumped together, where they are a share of all, and the limit in nats."""
        needed = max(3, math.ceil(self.rule.vote_share * len(places)))
        if len(places) < needed:
            return "vote", [], math.inf
        places = sorted(places, key=lambda p: p.jump, reverse=True)
        found = self._vote.update(places[needed - 1].jump)
        if found is None or found.abnormal != "out_of_range" or found.threshold is None:
            return "vote", [], math.inf
        return "vote", [p for p in places if p.jump > found.threshold], found.threshold

    def _enter(self, name: str, x: float, r: float, flagged: bool) -> bool:
        """Add a healthy value, or count a flagged one; true when a flagged level becomes the baseline."""
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(self.rule)
        if not flagged:
            member.flagged.clear()
            member.bound = None
            member.accept(x, r)
            return False
        member.flagged.append((x, r))
        if len(member.flagged) < self.rule.patience:
            return False
        self._members[name] = _Member(self.rule, member.flagged)
        return True

    def _finding(
        self,
        by: Literal["non_finite", "worst", "vote", "new_level"],
        members: tuple[str, ...],
        value: float,
        of: int,
        baseline: float | None = None,
        threshold: float | None = None,
    ) -> FamilyFinding:
        abnormal: Abnormal = "out_of_range"
        if by in ("non_finite", "new_level"):
            abnormal = by
        return FamilyFinding(abnormal, by, members, value, baseline, threshold, of, self.rule.parameters())


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))
