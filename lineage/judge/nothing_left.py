"""No complete checkpoint is left: a rotation took the last one before the next was whole, or all of them."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from .graph import Graph, Node

CHECK = "nothing-left/1"


def findings(graph: Graph, segment: str) -> list[schemas.Finding]:
    """What is left of the saves that a segment's branch has on record. Only deletions that were seen count."""
    path = {s.segment for s in graph.path_to_segment(segment)}
    nodes = sorted((n for n in graph.nodes.values() if n.segment in path), key=lambda n: n.checkpoint.step)
    gone = [n for n in nodes if n.deleted]
    rest = [n for n in nodes if n not in gone]
    if not gone or any(n.checkpoint.status == "complete" for n in rest):
        return []
    parts = [f"{len(gone):,} deleted ({_steps(gone)})"]
    parts += [f"{len(rest):,} never complete ({_steps(rest)})"] if rest else []
    values = {"first_step": nodes[-1].checkpoint.step, "deleted": len(gone), "never_complete": len(rest)}
    return [
        schemas.Finding(
            code="LIN-C024",
            check=CHECK,
            severity="fault",
            subject="checkpoints",
            text=f"no complete checkpoint is left: of {len(nodes):,} on record {' and '.join(parts)}. Which state was "
            "the last good one cannot be gone back to",
            names=[n.checkpoint.path for n in gone if n.checkpoint.path][-8:],
            values={k: schemas.Scalar.of(v) for k, v in values.items()},
            remedy="keep two, and delete the older one when the newer is whole; `lineage checkpoint hold` keeps one "
            "from the rotation of the integrations",
        )
    ]


def _steps(nodes: Sequence[Node]) -> str:
    steps = [f"{n.checkpoint.step:,}" for n in nodes]
    shown = ", ".join(steps[-4:])
    return f"step{'' if len(steps) == 1 else 's'} {'..., ' if len(steps) > 4 else ''}{shown}"
