"""Whether ranks that hold copies of one tensor hold the same bits, from what each rank wrote down by itself.

Ranks are compared only where placement declares that they must agree (see `lineage.capture.placement`), or where
they were seen to agree: a tensor on which ranks agreed bit for bit after updates on batches of their own is a
replica, whoever says so, and it is told when that ends. Where ranks differ from the first digest on, or part from
a value that no update had moved (a norm of ones on each stage, while a warm-up starts at 0), and nothing declares
that they must not, most likely each has a tensor of its own, and nothing is said, unless nearly all agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import rank_sets

Lanes = tuple[int, int]
Kind = str
WEIGHT, BUFFER_KIND = "weight", "buffer"
ZEROS: Lanes = (0, 0)
"""What is digested of a tensor of zeros."""


@dataclass(frozen=True)
class State:
    """The digest of one tensor's local part on one rank at the end of a step."""

    rank: int
    step: int
    kind: Kind
    tensor: str
    part: str
    groups: tuple[str, ...]
    """ids of the groups that must agree; empty where nothing is declared"""
    lanes: Lanes


@dataclass(frozen=True)
class Disagreement:
    """One tensor on which ranks differ that must agree, or agreed before."""

    kind: Kind
    tensor: str
    part: str
    step: int
    """the first digest at which they differ"""
    agreed: int | None
    """the last digest before it at which they agreed; None where they never did"""
    classes: tuple[tuple[int, ...], ...]
    """ranks by what they hold at `step`, the largest class first"""
    declared: bool
    """whether placement says that they must agree; else they were seen to"""
    group: str | None = None
    until: int | None = None
    """the first later digest at which all of them were compared and agree again"""
    held: frozenset[Kind] = frozenset()
    """everything that was digested of the tensor, whether it differs or not"""

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks outside a majority; empty where more than half of them hold no one thing."""
        every = sum(map(len, self.classes))
        if 2 * len(self.classes[0]) <= every:
            return ()
        return tuple(sorted(r for c in self.classes[1:] for r in c))

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that were compared."""
        return tuple(sorted(r for c in self.classes for r in c))


@dataclass
class Compared:
    """What was compared, and what was found."""

    found: list[Disagreement] = field(default_factory=list)
    tensors: int = 0
    """tensors that at least two ranks were compared on"""
    steps: list[int] = field(default_factory=list)
    missing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """step -> ranks that wrote no digest of it, where others did"""
    own: list[str] = field(default_factory=list)
    """tensors on which ranks differ, and nothing declares that they must not, or showed them to be replicas"""


def compare(states: Iterable[State], members: Mapping[str, Sequence[int]], world: int = 0) -> Compared:
    """Compare the ranks of one segment. `members`: id of a group -> its ranks; `world`: how many ranks there are."""
    by_tensor: dict[tuple[Kind, str, str], dict[int, list[State]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[int, set[int]] = defaultdict(set)
    for s in states:
        by_tensor[s.kind, s.tensor, s.part][s.step].append(s)
        seen[s.step].add(s.rank)
    every = set(range(world)).union(*seen.values())
    out = Compared(steps=sorted(seen))
    out.missing = {step: tuple(sorted(every - ranks)) for step, ranks in seen.items() if every - ranks}
    held: dict[tuple[str, str], set[Kind]] = defaultdict(set)
    for kind, tensor, part in by_tensor:
        held[tensor, part].add(kind)
    for (tensor, part), kinds in held.items():
        learned: int | None = None  # the first step at which ranks share what gradients left in the optimizer
        for kind in sorted(kinds):  # the optimizer's kinds come before `weight`
            steps = by_tensor[kind, tensor, part]
            _one(out, kind, tensor, part, steps, members, frozenset(kinds), learned)
            if learned is None and kind not in (WEIGHT, BUFFER_KIND):
                learned = _learned(steps)
    out.found.sort(key=lambda d: (d.step, d.kind, d.tensor, d.part))
    out.own.sort()
    return out


def _one(
    out: Compared,
    kind: Kind,
    tensor: str,
    part: str,
    steps: Mapping[int, Sequence[State]],
    members: Mapping[str, Sequence[int]],
    held: frozenset[Kind],
    learned: int | None,
) -> None:
    """Compare one tensor's part over all steps: within each declared group, then between those that none joins."""
    watch: dict[str | None, _Course] = {}
    compared = False
    for step in sorted(steps):
        here = steps[step]
        lanes = {s.rank: s.lanes for s in here}
        groups = {g for s in here for g in s.groups}
        for g in groups:
            found = {r: lanes[r] for r in members.get(g, ()) if r in lanes}
            if len(found) > 1:
                compared = True
                watch.setdefault(g, _Course(g, learned)).look(step, found)
        if not _joined(lanes, groups, members) and len(lanes) > 1:
            compared = True
            watch.setdefault(None, _Course(None, learned)).look(step, lanes)
    out.tensors += compared
    for course in watch.values():
        found_one = course.result(kind, tensor, part, held)
        if found_one is not None:
            out.found.append(found_one)
        elif course.never and len(watch) == 1:  # else each group of ranks has its own, as declared
            out.own.append(f"{kind} {tensor}")


def _joined(lanes: Mapping[int, Lanes], groups: Iterable[str], members: Mapping[str, Sequence[int]]) -> bool:
    """Whether one declared group holds all of these ranks: then nothing is left to be observed."""
    return any(set(lanes) <= set(members.get(g, ())) for g in groups)


class _Course:
    """What ranks hold of one tensor, digest by digest."""

    def __init__(self, group: str | None, learned: int | None = None) -> None:
        self.group, self._learned = group, learned
        self._agreed: dict[int, int] = {}
        """rank -> the last digest at which it was compared, and all agreed"""
        self._value: Lanes | None = None
        self._moved = False
        """whether what all agreed on has changed"""
        self._first: tuple[int, tuple[tuple[int, ...], ...]] | None = None
        self._until: int | None = None
        self._unproven: dict[int, Lanes] = {}
        """what nearly all held at the first digest, as long as nothing shows that they are replicas"""
        self.never = False
        """not declared, and not seen to be replicas before they differed"""

    def look(self, step: int, lanes: Mapping[int, Lanes]) -> None:
        classes = _classes(lanes)
        if self._unproven:
            self._prove(lanes)
        if len(classes) == 1:
            if self._first is None:
                self._agreed.update(dict.fromkeys(lanes, step))
                value = lanes[classes[0][0]]
                self._moved = self._moved or self._value not in (None, value)
                self._value = value
            elif self._until is None and all(r in lanes for c in self._first[1] for r in c):
                self._until = step
        elif self._first is None and not self.never:
            if self.group is None and not self._replicas(classes, lanes):
                self.never = True  # nothing ever said that they are replicas
            else:
                self._first = step, classes
                if self.group is None and not self._agreed and not self._shared(step):
                    self._unproven = {r: lanes[r] for r in classes[0]}

    def _prove(self, lanes: Mapping[int, Lanes]) -> None:
        """Nearly all held one thing at the first digest: an update that they share shows that they are replicas."""
        now = {lanes[r] for r in self._unproven if r in lanes}
        if len(now) > 1:  # a norm of ones, or moments of experts that no token had reached
            self.never, self._first, self._until = True, None, None
            self._unproven = {}
        elif now and now.isdisjoint(self._unproven.values()):
            self._unproven = {}

    def _shared(self, step: int) -> bool:
        return self._learned is not None and self._learned <= step

    def _replicas(self, classes: Sequence[Sequence[int]], lanes: Mapping[int, Lanes]) -> bool:
        """Whether ranks that differ now, and that nothing declares, were seen to be replicas."""
        if _nearly_all(classes):
            return True
        if not self._agreed:
            return False
        stay = sum(pair == self._value for pair in lanes.values())
        return self._moved or self._shared(max(self._agreed.values())) or 2 * stay >= len(lanes)

    def result(self, kind: Kind, tensor: str, part: str, held: frozenset[Kind]) -> Disagreement | None:
        if self._unproven and kind != BUFFER_KIND:  # a buffer may be a constant
            self.never = True
            return None
        if self._first is None:
            return None
        step, classes = self._first
        declared = self.group is not None
        return Disagreement(
            kind,
            tensor,
            part,
            step,
            self._together(classes),
            classes,
            declared,
            self.group,
            self._until,
            held,
        )

    def _together(self, classes: Sequence[Sequence[int]]) -> int | None:
        """The last digest at which the ranks that differ now were compared and agreed; None where one never was."""
        every = sum(map(len, classes))
        odd = classes[1:] if 2 * len(classes[0]) > every else classes
        steps = [self._agreed.get(r) for c in odd for r in c]
        return None if None in steps else min(s for s in steps if s is not None)


def _learned(steps: Mapping[int, Sequence[State]]) -> int | None:
    """The first step at which several ranks hold the same of what gradients leave behind, and not zeros."""
    for step in sorted(steps):
        found = {s.lanes for s in steps[step]}
        if found != {ZEROS}:
            return step if len(found) == 1 and len(steps[step]) > 1 else None
    return None


def _classes(lanes: Mapping[int, Lanes]) -> tuple[tuple[int, ...], ...]:
    """Ranks by what they hold, the largest class first."""
    found: dict[Lanes, list[int]] = defaultdict(list)
    for rank in sorted(lanes):
        found[lanes[rank]].append(rank)
    return tuple(tuple(c) for c in sorted(found.values(), key=lambda c: (-len(c), c)))


def _nearly_all(classes: Sequence[Sequence[int]]) -> bool:
    """Whether all but one rank, of at least three, or all but an eighth hold the same bits."""
    every = sum(map(len, classes))
    return every >= 3 and every - len(classes[0]) <= max(1, every // 8)


@dataclass(frozen=True)
class Pattern:
    """Tensors that began to disagree at one step in one way."""

    step: int
    agreed: int | None
    odd: tuple[int, ...]
    """empty where there is no majority"""
    ranks: tuple[int, ...]
    found: tuple[Disagreement, ...]
    holds: str
    """what of the tensors differs: see `origin`"""

    @property
    def tensors(self) -> list[str]:
        """The names of the parameters and buffers concerned, each once."""
        return list(dict.fromkeys(d.tensor for d in self.found))


def patterns(found: Sequence[Disagreement]) -> list[Pattern]:
    """Put together what began at one step on the same ranks, in the order of steps.

    Of one tensor the earliest beginning counts: a moment that differs moves its weight some steps later.
    """
    by_tensor: dict[tuple[str, str, str | None], list[Disagreement]] = defaultdict(list)
    for d in found:
        by_tensor[d.tensor, d.part, d.group].append(d)
    groups: dict[tuple[int, tuple[int, ...], tuple[int, ...], str], list[Disagreement]] = defaultdict(list)
    for same in by_tensor.values():
        step = min(d.step for d in same)
        first = [d for d in same if d.step == step]
        odd = Counter(d.odd for d in first).most_common(1)[0][0]
        groups[step, odd, first[0].ranks, _origin(first)] += first
    return [
        Pattern(step, _agreed(same), odd, ranks, tuple(same), holds)
        for (step, odd, ranks, holds), same in sorted(groups.items())
    ]


def _agreed(found: Iterable[Disagreement]) -> int | None:
    """The last digest at which all of them agreed; None where one of them never did."""
    agreed = [d.agreed for d in found]
    return None if None in agreed else max(a for a in agreed if a is not None)


WEIGHTS, BARE, FIRST, SECOND, GRADIENT, ALL, BUFFER, OTHER = (
    "weights alone",
    "weights of which the optimizer keeps nothing",
    "first moment",
    "second moment",
    "both moments",
    "all that the optimizer keeps",
    "buffer",
    "optimizer state",
)


def origin(kinds: Iterable[Kind], held: Iterable[Kind] = ()) -> str:
    """What differs of a tensor, by which of weight and optimizer state do. `held`: everything that was digested of it.

    A difference in a weight alone does not reach the moments while gradients are averaged; one in a moment
    reaches the weight with the next update, and not the other moment; one in the gradient reaches both. Where the
    optimizer keeps one thing (momentum, a running square) or nothing, that thing and the gradient are not told apart.
    """
    differ = set(kinds)
    state = differ - {WEIGHT, BUFFER_KIND}
    kept = (differ | set(held)) - {WEIGHT, BUFFER_KIND}
    if {"moment1", "moment2"} <= state:
        return GRADIENT
    if state and state == kept:
        return ALL
    if "moment2" in state:
        return SECOND
    if "moment1" in state:
        return FIRST
    if state:
        return OTHER
    if BUFFER_KIND in differ:
        return BUFFER
    return WEIGHTS if kept else BARE


def _origin(found: Sequence[Disagreement]) -> str:
    return origin({d.kind for d in found}, frozenset().union(*(d.held for d in found)))


def names_of(ranks: Iterable[int]) -> str:
    """Ranks in words."""
    return rank_sets.words(ranks)
