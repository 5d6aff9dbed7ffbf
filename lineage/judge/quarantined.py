"""Quarantine: which checkpoints hold a state from after something broke, and who resumed from one.

A checkpoint is quarantined where it was saved at or after the first bad step of its segment, where it descends from
such a one, or where a person marked it. Taking the mark back needs a reason, and stays on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from .._rooms import schemas
from . import graph as graph_
from .firstbad import first_cell, from_alarms
from .graph import Graph, Node

CHECK = "quarantine/1"
BAD = ("quarantined", "first_bad")
"""Marks that keep a checkpoint from being resumed from; `quarantine_lifted` takes them back."""
LIFTED = "quarantine_lifted"


@dataclass(frozen=True)
class Quarantined:
    """A checkpoint that is not to be resumed from."""

    checkpoint: str
    why: str
    evidence: tuple[str, ...] = ()
    """records that it rests on"""
    node: Node | None = None
    """None: no ledger at hand tells of its save"""
    marked: bool = False
    """it carries the mark `quarantined`"""
    since: datetime | None = None
    """when it was first marked as bad"""
    by_hand: bool = False
    """`why` is what a person said"""
    origin: Quarantined | None = None
    """the one that it descends from; None: it is bad by itself"""


@dataclass(frozen=True)
class Lifted:
    """A quarantine that was taken back."""

    checkpoint: str
    why: str
    record: str
    segment: str
    at: datetime


@dataclass
class Quarantine:
    """All that a ledger tells of it."""

    graph: Graph
    bad: dict[str, Quarantined] = field(default_factory=dict)
    """by checkpoint"""
    lifted: dict[str, Lifted] = field(default_factory=dict)
    """by checkpoint, those that stand"""
    good: dict[str, str] = field(default_factory=dict)
    """segment -> its last good checkpoint, where a first bad cell was named"""

    @property
    def unmarked(self) -> list[Quarantined]:
        """Those that carry no mark yet, in the order of their steps."""
        found = [q for q in self.bad.values() if not q.marked and q.node is not None]
        return sorted(found, key=lambda q: (q.node.checkpoint.step if q.node else 0, q.checkpoint))


@dataclass(frozen=True)
class _Begin:
    """From which step on a segment's state is bad."""

    step: int
    why: str
    evidence: tuple[str, ...]
    at: datetime


def quarantine(
    records: Iterable[schemas.Record],
    *,
    graph: Graph | None = None,
    bads: Mapping[str, schemas.FirstBad] | None = None,
) -> Quarantine:
    """Say which checkpoints are quarantined, by the records of one or several ledgers, in any order.

    Where a segment's first bad cell is on record, that counts; then what `bads` has found (from the series too);
    then the first cell that its alarms name.
    """
    ordered = sorted(records, key=lambda r: (r.at, r.file, r.seq))
    found = Quarantine(graph or graph_.build(ordered))
    named = [*(bads or {}).values(), *(r.payload for r in ordered if r.kind == "first_bad")]
    found.good = {f.cell.segment: f.last_good_checkpoint for f in named if f.cell and f.last_good_checkpoint}
    marks = _marks(ordered)
    begins = _begins(ordered, bads or {})
    nodes: dict[str, list[Node]] = {}
    for n in found.graph.nodes.values():
        nodes.setdefault(n.segment, []).append(n)
    found.bad = {uid: q for uid, q in marks.bad.items() if uid not in found.graph.nodes}
    for segment, info in found.graph.segments.items():  # parents began before their children
        begin, parent = begins.get(segment), found.bad.get(info.parent_checkpoint or "")
        for n in sorted(nodes.get(segment, ()), key=lambda n: (n.checkpoint.step, n.uid)):
            q = _of(n, begin, parent, found, marks)
            if q is not None:
                told = marks.bad.get(n.uid)
                found.bad[n.uid] = replace(
                    q, node=n, marked=bool(told and told.marked), since=told.since if told else None
                )
    found.lifted = {uid: lift for uid, lift in marks.lifts.items() if uid not in found.bad}
    return found


def _of(
    node: Node, begin: _Begin | None, parent: Quarantined | None, found: Quarantine, marks: _Marks
) -> Quarantined | None:
    """Why a checkpoint is quarantined; None where it is not, or where that was taken back since."""
    lift = marks.lifts.get(node.uid)
    if begin is not None and node.checkpoint.step >= begin.step and (lift is None or lift.at < begin.at):
        return Quarantined(node.uid, begin.why, begin.evidence)
    others = [found.bad[p] for p in node.checkpoint.parents if p in found.bad and p != node.uid]
    source = parent or next(iter(others), None)
    if lift is not None or source is None:
        return marks.bad.get(node.uid)  # by a person, or by an earlier judgement
    origin = source.origin or source
    step = f" of step {origin.node.checkpoint.step:,}" if origin.node else ""
    reason = "for a reason that a person gave" if origin.by_hand else origin.why
    why = f"it descends from the quarantined checkpoint{step} ({origin.checkpoint}): {reason}"
    return Quarantined(node.uid, why, origin.evidence, origin=origin)


@dataclass
class _Marks:
    """Marks that stand."""

    bad: dict[str, Quarantined] = field(default_factory=dict)
    lifts: dict[str, Lifted] = field(default_factory=dict)


def _marks(ordered: Sequence[schemas.Record]) -> _Marks:
    """Which checkpoints are marked as bad, by the layer, a person or another ledger, and which marks were lifted."""
    out = _Marks()
    for r in ordered:
        if r.kind != "checkpoint_mark":
            continue
        m: schemas.CheckpointMark = r.payload
        if m.mark == LIFTED:
            out.lifts[m.checkpoint] = Lifted(m.checkpoint, m.why, r.id, r.segment, r.at)
            out.bad.pop(m.checkpoint, None)
        elif m.mark in BAD:
            before = out.bad.get(m.checkpoint)
            out.bad[m.checkpoint] = Quarantined(
                m.checkpoint,
                m.why,
                tuple(m.evidence),
                marked=m.mark == "quarantined" or bool(before and before.marked),
                since=before.since if before else r.at,
                by_hand=m.by == "person",
            )
            out.lifts.pop(m.checkpoint, None)
    return out


def _begins(ordered: Sequence[schemas.Record], bads: Mapping[str, schemas.FirstBad]) -> dict[str, _Begin]:
    """Segment -> from which step on it is bad."""
    out: dict[str, _Begin] = {}
    for r in ordered:
        if r.kind == "first_bad" and r.payload.cell is not None:
            c = r.payload.cell
            out[c.segment] = _Begin(c.step, _why(c, "first bad cell"), (r.id,), r.at)
    newest = ordered[-1].at if ordered else None
    for segment, found in bads.items():
        if segment not in out and found.cell is not None and newest is not None:
            out[segment] = _Begin(found.cell.step, _why(found.cell, "first bad cell"), (), newest)
    by_segment: dict[str, list[schemas.Cell]] = {}
    for cell in from_alarms(ordered):
        if cell.segment not in out:
            by_segment.setdefault(cell.segment, []).append(cell)
    for segment, cells in by_segment.items():
        first = first_cell(cells)
        if first is not None:
            said = [r for r in ordered if r.kind == "alarm" and r.segment == segment and r.step == first.step]
            out[segment] = _Begin(
                first.step,
                _why(first, "first alarm, the first bad cell is not named yet"),
                tuple(r.id for r in said[:1]),
                said[0].at if said else ordered[-1].at,
            )
    return out


def _why(cell: schemas.Cell, what: str) -> str:
    return f"saved at or after step {cell.step:,}, where rank {cell.rank} shows: {cell.text} ({what})"


def resumes(records: Sequence[schemas.Record], found: Quarantine) -> list[tuple[str, schemas.Finding]]:
    """(segment, finding) of each segment that resumed from a quarantined checkpoint (LIN-C006)."""
    first: dict[str, datetime] = {}
    for r in records:
        if r.kind == "segment" and (r.segment not in first or r.at < first[r.segment]):
            first[r.segment] = r.at
    out = []
    for segment, info in found.graph.segments.items():
        q = found.bad.get(info.parent_checkpoint or "")
        if q is None:
            continue
        knew = q.since is not None and q.since < first.get(segment, q.since)
        out.append((segment, of_resume(q, info.parent_step, found, "marked so then" if knew else None)))
    return out


def of_resume(
    q: Quarantined, step: int | None, found: Quarantine | None, known: str | None
) -> schemas.Finding:
    """The finding that a segment resumed from a quarantined checkpoint.

    Args:
        known: who or what said so when it resumed; None: it was found later.
    """
    at = f" of step {step:,}" if step is not None else f" {q.checkpoint}"
    when = f"it was {known}" if known else "that was found after the resume"
    # A finding goes to the tracker; what a person said does not.
    by_hand = q.by_hand and q.origin is None
    why = "the reason that a person gave stands with the mark in the ledger" if by_hand else q.why
    values = {"checkpoint": schemas.Scalar.of(q.checkpoint), "known": schemas.Scalar.of(known is not None)}
    if step is not None:
        values["step"] = schemas.Scalar.of(step)
    return schemas.Finding(
        code="LIN-C006",
        check=CHECK,
        severity="fault",
        subject="resume",
        text=f"this segment resumes from the checkpoint{at}, which is quarantined; {when}: {why}",
        names=[q.checkpoint],
        values=values,
        remedy=_remedy(q, found),
    )


def _remedy(q: Quarantined, found: Quarantine | None) -> str:
    """Where to resume from instead, and what to do if this one is right."""
    good = found and _before(q, found)
    where = "the last good checkpoint (`lineage first-bad` names it)"
    if good:
        path = f", {good.checkpoint.path}" if good.checkpoint.path else ""
        where = f"a checkpoint from before it: step {good.checkpoint.step:,} ({good.uid}{path})"
    return (
        f"resume from {where}; all that was trained since descends from a bad state. If this checkpoint is right, say "
        f"why: `lineage quarantine --lift {q.checkpoint} --why '...'`"
    )


def _before(q: Quarantined, found: Quarantine) -> Node | None:
    """The last good checkpoint that was named for where it began; else the newest complete one before it."""
    if q.node is None:
        return None
    begun = (q.origin or q).node or q.node
    named = found.good.get(begun.segment)
    if named in found.graph.nodes and named not in found.bad:
        return found.graph.nodes[named]
    path = found.graph.before(q.node.segment, q.node.checkpoint.step)
    return next((n for n in path if n.uid not in found.bad), None)


def findings(
    records: Sequence[schemas.Record],
    *,
    bads: Mapping[str, schemas.FirstBad] | None = None,
    graph: Graph | None = None,
) -> list[tuple[str, schemas.Finding]]:
    """(segment, finding) of all that an audit of quarantine says of a ledger.

    Resumes from a quarantined checkpoint (LIN-C006), quarantines that were taken back (LIN-C030), and checkpoints that
    should carry a mark and do not (LIN-C031).
    """
    found = quarantine(records, graph=graph, bads=bads)
    out = resumes(records, found)
    out += [(_segment(found, lift), of_lift(lift, found)) for lift in found.lifted.values()]
    by_segment: dict[str, list[Quarantined]] = {}
    for q in found.unmarked:
        by_segment.setdefault(q.node.segment if q.node else "", []).append(q)
    return out + [(segment, _of_unmarked(qs)) for segment, qs in by_segment.items()]


def _segment(found: Quarantine, lift: Lifted) -> str:
    node = found.graph.nodes.get(lift.checkpoint)
    return node.segment if node else lift.segment


def of_lift(lift: Lifted, found: Quarantine) -> schemas.Finding:
    """The finding that a quarantine was taken back, with its reason."""
    node = found.graph.nodes.get(lift.checkpoint)
    at = f" of step {node.checkpoint.step:,}" if node else f" {lift.checkpoint}"
    return schemas.Finding(
        code="LIN-C030",
        check=CHECK,
        severity="note",
        subject="quarantine",
        text=f"the quarantine of the checkpoint{at} was taken back: {lift.why}",
        names=[lift.checkpoint],
        values={"record": schemas.Scalar.of(lift.record)},
        remedy="judge whether the reason still holds; `lineage quarantine --mark` quarantines it again",
    )


def _of_unmarked(found: Sequence[Quarantined]) -> schemas.Finding:
    steps = [f"{q.node.checkpoint.step:,}" for q in found if q.node]
    more = f" and {len(steps) - 8} more" if len(steps) > 8 else ""
    many = len(found) > 1
    return schemas.Finding(
        code="LIN-C031",
        check=CHECK,
        severity="warning",
        subject="quarantine",
        text=f"the checkpoint{'s' if many else ''} of step {', '.join(steps[:8])}{more} "
        f"{'carry' if many else 'carries'} no mark, so a resume from one is not warned of: {found[0].why}",
        names=[q.checkpoint for q in found[:64]],
        count=len(found),
        remedy="`lineage quarantine` marks them in the ledger and beside the files",
    )
