"""What the audit looks at, gathered from a ledger: its records, what checks find in them, and what the disk tells."""

from __future__ import annotations

from pathlib import Path

from .._rooms import schemas
from ..judge import validity
from ..judge.audit import Audited, Found, Weakened
from ..judge.graph import Graph
from . import health
from .cells import Cells
from .reader import Ledger
from .verify import verify


def gather(ledger: Ledger, graph: Graph, cells: Cells, run: str) -> Audited:
    """Gather everything. `run`: what the run is called in a command."""
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
        findings=_findings(ledger, graph),
        damage=damage,
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


def _findings(ledger: Ledger, graph: Graph) -> list[Found]:
    """What all checks found: with the record where one was written."""
    ids = {id(r.payload): r.id for r in ledger.of("finding")}
    return [
        Found(ids.get(id(s.payload)), graph.number(s.segment), s.step, s.payload)
        for s in health.findings(ledger)
    ]


def vanished(graph: Graph) -> list[tuple[str, str]]:
    """Checkpoints that should be where they were, and are not.

    Only where the folder that held them is there: a ledger that was copied to another machine tells nothing of its
    checkpoints.
    """
    out = []
    for uid, node in graph.nodes.items():
        c = node.checkpoint
        if (
            c.path is None
            or c.status != "complete"
            or any(m.mark in ("deleted", "released") for m in node.standing)
        ):
            continue
        path = Path(c.path)
        if not path.exists() and path.parent.is_dir():
            out.append((uid, c.path))
    return out
