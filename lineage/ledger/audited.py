"""What the audit looks at, gathered from a ledger: its records, what checks find in them, and what the disk tells."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from .._rooms import schemas
from ..judge import validity
from ..judge.audit import Audited, Found, Weakened
from ..judge.graph import Graph, Node
from . import health
from .cells import Cells
from .reader import Ledger
from .verify import verify


def gather(
    ledger: Ledger, graph: Graph, cells: Cells, run: str, findings: Collection[health.Said] | None = None
) -> Audited:
    """Gather everything. `run`: what the run is called in a command; `findings`: those of `health.findings`, where it
    was asked already."""
    checked = verify(ledger.path)
    catalogue = schemas.catalogue()
    bads = cells.first_bads
    damage = [f"{d.file} line {d.line}: {d.title}: {d.text}" for d in checked.damage if d.code != "LIN-J001"]
    return Audited(
        run=run,
        records=ledger.records,
        graph=graph,
        bads=bads,
        signals={uid: {r: s.signals for r, s in seen.ranks.items()} for uid, seen in cells.seen.items()},
        findings=_findings(ledger, graph, health.findings(ledger) if findings is None else findings),
        damage=damage,
        unread=checked.unread,
        anchors=checked.anchored,
        sealed=checked.seals,
        vanished=vanished(graph),
        weakened=[
            Weakened(o.concept, o.claim, o.status, o.was, o.who, o.why, o.source) for o in catalogue.weakened
        ],
        policy=catalogue.digest,
        shipped=schemas.shipped_catalogue().digest,
        today=validity.verdict(ledger.records, bad=bads, graph=graph, damage=damage)
        if graph.segments
        else None,
    )


def _findings(ledger: Ledger, graph: Graph, findings: Collection[health.Said]) -> list[Found]:
    """What all checks found: with the record where one was written."""
    ids = {id(r.payload): r.id for r in ledger.of("finding")}
    return [Found(ids.get(id(s.payload)), graph.number(s.segment), s.step, s.payload) for s in findings]


def whereabouts(node: Node) -> Literal["there", "gone", "elsewhere", "deleted", "no path"]:
    """Whether what a checkpoint's record names is still there, as far as this machine can tell.

    `gone`: the folder that held it is here, and it is not in it. `elsewhere`: that folder is not on this machine, or
    it is in a store, which `lineage checkpoint verify` alone asks: nothing is known of it. `deleted`: a record says so.
    """
    if any(m.mark in ("deleted", "released") for m in node.standing):
        return "deleted"
    if node.checkpoint.path is None:
        return "no path"
    path = Path(node.checkpoint.path)
    if path.exists():
        return "there"
    return "gone" if "://" not in node.checkpoint.path and path.parent.is_dir() else "elsewhere"


def vanished(graph: Graph) -> list[tuple[str, str]]:
    """Checkpoints that should be where they were, and are not.

    Only where the folder that held them is there: a ledger that was copied to another machine tells nothing of its
    checkpoints.
    """
    return [
        (uid, node.checkpoint.path or "")
        for uid, node in graph.nodes.items()
        if node.checkpoint.status == "complete" and whereabouts(node) == "gone"
    ]


def not_looked_at(graph: Graph) -> int:
    """Checkpoints of which this machine cannot tell whether they are still there."""
    return sum(
        n.checkpoint.status == "complete" and whereabouts(n) == "elsewhere" for n in graph.nodes.values()
    )
