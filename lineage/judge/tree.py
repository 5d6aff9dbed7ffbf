"""The lineage as a tree to read: the surviving line flat, side branches under the checkpoint they start from.

A graph is no tree: a hand-made state of several parents stands once, where it was saved, and its other parents
refer to it. Chains of checkpoints of which nothing is to be said are folded into one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .._rooms import schemas
from .graph import Graph, Node
from .joined import World
from .statuses import Statuses

DEEPEST = 12
"""Side branches nested deeper than this stand on their own, with a reference."""

LEAST_FOLDED = 2


@dataclass(frozen=True)
class Ref:
    """A checkpoint or a segment that something refers to."""

    uid: str
    run: str | None
    number: int
    """of the segment; 0 where its record is not at hand"""
    step: int | None


@dataclass
class Item:
    """A checkpoint."""

    uid: str
    step: int
    status: Literal["pending", "complete", "incomplete"]
    missing: tuple[str, ...]
    marks: tuple[str, ...]
    verdict: schemas.Status | None
    regime: int | None
    abandoned: bool
    transformation: str | None
    parents: tuple[Ref, ...]
    """the parents of a hand-made state, or one that stands elsewhere; empty for the plain next save"""
    goes_into: tuple[Ref, ...]
    """hand-made states that descend from this one and are shown elsewhere"""
    same_as: tuple[Ref, ...]
    """checkpoints of other ledgers that hold the same state, digest by digest"""
    under: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Fold:
    """Checkpoints of one segment of which nothing is to be said, in order."""

    steps: tuple[int, ...]
    verdict: schemas.Status | None
    abandoned: bool
    same_as: tuple[str, ...] = ()
    """runs whose checkpoints at these steps hold the same states"""


@dataclass(frozen=True)
class Turn:
    """A change of regime within a segment, or the one with which it began."""

    step: int
    regime: int
    because: tuple[str, ...]
    lower_bound: str | None = None
    """where `step` is only the earliest, what is known instead"""


@dataclass(frozen=True)
class Tail:
    """What was left: steps after the last one that a later segment stands on."""

    after: int
    last: int


@dataclass
class Part:
    """One segment on a line."""

    uid: str
    run: str | None
    number: int
    start: str
    came: Ref | None
    held: bool
    """False: known from a sidecar alone"""
    first: int
    last: int | None
    """None: how far it went is not shown, for the end of an imported branch"""
    world_size: int | None
    """None: not seen, for an imported run"""
    regime: int | None
    verdict: schemas.Status | None
    state: Literal["newest", "abandoned", "tip", "continued"]
    bad: str | None
    items: list[Item | Fold | Turn | Tail]


@dataclass
class Line:
    """Segments that go on from one another, oldest first."""

    parts: list[Part]


@dataclass(frozen=True)
class Root:
    """A line that starts from nothing known."""

    run: str | None
    line: Line


def forest(
    world: World, *, every: bool = False, twins: Mapping[str, Sequence[str]] | None = None
) -> list[Root]:
    """All lines of a world, each segment once. `every` folds nothing.

    `twins` maps checkpoints to those of other ledgers that hold the same state.
    """
    return _Builder(world, every, twins or {}).build()


class _Builder:
    def __init__(self, world: World, every: bool, twins: Mapping[str, Sequence[str]]) -> None:
        self.world, self.graph, self.every, self.twins = world, world.graph, every, twins
        self.left = self.graph.abandoned()
        self.tips = set(self.graph.tips())
        runs = {run for uid, run in self.graph.runs.items() if uid in self.graph.segments}
        self.surviving = {s.segment for run in runs for s in self.graph.surviving(run)}
        newest = {run: uid for uid, run in self.graph.runs.items() if uid in self.graph.segments}
        self.newest = set(newest.values())
        self.nodes: dict[str, list[Node]] = {}
        for n in self.graph.nodes.values():
            self.nodes.setdefault(n.segment, []).append(n)
        self.children: dict[str, list[str]] = {}
        for uid, info in self.graph.segments.items():
            if info.parent_checkpoint in self.graph.nodes:
                self.children.setdefault(str(info.parent_checkpoint), []).append(uid)
        self.into: dict[str, list[str]] = {}
        for n in self.graph.nodes.values():
            for parent in _made_of(self.graph, n):
                self.into.setdefault(parent, []).append(n.uid)
        self.regimes: dict[str, list[schemas.Regime]] = {}
        self.moves: dict[str, list[int]] = {}
        for r in world.records:
            if r.kind == "regime":
                self.regimes.setdefault(r.segment, []).append(r.payload)
            elif r.kind == "drift":
                self.moves.setdefault(r.segment, []).append(r.payload.from_step)
        self.statuses = Statuses(world)
        self.seen: set[str] = set()
        self.roots: list[Root] = []

    def build(self) -> list[Root]:
        for uid in self.graph.segments:
            if self._parent(uid) is None:
                self._root(uid)
        for (
            uid
        ) in self.graph.segments:  # a ring of parents has no beginning: every segment is shown all the same
            if uid not in self.seen:
                self._root(uid)
        return self.roots

    def _root(self, uid: str) -> None:
        if uid not in self.seen:
            place = len(self.roots)  # before what lies too deep in it
            self.roots.insert(place, Root(self.graph.runs.get(uid), self._line(uid, 0)))

    def _parent(self, uid: str) -> Node | None:
        node = self.graph.nodes.get(self.graph.segments[uid].parent_checkpoint or "")
        known = node is not None and node.segment != uid and node.segment in self.graph.segments
        return node if known else None

    def _line(self, uid: str, depth: int) -> Line:
        line = Line([])
        on: str | None = uid
        chain: list[str] = []
        while on is not None and on not in self.seen:
            self.seen.add(on)
            chain.append(on)
            on = self._next(on)
        for segment in chain:
            line.parts.append(self._part(segment, set(chain), depth))
        return line

    def _next(self, uid: str) -> str | None:
        """The segment that continues a line: the one on the surviving path, else the newest of the same run."""
        below = [
            c for n in self.nodes.get(uid, ()) for c in self.children.get(n.uid, ()) if c not in self.seen
        ]
        own = [c for c in below if self.graph.runs.get(c) == self.graph.runs.get(uid)]
        best = [c for c in own if c in self.surviving] or ([] if uid in self.surviving else own)
        return best[-1] if best else None

    def _part(self, uid: str, on_line: set[str], depth: int) -> Part:
        graph, info = self.graph, self.graph.segments[uid]
        cut = self.left.get(uid)
        last = graph.last_step.get(uid, 0)
        found = sorted(self.nodes.get(uid, ()), key=lambda n: n.checkpoint.step)
        items: list[Item | Fold | Turn | Tail] = [self._item(n, cut, on_line, depth) for n in found]
        items += [
            Turn(g.from_step, g.index, tuple(dict.fromkeys(g.because)), g.lower_bound)
            for g in self.regimes.get(uid, ())
            if g.because
        ]
        if cut is not None:
            items.append(Tail(cut, last))
        items.sort(key=_place)
        bad = self.world.bad.get(uid)
        state: Literal["newest", "abandoned", "tip", "continued"] = "continued"
        if uid in self.newest:
            state = "newest"
        elif cut is not None:
            state = "abandoned"
        elif uid in self.tips:
            state = "tip"
        opened = self.regimes.get(uid, ())
        imported = info.place.node == schemas.IMPORTED
        return Part(
            uid=uid,
            run=graph.runs.get(uid),
            number=graph.number(uid),
            start=info.start,
            came=self._came(uid),
            held=uid not in graph.unheld,
            first=(info.parent_step or 0) + 1,
            last=None if imported and (uid in self.tips and cut is None) else last,
            world_size=None if imported else info.world_size,
            regime=opened[0].index if opened else self._inherited(info.parent_checkpoint),
            verdict=self._status(uid, None),
            state=state,
            bad=f"rank {bad.cell.rank}, step {bad.cell.step:,}: {bad.cell.text}"
            if bad and bad.cell
            else None,
            items=items if self.every else self._folded(items, found, uid),
        )

    def _inherited(self, checkpoint: str | None) -> int | None:
        """The regime in which the checkpoint that a segment started from was saved."""
        node = self.graph.nodes.get(checkpoint or "")
        return self._regime(node) if node else None

    def _regime(self, node: Node) -> int | None:
        opened = [g for g in self.regimes.get(node.segment, ()) if g.from_step <= node.checkpoint.step]
        return opened[-1].index if opened else None

    def _came(self, uid: str) -> Ref | None:
        info = self.graph.segments[uid]
        if info.parent_checkpoint is None:
            return None
        return self._ref(info.parent_checkpoint, info.parent_step)

    def _ref(self, checkpoint: str, step: int | None = None) -> Ref:
        node = self.graph.nodes.get(checkpoint)
        if node is None:
            return Ref(checkpoint, None, 0, step)
        run = self.graph.runs.get(node.segment)
        return Ref(checkpoint, run, self.graph.number(node.segment), node.checkpoint.step)

    def _item(self, node: Node, cut: int | None, on_line: set[str], depth: int) -> Item:
        c = node.checkpoint
        made_of = _made_of(self.graph, node)
        item = Item(
            uid=node.uid,
            step=c.step,
            status=c.status,
            missing=tuple(c.missing),
            marks=tuple(dict.fromkeys(m.mark for m in node.standing)),
            verdict=self._status(node.segment, node),
            regime=self._regime(node),
            abandoned=cut is not None and c.step > cut,
            transformation=c.transformation,
            parents=tuple(self._ref(p) for p in c.parents) if made_of or c.transformation else (),
            goes_into=tuple(self._ref(u) for u in self.into.get(node.uid, ())),
            same_as=tuple(self._ref(u) for u in self.twins.get(node.uid, ())),
        )
        for child in self.children.get(node.uid, ()):
            if child in self.seen or child in on_line:
                continue
            if depth >= DEEPEST:
                self.roots.append(Root(self.graph.runs.get(child), self._line(child, 0)))
            else:
                item.under.append(self._line(child, depth + 1))
        return item

    def _folded(
        self, items: Sequence[Item | Fold | Turn | Tail], found: Sequence[Node], uid: str
    ) -> list[Item | Fold | Turn | Tail]:
        """Fold neighbours of which nothing is to be said; the last checkpoint of an open end stays."""
        last = found[-1].uid if found and (uid in self.tips) else None
        out: list[Item | Fold | Turn | Tail] = []
        plain: list[Item] = []

        def flush() -> None:
            if len(plain) >= LEAST_FOLDED:
                runs = dict.fromkeys(r.run for i in plain for r in i.same_as if r.run)
                all_twins = all(i.same_as for i in plain)
                steps = tuple(i.step for i in plain)
                out.append(
                    Fold(steps, plain[0].verdict, plain[0].abandoned, tuple(runs) if all_twins else ())
                )
            else:
                out.extend(plain)
            plain.clear()

        for item in items:
            if isinstance(item, Item) and item.uid != last and self._plain(item):
                if plain and _unlike(plain[-1], item):
                    flush()
                plain.append(item)
            else:
                flush()
                out.append(item)
        flush()
        return out

    def _plain(self, item: Item) -> bool:
        """Whether there is nothing to be said of a checkpoint but that it was saved."""
        special = item.marks or item.under or item.transformation or item.parents or item.goes_into
        started = self.children.get(item.uid)
        return not special and not started and item.status == "complete"

    def _status(self, segment: str, node: Node | None) -> schemas.Status | None:
        """Today's verdict of a state; None where nothing of its segment is at hand."""
        if segment not in self.graph.segments or (node is None and segment in self.graph.unheld):
            return None
        return self.statuses.of(("checkpoint", node.uid) if node else ("segment", segment))


def _unlike(a: Item, b: Item) -> bool:
    """Whether two neighbours must not stand in one fold."""
    same = {r.run for r in a.same_as} == {r.run for r in b.same_as}
    return a.verdict != b.verdict or a.abandoned != b.abandoned or a.regime != b.regime or not same


def _made_of(graph: Graph, node: Node) -> list[str]:
    """The parents of a state that stand elsewhere: not the save before it, nor what its segment began from."""
    info = graph.segments.get(node.segment)
    began = info.parent_checkpoint if info else None
    others = []
    for p in node.checkpoint.parents:
        at = graph.nodes.get(p)
        if p != began and (at is None or at.segment != node.segment):
            others.append(p)
    return others


def _place(item: Item | Fold | Turn | Tail) -> tuple[float, int]:
    """Where an item stands on its segment: a regime opens before the save of its step, a tail after its last."""
    if isinstance(item, Turn):
        return item.step - 0.5, 0
    if isinstance(item, Tail):
        return item.after + 0.25, 1
    return (item.steps[0] if isinstance(item, Fold) else item.step), 0
