"""Open questions: what this ledger does not answer, said so that somebody can answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._rooms import schemas
from ..judge.graph import Graph
from . import words
from .answer import Tip


def collect(
    records: Sequence[schemas.Record],
    graph: Graph,
    tips: Sequence[Tip],
    bads: Mapping[str, schemas.FirstBad],
    *,
    preserved: bool,
) -> list[str]:
    """All open questions, the gravest first."""
    out: list[str] = []
    for uid, bad in bads.items():
        out += _of_bad(graph, uid, bad)
    if bads and not preserved:
        out.append("The evidence of the first bad step is not preserved yet; a rotation may delete it")
    for r in records:
        if r.kind == "drift" and r.segment in graph.segments:
            out += _of_drift(graph.number(r.segment), r.payload)
    out += _of_claims(tips)
    ended = {r.segment for r in records if r.kind == "segment_end"}
    out += [
        f"Segment {graph.number(uid)} left no end on record: was it killed, or does it still run?"
        for uid in graph.segments
        if uid not in ended
    ]
    return list(dict.fromkeys(out))


def _of_bad(graph: Graph, uid: str, bad: schemas.FirstBad) -> list[str]:
    cell = bad.cell
    assert cell is not None
    out = [
        f"Why did rank {cell.rank} go bad at step {cell.step:,} of segment {graph.number(uid)}? This ledger "
        "names the place, not the cause; a restart that succeeds does not show it either"
    ]
    out += [f"Segment {graph.number(uid)}: {gap}; it may have gone bad earlier" for gap in bad.gaps]
    return out


def _of_drift(number: int, drift: schemas.Drift) -> list[str]:
    at = f"step {drift.from_step:,} of segment {number}"
    out = []
    if drift.undeclared:
        names = ", ".join(dict.fromkeys(schemas.catalogue().concept(c).title for c in drift.undeclared))
        out.append(f"Who changed this at {at}, and why? No mitigation was declared for it: {names}")
    if drift.confounded:
        out.append(
            f"Which of the changes at {at} had which effect? They came together (confounded), "
            "so this cannot be told; repeat it with one change at a time"
        )
    out += [
        f"The mitigation {words.short(uid)} declared by {at} is not shown to be in effect"
        for uid in drift.unproven
    ]
    for concept, why in drift.not_shown.items():
        title = schemas.catalogue().concept(concept).title
        name = title if concept in schemas.catalogue().concepts else concept
        out.append(f"Did the {name} change at {at}? Not shown: {why}")
    return out


def _of_claims(tips: Sequence[Tip]) -> list[str]:
    """What is not shown on the newest branch, reason by reason, with the claims that wait for it."""
    tip = next((t for t in tips if t.newest), None)
    waiting: dict[tuple[str, str | None], list[str]] = {}
    for c in tip.verdict.claims if tip else ():
        if c.status == "not_shown":
            title = schemas.catalogue().claims[c.claim].title if c.claim in schemas.CLAIMS else c.claim
            waiting.setdefault((c.reason, c.show), []).append(title)
    return [
        f"Undecided: {', '.join(titles)}. {reason[:1].upper()}{reason[1:]}"
        + (f". To show it: {show}" if show else "")
        for (reason, show), titles in waiting.items()
    ]
