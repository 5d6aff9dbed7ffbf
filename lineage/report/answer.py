"""What stands first on the page: the answer, in five lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._rooms import schemas, trackers
from ..judge.graph import Graph, Node
from . import words

SPOILED = ("quarantined", "first_bad", "deleted")
"""Marks that forbid to name a checkpoint as a restart point."""


@dataclass(frozen=True)
class Tip:
    """The newest state of one branch, judged today."""

    segment: int
    uid: str
    state: str
    newest: bool
    verdict: schemas.Verdict
    since_recorded: tuple[str, ...] = ()
    """claims that were judged otherwise while the run went on"""


@dataclass(frozen=True)
class Answer:
    """Five lines for somebody who has no time for more."""

    status: schemas.Status | None
    """None: cannot tell"""
    flagged: str
    because: str
    claims: str
    last_good: str
    path: str | None
    """where the last good checkpoint lies"""
    to_do: str
    command: str
    then: str = ""


def answer(
    ledger: str,
    graph: Graph,
    tips: Sequence[Tip],
    bads: Mapping[str, schemas.FirstBad],
    *,
    preserved: bool,
) -> Answer:
    """Answer for the newest state of the run; other branches follow in their own line."""
    tip = next((t for t in tips if t.newest), None)
    if tip is None:
        return Answer(
            status=None,
            flagged="Cannot tell: this ledger holds no segment of training",
            because="nothing was recorded, or nothing of it can be read",
            claims="no claim can be shown to hold",
            last_good="none is known",
            path=None,
            to_do="Check the ledger's files",
            command=f"lineage verify {shlex.quote(ledger)}",
        )
    node = _last_good(graph, tip, bads)
    good = "none is recorded on this branch before that"
    if node is not None:
        good = (
            f"step {node.checkpoint.step:,} of {words.segment(graph, node.segment)} ({words.short(node.uid)})"
        )
    to_do, command, then = _next(ledger, tip, bads, node, preserved=preserved)
    return Answer(
        status=tip.verdict.status,
        flagged=trackers.headline(tip.verdict),
        because=_because(graph, tip, bads),
        claims=_claims(tip),
        last_good=good,
        path=node.checkpoint.path if node else None,
        to_do=to_do,
        command=command,
        then=then,
    )


def _because(graph: Graph, tip: Tip, bads: Mapping[str, schemas.FirstBad]) -> str:
    """What decides it: the changes, and the first bad cell of the run."""
    parts = []
    status = tip.verdict.status
    links = {
        (k.step, k.concept): k
        for c in tip.verdict.claims
        for k in c.chain
        if k.effect == status and k.code[4] in "CD"
    }
    steps = sorted({s for s, _ in links})
    for step in steps[:3]:
        texts = [words.brief(k.text) for (s, _), k in sorted(links.items()) if s == step]
        undeclared = sum(not k.declared for (s, _), k in links.items() if s == step)
        many = ", confounded: no effect can be traced to one of them" if len(texts) > 1 else ""
        word = "restart" if graph.segments[tip.uid].start != "fresh" else "step"
        parts.append(
            f"{words.plural(len(texts), 'change')} at one {word} (step {step:,}{many}; "
            f"{undeclared} undeclared): {'; '.join(texts)}"
        )
    if status == "not_shown":
        reasons = dict.fromkeys(c.reason for c in tip.verdict.claims if c.status == status)
        parts += [f"{r[:1].upper()}{r[1:]}" for r in list(reasons)[:2]]
    if len(steps) > 3:
        parts.append(f"and changes at {len(steps) - 3} further steps")
    for uid, bad in bads.items():
        if bad.cell is not None:
            parts.append(
                f"First bad cell in segment {graph.number(uid)}: rank {bad.cell.rank}, "
                f"step {bad.cell.step:,}: {bad.cell.text}"
            )
    if not bads:
        parts.append("No abnormal loss or gradient norm is on record")
    return ". ".join(parts)


def _claims(tip: Tip) -> str:
    """The claims that the headline does not name, the doubtful ones first."""
    titles = trackers.text.CLAIM_TITLES
    parts = []
    for status in ("not_shown", "caveat", "holds"):
        names = [titles.get(c.claim, c.claim) for c in tip.verdict.claims if c.status == status]
        if names:
            parts.append(f"{trackers.text.WORDS[status]}: {', '.join(names)}")
    return "; ".join(parts) or "none; every claim is broken"


def _last_good(graph: Graph, tip: Tip, bads: Mapping[str, schemas.FirstBad]) -> Node | None:
    """The latest complete checkpoint on the branch from before anything that breaks a claim."""
    limits = [graph.last_step.get(tip.uid, 0)]
    if tip.verdict.since_step is not None:
        limits.append(tip.verdict.since_step - 1)
    bad = bads.get(tip.uid)
    if bad is not None and bad.last_good_step is not None:
        limits.append(bad.last_good_step)
    found = graph.before(tip.uid, min(limits))
    return next((n for n in found if not any(m.mark in SPOILED for m in n.standing)), None)


def _next(
    ledger: str, tip: Tip, bads: Mapping[str, schemas.FirstBad], node: Node | None, *, preserved: bool
) -> tuple[str, str, str]:
    quoted = shlex.quote(ledger)
    status = tip.verdict.status
    where = (
        f"resume from step {node.checkpoint.step:,} with everything restored"
        if node
        else "start again, since no good checkpoint is on record"
    )
    back = f"do not use the broken claims; to have them back, {where}"
    if bads and not preserved:
        return (
            "Keep the evidence before any further restart, and before checkpoints rotate away",
            f"lineage incident preserve {quoted}",
            f"Then {back}" if status == "broken" else "",
        )
    if status == "broken":
        return (
            "See what changed, value by value",
            f"lineage diff {quoted}",
            f"Then {back}; to keep this branch, report it as a regime of its own",
        )
    if status == "not_shown":
        shows = sorted({c.show for c in tip.verdict.claims if c.show})
        line = f"The line that would show it: {shows[0]}" if shows else ""
        return "Do not rely on the claims that are not shown", f"lineage verdict {quoted}", line
    if status == "caveat":
        return "Name the caveats wherever results are used", f"lineage verdict {quoted}", ""
    return "Nothing needs doing. To check that the ledger itself is whole", f"lineage verify {quoted}", ""
