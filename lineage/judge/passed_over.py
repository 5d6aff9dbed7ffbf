"""A resume from an earlier save although a later one of the same branch was there.

Going back on purpose looks the same, so this is a note. Where the names of the folders, put in the order of text,
end with the one that was taken (`checkpoint-9900` after `checkpoint-10000`), it is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from .._rooms import schemas
from .graph import Graph, Node

CHECK = "passed-over/1"
BAD = ("quarantined", "first_bad")


def findings(records: Sequence[schemas.Record], graph: Graph, segment: str) -> list[schemas.Finding]:
    """What a segment's start passed over; nothing for a fork, nor after trouble that is on record."""
    info = graph.segments.get(segment)
    parent = graph.nodes.get(info.parent_checkpoint or "") if info else None
    began = next((r.at for r in records if r.segment == segment), None)
    if info is None or info.start == "fork" or parent is None or began is None:
        return []
    before = [r for r in records if r.at < began]
    step = parent.checkpoint.step
    if any(_speaks(r, step) for r in before) or any(_declares(r) for r in records if r.segment == segment):
        return []
    known = {r.payload.uid for r in before if r.kind == "checkpoint"}
    later = [n for n in graph.nodes.values() if n.uid in known and _after(n, parent, graph)]
    if any(m.mark in BAD for n in later for m in n.standing):
        return []  # somebody took one of them out: the others may not be trusted either
    whole = [n for n in later if n.checkpoint.status == "complete" and not n.deleted]
    return [_said(parent, max(whole, key=lambda n: n.checkpoint.step), whole)] if whole else []


def _speaks(record: schemas.Record, after: int) -> bool:
    """Whether a record tells of trouble after a step: a reason to go back before it."""
    return record.kind in ("alarm", "incident", "first_bad") and (record.step or 0) > after


def _declares(record: schemas.Record) -> bool:
    """Whether somebody said, with the resume, that something is done on purpose."""
    return record.kind in ("incident", "mitigation")


def _after(node: Node, taken: Node, graph: Graph) -> bool:
    """Whether a save is a later one of the branch that the taken one lies on."""
    return node.checkpoint.step > taken.checkpoint.step and any(
        s.segment == taken.segment and (s.upto is None or s.upto >= taken.checkpoint.step)
        for s in graph.path_to(node.uid)
    )


def _said(taken: Node, newest: Node, later: Sequence[Node]) -> schemas.Finding:
    step, last = taken.checkpoint.step, newest.checkpoint.step
    names = [_name(n) for n in (taken, *later)]
    by_text = all(names) and max(names) == names[0]
    also = (
        f"; by the order of text {names[0]} comes after {_name(newest)}: the latest was looked for by its name"
        if by_text
        else ""
    )
    values = {"first_step": step + 1, "taken": step, "newest": last, "updates": last - step}
    return schemas.Finding(
        code="LIN-C023",
        check=CHECK,
        severity="warning" if by_text else "note",
        subject="resume",
        text=f"resumed from the save of step {step:,}, though that of step {last:,} is complete and nothing on record "
        f"speaks against it: {_updates(last - step)} made again{also}",
        names=[p for p in (taken.checkpoint.path, newest.checkpoint.path) if p],
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="sort saves by the number of their step; where going back is meant, say so with rec.mitigate",
    )


def _updates(n: int) -> str:
    return "1 update is" if n == 1 else f"{n:,} updates are"


def _name(node: Node) -> str:
    return PurePath(node.checkpoint.path).name if node.checkpoint.path else ""
