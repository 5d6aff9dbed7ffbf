"""The lineage graph: segments and checkpoints, forks and abandoned branches, and the paths through it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas


@dataclass(frozen=True)
class Node:
    """A checkpoint with all that later records said of it."""

    checkpoint: schemas.Checkpoint
    segment: str
    record: str
    marks: tuple[schemas.CheckpointMark, ...] = ()

    @property
    def uid(self) -> str:
        """The checkpoint's uid."""
        return self.checkpoint.uid


@dataclass(frozen=True)
class Stretch:
    """The part of a segment that lies on a path: updates `after` < s <= `upto` (None: to its end)."""

    segment: str
    after: int
    upto: int | None


@dataclass
class Graph:
    """Segments in the order in which they began, and checkpoints by uid."""

    segments: dict[str, schemas.Segment] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    last_step: dict[str, int] = field(default_factory=dict)

    def number(self, segment: str) -> int:
        """The number of a segment, from 1; 0 where its own record is lost."""
        order = list(self.segments)
        return order.index(segment) + 1 if segment in order else 0

    def children(self, checkpoint: str) -> list[str]:
        """Segments that started from a checkpoint."""
        return [uid for uid, s in self.segments.items() if s.parent_checkpoint == checkpoint]

    def path_to_segment(self, segment: str, upto: int | None = None) -> list[Stretch]:
        """The stretches that lead to a segment (up to a step of it), oldest first.

        Where a parent checkpoint is not in this ledger, the path starts with the segment that names it. A
        checkpoint of several parents is walked over all of them.
        """
        info = self.segments.get(segment)
        if info is None:
            return []
        here = Stretch(segment, info.parent_step or 0, upto)
        parent = self.nodes.get(info.parent_checkpoint or "")
        return [*self.path_to(parent.uid), here] if parent else [here]

    def path_to(self, checkpoint: str, _seen: frozenset[str] = frozenset()) -> list[Stretch]:
        """The stretches that lead to a checkpoint, oldest first, each once."""
        node = self.nodes.get(checkpoint)
        if node is None or checkpoint in _seen:
            return []
        seen = _seen | {checkpoint}
        path: list[Stretch] = []
        info = self.segments.get(node.segment)
        from_segment = info.parent_checkpoint if info else None
        others = [
            p for p in node.checkpoint.parents if p != from_segment and self._elsewhere(p, node.segment)
        ]
        for parent in others:
            path += [s for s in self.path_to(parent, seen) if s not in path]
        path += [s for s in self.path_to_segment(node.segment, node.checkpoint.step) if s not in path]
        return path

    def _elsewhere(self, checkpoint: str, segment: str) -> bool:
        node = self.nodes.get(checkpoint)
        return node is not None and node.segment != segment

    def abandoned(self) -> dict[str, int]:
        """Segments whose tail was left: uid -> the last step that a later segment still stands on."""
        out: dict[str, int] = {}
        for uid, info in self.segments.items():
            parent = self.nodes.get(info.parent_checkpoint or "")
            if (
                parent
                and parent.segment != uid
                and self.last_step.get(parent.segment, 0) > parent.checkpoint.step
            ):
                out[parent.segment] = max(out.get(parent.segment, 0), parent.checkpoint.step)
        return out

    def before(self, segment: str, step: int) -> list[Node]:
        """Complete checkpoints at or before a step on the path of a segment, latest first."""
        found = []
        for s in self.path_to_segment(segment, step):
            for n in self.nodes.values():
                upto = step if s.upto is None else min(s.upto, step)
                if (
                    n.segment == s.segment
                    and s.after <= n.checkpoint.step <= upto
                    and n.checkpoint.status == "complete"
                ):
                    found.append(n)
        return sorted(found, key=lambda n: n.checkpoint.step, reverse=True)


def build(records: Iterable[schemas.Record]) -> Graph:
    """Build the graph of a ledger from its records, in any order."""
    graph = Graph()
    ordered = sorted(records, key=lambda r: (r.at, r.file, r.seq))
    marks: dict[str, list[schemas.CheckpointMark]] = {}
    for r in ordered:
        if r.kind == "segment" and (r.segment not in graph.segments or r.rank == 0):
            graph.segments[r.segment] = r.payload
        elif r.kind == "checkpoint" and _counts(r, graph.nodes.get(r.payload.uid)):
            graph.nodes[r.payload.uid] = Node(r.payload, r.segment, r.id)
        elif r.kind == "checkpoint_mark":
            marks.setdefault(r.payload.checkpoint, []).append(r.payload)
        if r.step is not None:
            graph.last_step[r.segment] = max(graph.last_step.get(r.segment, 0), r.step)
    for uid, found in marks.items():
        if uid in graph.nodes:
            n = graph.nodes[uid]
            graph.nodes[uid] = Node(n.checkpoint, n.segment, n.record, tuple(found))
    return graph


def _counts(record: schemas.Record, known: Node | None) -> bool:
    """Rank 0's newest record of a checkpoint stands for it; other ranks add only what they alone hold."""
    return known is None or record.rank == 0


def latest(
    records: Sequence[schemas.Record], kind: str, segment: str, *, first: bool = False
) -> schemas.Record | None:
    """The newest (or first) record of a kind in a segment, of its lowest rank."""
    found = [r for r in records if r.kind == kind and r.segment == segment]
    lowest = min((r.rank for r in found), default=0)
    found = sorted((r for r in found if r.rank == lowest), key=lambda r: r.at)
    return (found[0] if first else found[-1]) if found else None
