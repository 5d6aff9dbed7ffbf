"""The worst of all verdicts of every state, without walking every path anew.

The worst wins, so the status of a state is the worst of its own stretch and of what it rests on.
"""

from __future__ import annotations

from .._rooms import schemas
from . import validity
from .graph import Stretch
from .joined import World
from .overall import overall

Item = tuple[str, str]
"""("checkpoint" or "segment", uid)"""


class Statuses:
    """Statuses of checkpoints and of the ends of segments, the same as those of their verdicts."""

    def __init__(self, world: World) -> None:
        self._world, self._graph = world, world.graph
        self._by_segment: dict[str, list[schemas.Record]] = {}
        self._moves: dict[str, list[int]] = {}
        for r in world.records:
            self._by_segment.setdefault(r.segment, []).append(r)
            if r.kind == "drift":
                self._moves.setdefault(r.segment, []).append(r.payload.from_step)
        self._known: dict[Item, schemas.Status] = {}
        self._stretches: dict[tuple[object, ...], schemas.Status] = {}
        self._everywhere = self._on_every_state()

    def of(self, item: Item) -> schemas.Status:
        """The status of a state, as its verdict would have it."""
        stack = [(item, False)]
        under_way: set[Item] = set()
        while stack:
            at, walked = stack.pop()
            if at in self._known or (at in under_way and not walked):
                continue  # known, or a ring of parents
            if not walked:
                under_way.add(at)
                stack += [(at, True), *((parent, False) for parent in self._graph.rests_on(at))]
                continue
            stretch = self._graph.stretch(at)
            own = [self._of_stretch(stretch)] if stretch else []
            parents = [self._known[p] for p in self._graph.rests_on(at) if p in self._known]
            self._known[at] = validity.worst([*own, *parents])
        return validity.worst([self._known[item], self._everywhere])

    def _of_stretch(self, stretch: Stretch) -> schemas.Status:
        """What one stretch does to all that descends from it. Ends between which nothing happened are judged once."""
        upto = stretch.upto
        moved = sum(upto is None or s <= upto for s in self._moves.get(stretch.segment, ()))
        bad = self._world.bad.get(stretch.segment)
        hit = bad is not None and bad.cell is not None and (upto is None or bad.cell.step <= upto)
        key = (stretch.segment, moved, hit)
        if key not in self._stretches:
            mine = self._by_segment.get(stretch.segment, [])
            tallies = validity.collect(mine, self._graph, [stretch], self._world.bad)[0]
            self._stretches[key] = overall({claim: t.status for claim, t in tallies.items()})
        return self._stretches[key]

    def _on_every_state(self) -> schemas.Status:
        """What bears on every state: evaluations made in two ways, and damage."""
        tally = validity.Tally()
        validity.add_evaluations(tally, self._world.records)
        if self._world.damage:
            tally.missing["damage"] = self._world.damage[0]
        return tally.status
