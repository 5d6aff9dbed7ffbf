"""The lineage graph: segments and checkpoints, forks and abandoned branches, and the paths through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas

TAKES_BACK = {
    "quarantined": ("quarantine_lifted",),
    "quarantine_lifted": ("quarantined", "first_bad"),
    "held": ("released",),
    "preserved": ("released",),
    "released": ("held", "preserved"),
}
"""Mark -> the earlier ones that it takes back."""


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

    @property
    def bad(self) -> bool:
        """Whether it is marked as not to be resumed from, and that was not taken back."""
        return any(m.mark in ("quarantined", "first_bad") for m in self.standing)

    @property
    def deleted(self) -> bool:
        """Whether its files were seen to be gone, or written over."""
        return any(m.mark == "deleted" for m in self.marks)

    @property
    def standing(self) -> tuple[schemas.CheckpointMark, ...]:
        """The marks that no later one took back: a lifted quarantine is named as such alone."""
        out: list[schemas.CheckpointMark] = []
        for m in self.marks:
            gone = TAKES_BACK.get(m.mark, ())
            out = [n for n in out if n.mark not in gone and n.mark != m.mark]
            out.append(m)
        return tuple(out)


@dataclass(frozen=True)
class Stretch:
    """The part of a segment that lies on a path: updates `after` < s <= `upto` (None: to its end).

    A segment "" stands for what led from one checkpoint to another in a ledger that is not at hand.
    """

    segment: str
    after: int
    upto: int | None
    cut: bool = False
    """it begins within the segment, so the segment's own beginning is no part of it"""


@dataclass
class Graph:
    """Segments in the order in which they began, and checkpoints by uid."""

    segments: dict[str, schemas.Segment] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    last_step: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """segment -> run, also of segments whose own record is lost"""
    numbers: dict[str, int] = field(default_factory=dict)
    ancestors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """checkpoint that no ledger at hand holds -> its ancestors as a sidecar tells them, parent first"""
    unheld: frozenset[str] = frozenset()
    """segments known from a sidecar alone: what happened in them is in a ledger that is not at hand"""

    def number(self, segment: str) -> int:
        """The number of a segment within its run, from 1; 0 where its own record is lost."""
        return self.numbers.get(segment, 0)

    def children(self, checkpoint: str) -> list[str]:
        """Segments that started from a checkpoint."""
        return [uid for uid, s in self.segments.items() if s.parent_checkpoint == checkpoint]

    def path_to_segment(self, segment: str, upto: int | None = None) -> list[Stretch]:
        """The stretches that lead to a segment (up to a step of it), oldest first, each segment once.

        Where a parent checkpoint is not in this ledger, the path starts with the segment that names it. A
        checkpoint of several parents is walked over all of them.
        """
        if segment not in self.segments:
            return []
        return self._walk(("segment", segment), upto)

    def path_to(self, checkpoint: str) -> list[Stretch]:
        """The stretches that lead to a checkpoint, oldest first, each segment once."""
        return self._walk(("checkpoint", checkpoint), None) if checkpoint in self.nodes else []

    def _walk(self, target: tuple[str, str], upto: int | None) -> list[Stretch]:
        """Depth first, parents before children, without recursion: a run may have a thousand restarts."""
        found: dict[str, Stretch] = {}
        gaps = 0
        seen: set[tuple[str, str]] = set()
        stack: list[tuple[tuple[str, str], bool]] = [(target, False)]
        while stack:
            item, walked = stack.pop()
            if not walked:
                if item in seen:
                    continue
                seen.add(item)
                stack.append((item, True))
                stack += [(parent, False) for parent in reversed(self.rests_on(item))]
                continue
            stretch = self.stretch(item, upto if item == target else None)
            if stretch is None:
                continue
            if stretch.segment == "":
                gaps += 1
                found[f"gap {gaps}"] = stretch
            else:
                found[stretch.segment] = _longer(found.get(stretch.segment), stretch)
        return list(found.values())

    def root(self, segment: str) -> bool:
        """Whether nothing is known of what a segment started from."""
        return not self.rests_on(("segment", segment))

    def rests_on(self, item: tuple[str, str]) -> list[tuple[str, str]]:
        """What a checkpoint, a segment or a gap (kind, uid) directly rests on."""
        kind, uid = item
        if kind == "gap":
            known = next((a for a in self.ancestors.get(uid, ()) if a in self.nodes), None)
            return [("checkpoint", known)] if known else []
        node = self.nodes[uid] if kind == "checkpoint" else None
        segment = node.segment if node else uid
        info = self.segments.get(segment)
        from_segment = info.parent_checkpoint if info else None
        own: list[tuple[str, str]] = []
        if from_segment in self.nodes:
            own = [("checkpoint", str(from_segment))]
        elif from_segment and any(a in self.nodes for a in self.ancestors.get(from_segment, ())):
            own = [("gap", from_segment)]
        others = [
            ("checkpoint", p)
            for p in (node.checkpoint.parents if node else ())
            if p != from_segment and p in self.nodes and self.nodes[p].segment != segment
        ]
        return [*others, *own]

    def stretch(self, item: tuple[str, str], upto: int | None = None) -> Stretch | None:
        """The part of its own segment that leads to a checkpoint, a segment's end (or a step of it), or a gap."""
        kind, uid = item
        if kind == "gap":
            known = next(a for a in self.ancestors[uid] if a in self.nodes)
            return Stretch("", self.nodes[known].checkpoint.step, None)
        node = self.nodes[uid] if kind == "checkpoint" else None
        segment = node.segment if node else uid
        info = self.segments.get(segment)
        if info is None:
            return None
        return Stretch(segment, info.parent_step or 0, node.checkpoint.step if node else upto)

    def abandoned(self) -> dict[str, int]:
        """Segments whose tail was left: uid -> the last step that a later segment of the run stands on.

        A fork begins another run, so it leaves nothing behind.
        """
        stands: dict[str, int] = {}
        for uid, info in self.segments.items():
            parent = self.nodes.get(info.parent_checkpoint or "")
            if parent and parent.segment != uid and info.start != "fork":
                stands[parent.segment] = max(stands.get(parent.segment, 0), parent.checkpoint.step)
        return {uid: step for uid, step in stands.items() if self.last_step.get(uid, 0) > step}

    def tips(self) -> list[str]:
        """The segments at the ends of all branches, oldest first; the newest of each run is always one of them."""
        left, newest = self.abandoned(), {run: uid for uid, run in self.runs.items() if uid in self.segments}
        taken = {
            self.nodes[s.parent_checkpoint].segment
            for s in self.segments.values()
            if s.parent_checkpoint in self.nodes and s.start != "fork"
        }
        ends = {*newest.values(), *left, *(uid for uid in self.segments if uid not in taken)}
        return [uid for uid in self.segments if uid in ends]

    def surviving(self, run: str | None = None) -> list[Stretch]:
        """The path to the newest segment: what the run's newest state descends from."""
        of_run = [uid for uid in self.segments if run in (None, self.runs.get(uid))]
        return self.path_to_segment(of_run[-1]) if of_run else []

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


def _longer(a: Stretch | None, b: Stretch) -> Stretch:
    """Of two stretches of one segment the one that reaches further."""
    if a is None:
        return b
    if a.upto is None or (b.upto is not None and b.upto < a.upto):
        return a
    return b


def build(
    records: Iterable[schemas.Record],
    *,
    reached: Mapping[str, int] | None = None,
    ancestors: Mapping[str, Sequence[str]] | None = None,
    unheld: Iterable[str] = (),
) -> Graph:
    """Build the graph of one or several ledgers from their records, in any order.

    `reached` tells the last step of the series by segment: a process that was killed left no word of its end.
    `ancestors` and `unheld` add what sidecars tell of ledgers that are not at hand.
    """
    graph = Graph(ancestors=ancestors or {}, unheld=frozenset(unheld))
    ordered = sorted(records, key=lambda r: (r.at, r.file, r.seq))
    marks: dict[str, list[schemas.CheckpointMark]] = {}
    said_by: dict[str, int] = {}
    ended: dict[str, int] = {}
    for r in ordered:
        graph.runs.setdefault(r.segment, r.run)
        if r.kind == "segment" and (r.segment not in graph.segments or r.rank == 0):
            graph.segments[r.segment] = r.payload
        elif r.kind == "checkpoint" and r.rank <= said_by.get(r.payload.uid, r.rank):
            # The newest record of its lowest rank stands for it: what another rank adds is that rank's part.
            said_by[r.payload.uid] = r.rank
            graph.nodes[r.payload.uid] = Node(r.payload, r.segment, r.id)
        elif r.kind == "checkpoint_mark":
            marks.setdefault(r.payload.checkpoint, []).append(r.payload)
        elif r.kind == "segment_end" and r.payload.last_step is not None:
            ended[r.segment] = max(ended.get(r.segment, 0), r.payload.last_step)
        if r.step is not None:
            graph.last_step[r.segment] = max(graph.last_step.get(r.segment, 0), r.step)
    for uid, step in ended.items():
        saved = (n.checkpoint.step for n in graph.nodes.values() if n.segment == uid)
        graph.last_step[uid] = max(step, *saved, 0)  # an alarm may name the step that an exception ended
    for uid, found in marks.items():
        if uid in graph.nodes:
            n = graph.nodes[uid]
            moved = next((m.path for m in reversed(found) if m.path), None)
            held = n.checkpoint.model_copy(update={"path": moved}) if moved else n.checkpoint
            graph.nodes[uid] = Node(held, n.segment, n.record, tuple(found))
    for uid, step in (reached or {}).items():
        if uid in graph.segments and uid not in ended:
            graph.last_step[uid] = max(graph.last_step.get(uid, 0), step)
    counts: dict[str, int] = {}
    for uid in graph.segments:
        run = graph.runs[uid]
        graph.numbers[uid] = counts[run] = counts.get(run, 0) + 1
    return graph


def latest(
    records: Sequence[schemas.Record], kind: str, segment: str, *, first: bool = False
) -> schemas.Record | None:
    """The newest (or first) record of a kind in a segment, of its lowest rank."""
    found = [r for r in records if r.kind == kind and r.segment == segment]
    lowest = min((r.rank for r in found), default=0)
    found = sorted((r for r in found if r.rank == lowest), key=lambda r: r.at)
    return (found[0] if first else found[-1]) if found else None
