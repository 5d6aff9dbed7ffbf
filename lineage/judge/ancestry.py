"""What two paths share, what each has alone, and the last state that both stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .graph import Graph, Node, Stretch
from .joined import Branch, World


@dataclass(frozen=True)
class Ancestor:
    """The last state that two branches have in common."""

    step: int
    segment: str
    """the segment in which the first branch passes it"""
    checkpoint: str | None
    """None where the branches part (or end) at a step that no checkpoint holds"""
    by: Literal["uid", "sidecar", "content"]
    """uid: both ledgers name it; sidecar: only a sidecar does; content: two states equal digest by digest"""
    twin: str | None = None
    """for content: the checkpoint of the second branch"""
    twin_segment: str | None = None


def after(graph: Graph, path: Sequence[Stretch], shared: Mapping[str, int | None]) -> list[Stretch]:
    """What of a path lies after what is shared (segment -> its last shared step, None: all of it)."""
    out = []
    for s in path:
        if s.segment == "" or s.segment not in shared:
            out.append(s)
            continue
        upto = shared[s.segment]
        end = graph.last_step.get(s.segment, 0) if s.upto is None else s.upto
        if upto is not None and end > upto:
            out.append(Stretch(s.segment, upto, s.upto, cut=True))
    return out


def shared(a: Sequence[Stretch], b: Sequence[Stretch]) -> dict[str, int | None]:
    """The segments that both paths go through, and how far both do."""
    ends = {s.segment: s.upto for s in b if s.segment}
    out: dict[str, int | None] = {}
    for s in a:
        if s.segment in ends:
            out[s.segment] = min((e for e in (s.upto, ends[s.segment]) if e is not None), default=None)
    return out


def common(world: World, a: Branch, b: Branch) -> tuple[Ancestor | None, list[Stretch], list[Stretch]]:
    """The last state that two branches have in common, and what of each lies after it.

    A checkpoint of one uid is one state. Two checkpoints with the same step and content are one state too; equal
    content at different steps is not. Without a common state both paths are given whole.
    """
    graph = world.graph
    together = shared(a.path, b.path)
    rest_a, rest_b = after(graph, a.path, together), after(graph, b.path, together)
    found = _by_uid(graph, a, b, together) if together else None
    twin = _by_content(world, a, b, rest_a, rest_b)
    if twin is None or (found is not None and twin[0].checkpoint.step <= found.step):
        return found, rest_a, rest_b
    one, two = twin
    return (
        Ancestor(one.checkpoint.step, one.segment, one.uid, "content", two.uid, two.segment),
        after(graph, a.path, _upto(graph, one)),
        after(graph, b.path, _upto(graph, two)),
    )


def parted(world: World, a: Sequence[Stretch], b: Sequence[Stretch]) -> tuple[Node, Node] | None:
    """The first two checkpoints of one step, after what is shared, whose weights are shown not to be the same."""
    by_step = {n.checkpoint.step: n for n in on(world.graph, b)}
    pairs = [(n, by_step[n.checkpoint.step]) for n in on(world.graph, a) if n.checkpoint.step in by_step]
    contents = content_of(world.records, {n.uid for pair in pairs for n in pair})
    for x, y in sorted(pairs, key=lambda pair: pair[0].checkpoint.step):
        one, two = ({k: d for k, d in contents[n.uid].live.items() if k[1] == "weights"} for n in (x, y))
        if one and set(one) == set(two) and None not in (*one.values(), *two.values()) and one != two:
            return x, y
    return None


def _upto(graph: Graph, node: Node) -> dict[str, int | None]:
    return {s.segment: s.upto for s in graph.path_to(node.uid)}


def _by_uid(graph: Graph, a: Branch, b: Branch, together: Mapping[str, int | None]) -> Ancestor:
    segment, upto = list(together.items())[-1]
    step = graph.last_step.get(segment, 0) if upto is None else upto
    at = [n for n in graph.nodes.values() if n.segment == segment and n.checkpoint.step == step]
    ends = {a.checkpoint, b.checkpoint, *_parents(graph, a), *_parents(graph, b)}
    node = next((n for n in at if n.uid in ends), at[-1] if at else None)
    gap = any(s.segment == "" for p in (a.path, b.path) for s in p)
    return Ancestor(step, segment, node.uid if node else None, "sidecar" if gap else "uid")


def _parents(graph: Graph, branch: Branch) -> set[str | None]:
    return {graph.segments[s.segment].parent_checkpoint for s in branch.path if s.segment in graph.segments}


def _by_content(
    world: World, a: Branch, b: Branch, rest_a: Sequence[Stretch], rest_b: Sequence[Stretch]
) -> tuple[Node, Node] | None:
    """The latest pair of checkpoints, one on each path after what is shared, that hold the same state."""
    by_step: dict[int, list[Node]] = {}
    for n in on(world.graph, rest_b):
        by_step.setdefault(n.checkpoint.step, []).append(n)
    ours = on(world.graph, rest_a)
    pairs = [(x, y) for x in ours for y in by_step.get(x.checkpoint.step, ()) if x.uid != y.uid]
    if not pairs:
        return None
    contents = content_of(world.records, {n.uid for pair in pairs for n in pair})
    equal = [(x, y) for x, y in pairs if same_content(contents[x.uid], contents[y.uid])]
    return max(equal, key=lambda pair: pair[0].checkpoint.step, default=None)


def on(graph: Graph, path: Sequence[Stretch]) -> list[Node]:
    """The checkpoints that were saved on a path."""
    bounds = {s.segment: s for s in path if s.segment}
    out = []
    for n in graph.nodes.values():
        s = bounds.get(n.segment)
        if s and s.after < n.checkpoint.step and (s.upto is None or n.checkpoint.step <= s.upto):
            out.append(n)
    return out


@dataclass(frozen=True)
class Content:
    """What is known of a state: the digest of its files, and the live digests of each rank's parts."""

    root: str | None
    live: Mapping[tuple[int, str], str | None]
    """(rank, or -1 for what all ranks hold alike; component) -> digest"""


WHOLE = ("weights", "optimizer_state", "rng", "loader_position")
"""Without the digests of these, equal digests do not show an equal state."""


def content_of(records: Sequence[schemas.Record], uids: set[str]) -> dict[str, Content]:
    """The content of checkpoints, gathered over the records of all ranks."""
    roots: dict[str, str] = {}
    live: dict[str, dict[tuple[int, str], str | None]] = {uid: {} for uid in uids}
    for r in records:
        if r.kind != "checkpoint" or r.payload.uid not in uids:
            continue
        uid = r.payload.uid
        if r.payload.manifest is not None:
            roots[uid] = r.payload.manifest.root
        for c in r.payload.live:
            live[uid][(r.rank if c.scope == "rank" else -1, c.component)] = c.digest
    return {uid: Content(roots.get(uid), live[uid]) for uid in uids}


def same_content(a: Content, b: Content) -> bool:
    """Whether two checkpoints are shown to hold the same state: file by file, or part by part on every rank."""
    if a.root is not None and a.root == b.root:
        return True
    if set(WHOLE) - {component for _, component in a.live}:
        return False
    return dict(a.live) == dict(b.live) and None not in a.live.values()


def twins(world: World) -> dict[str, list[str]]:
    """Checkpoints of other runs that hold the same state at the same step, digest by digest."""
    by_step: dict[int, list[Node]] = {}
    for n in world.graph.nodes.values():
        by_step.setdefault(n.checkpoint.step, []).append(n)
    graph = world.graph
    several = [ns for ns in by_step.values() if len({graph.runs.get(n.segment) for n in ns}) > 1]
    contents = content_of(world.records, {n.uid for ns in several for n in ns})
    out: dict[str, list[str]] = {}
    for ns in several:
        for a in ns:
            for b in ns:
                apart = graph.runs.get(a.segment) != graph.runs.get(b.segment)
                if apart and same_content(contents[a.uid], contents[b.uid]):
                    out.setdefault(a.uid, []).append(b.uid)
    return out
