"""Everything that a report shows, collected once, so that both formats say the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from .._rooms import schemas
from ..judge import graph as graph_
from ..judge import restored_whole, tree, validity
from ..judge.events_run import Placed
from ..judge.graph import Graph
from ..judge.joined import World
from ..judge.phases import Phase
from ..judge.tree import Root
from ..ledger import cells as cells_
from ..ledger import events as ledger_events
from ..ledger import health
from ..ledger.reader import Ledger
from ..ledger.scan import Damage
from . import answer as answer_
from . import odd, questions, series, timeline, words
from . import phases as phases_
from .answer import Answer, Tip
from .grid import Grids
from .series import Curves
from .timeline import Event


@dataclass(frozen=True)
class SegmentFact:
    """One segment: where it came from and what became of it."""

    number: int
    uid: str
    start: str
    parent: str
    steps: str
    ended: str
    state: str
    ranks: tuple[int, ...]
    world_size: int
    parent_segment: int | None = None
    parent_step: int | None = None


@dataclass(frozen=True)
class CheckpointFact:
    """One checkpoint with its later marks."""

    checkpoint: schemas.Checkpoint
    segment: int
    status: str
    marks: tuple[str, ...]
    branch: str


@dataclass(frozen=True)
class BadFact:
    """The first bad cell of one segment, and what lies around it."""

    segment: int
    found: schemas.FirstBad
    grid: Grids


@dataclass(frozen=True)
class DriftFact:
    """What changed at one boundary."""

    segment: int
    record: str
    drift: schemas.Drift


@dataclass(frozen=True)
class RestoreFact:
    """What became of one component on a resume, with the ranks on which it was so."""

    segment: int
    checkpoint: str
    ranks: tuple[int, ...]
    """() for all ranks together"""
    component: schemas.ComponentRestore


@dataclass(frozen=True)
class MitigationFact:
    """A declared intervention, and the evidence that it is in effect."""

    segment: int
    step: int | None
    mitigation: schemas.Mitigation
    effects: tuple[schemas.MitigationEffect, ...]


@dataclass(frozen=True)
class Note:
    """Something the layer or a tracker could not do."""

    at: datetime
    segment: int | None
    rank: int
    code: str
    text: str
    remedy: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that is shown."""

    run: str
    name: str | None
    ledger: str
    read_at: datetime
    written: tuple[datetime, datetime] | None
    records: int
    aliases: tuple[schemas.TrackerAlias, ...]
    fork_of: str | None
    answer: Answer
    tips: tuple[Tip, ...]
    segments: tuple[SegmentFact, ...]
    phases: tuple[Phase, ...]
    roots: tuple[Root, ...]
    """the lineage tree"""
    left: dict[str, int]
    """segment whose tail was left -> the last step that a later one stands on"""
    checkpoints: tuple[CheckpointFact, ...]
    bads: tuple[BadFact, ...]
    drifts: tuple[DriftFact, ...]
    restores: tuple[RestoreFact, ...]
    mitigations: tuple[MitigationFact, ...]
    regimes: tuple[tuple[int, schemas.Regime], ...]
    events: tuple[Event, ...]
    beside: tuple[Placed, ...]
    """events of machines, links and software in their places, in order of time"""
    findings: tuple[health.Gathered, ...]
    """the worst first"""
    notes: tuple[Note, ...]
    coverage: dict[str, str]
    """what is not recorded -> the line that would add it"""
    gaps: tuple[str, ...]
    evidence: tuple[schemas.Preserved, ...]
    evaluations: tuple[tuple[str, schemas.Evaluation], ...]
    open_questions: tuple[str, ...]
    damage: tuple[Damage, ...]
    curves: Curves = field(repr=False)


def gather(
    ledger: Ledger, found: cells_.Cells | None = None, findings: Collection[health.Said] | None = None
) -> Facts:
    """Collect all facts of a ledger. Reads the ledger's files and nothing else.

    `found`: its abnormal cells, `findings`: what `health.findings` gives, where they are known already.
    """
    records, curves = ledger.records, series.read(ledger)
    graph = graph_.build(records, reached=ledger.reached)
    found = found or cells_.find(ledger)
    bads = found.first_bads
    tips = _tips(records, graph, bads)
    preserved = _preserved(records, bads)
    place = str(ledger.path.absolute())
    damage = [f"{d.file} line {d.line}: {d.title}" for d in ledger.damage if d.code != "LIN-J001"]
    coverage, gaps = _coverage(ledger, graph)
    first_bads = tuple(BadFact(graph.number(uid), b, Grids.of(b, found)) for uid, b in bads.items())
    beside = ledger_events.read(ledger).placed
    runs = ledger.of("run")
    names = [r.payload.name for r in runs if r.payload.name]
    return Facts(
        run=ledger.run,
        name=names[-1] if names else None,
        ledger=place,
        read_at=schemas.now(),
        written=(records[0].at, records[-1].at) if records else None,
        records=len(records),
        aliases=tuple({(a.tracker, a.id): a for r in runs for a in r.payload.aliases}.values()),
        fork_of=next((r.payload.fork_of for r in reversed(runs) if r.payload.fork_of), None),
        answer=answer_.answer(place, graph, tips, bads, preserved=preserved),
        tips=tips,
        segments=tuple(_segment(records, graph, curves, uid) for uid in graph.segments),
        phases=tuple(phases_.phases(records, graph, curves, series.consumed(ledger))),
        roots=tuple(tree.forest(World(records, graph, bads, damage))),
        left=graph.abandoned(),
        checkpoints=tuple(_checkpoint(graph, n) for n in graph.nodes.values()),
        bads=first_bads,
        drifts=tuple(
            DriftFact(graph.number(r.segment), r.id, r.payload) for r in _known(ledger, graph, "drift")
        ),
        restores=_restores(ledger, graph),
        mitigations=_mitigations(ledger, graph),
        regimes=tuple((graph.number(r.segment), r.payload) for r in _known(ledger, graph, "regime")),
        events=tuple(timeline.events(records, graph, beside)),
        beside=tuple(beside),
        findings=tuple(health.gathered(ledger, graph.segments, findings)),
        notes=_notes(ledger, graph),
        coverage=coverage,
        gaps=(*gaps, *odd.odd(records), *found.notes, *([curves.left_out] if curves.left_out else [])),
        evidence=tuple(r.payload for r in ledger.of("preserved")),
        evaluations=tuple((words.short(r.payload.checkpoint), r.payload) for r in ledger.of("evaluation")),
        open_questions=tuple(questions.collect(records, graph, tips, bads, preserved=preserved)),
        damage=tuple(ledger.damage),
        curves=curves,
    )


def _known(ledger: Ledger, graph: Graph, kind: str) -> list[schemas.Record]:
    """Records of a kind whose segment is known: where its record is lost, they cannot be placed."""
    return [r for r in ledger.of(kind) if r.segment in graph.segments]


def _tips(
    records: Sequence[schemas.Record], graph: Graph, bads: dict[str, schemas.FirstBad]
) -> tuple[Tip, ...]:
    """The ends of all branches, the newest segment's first."""
    order, ends = list(graph.segments), graph.tips()
    out = []
    for uid in reversed(ends):
        verdict = validity.verdict(records, segment=uid, bad=bads, graph=graph)
        written = [r.payload for r in records if r.kind == "verdict" and r.segment == uid]
        then = {c.claim: c.status for c in written[-1].claims} if written else {}
        differs = tuple(c.claim for c in verdict.claims if then.get(c.claim, c.status) != c.status)
        out.append(Tip(graph.number(uid), uid, _state(graph, uid, order), uid == order[-1], verdict, differs))
    return tuple(out)


def _state(graph: Graph, uid: str, order: Sequence[str]) -> str:
    """What became of a segment's branch."""
    cut = graph.abandoned().get(uid)
    children = [n for n in graph.nodes.values() if n.segment == uid and graph.children(n.uid)]
    if cut is not None:
        return f"steps after {cut:,} abandoned"
    if uid == order[-1]:
        return "newest"
    if children:
        return "continued"
    return "branch that nothing later continues"


def _segment(records: Sequence[schemas.Record], graph: Graph, curves: Curves, uid: str) -> SegmentFact:
    info = graph.segments[uid]
    node = graph.nodes.get(info.parent_checkpoint or "")
    if node is not None:
        parent = (
            f"step {node.checkpoint.step:,} of {words.segment(graph, node.segment)} ({words.short(node.uid)})"
        )
    elif info.parent_checkpoint is not None:
        parent = f"{words.short(info.parent_checkpoint)}, which this ledger does not hold"
    else:
        parent = "none" if info.start == "fresh" else "not named"
    if info.parent_evidence == "content":
        parent += ", found by its content"
    ends = {r.rank: r.payload for r in records if r.kind == "segment_end" and r.segment == uid}
    if not ends:
        ended = "no end on record: killed, or still running"
    else:
        reasons = sorted({e.reason.replace("_", " ") for e in ends.values()})
        errors = sorted({e.error for e in ends.values() if e.error})
        ended = ", ".join(reasons) + (f": {words.shorten('; '.join(errors))}" if errors else "")
        silent = info.world_size - len(ends)
        ended += f"; no end on record for {words.plural(silent, 'rank')}" if silent > 0 else ""
    whole = phases_.span(graph, curves, uid)
    return SegmentFact(
        number=graph.number(uid),
        uid=uid,
        start=info.start,
        parent=parent,
        steps=words.interval(*whole) if whole else "none",
        ended=ended,
        state=_state(graph, uid, list(graph.segments)),
        ranks=tuple(sorted({r.rank for r in records if r.segment == uid and r.kind == "segment"})),
        world_size=info.world_size,
        parent_segment=graph.number(node.segment) if node and node.segment in graph.segments else None,
        parent_step=node.checkpoint.step if node else info.parent_step,
    )


def _checkpoint(graph: Graph, node: graph_.Node) -> CheckpointFact:
    cut = graph.abandoned().get(node.segment)
    left = cut is not None and node.checkpoint.step > cut
    status: str = node.checkpoint.status
    if node.checkpoint.missing:
        status += f": {', '.join(node.checkpoint.missing)} missing"
    known = node.segment in graph.segments
    number = graph.number(node.segment) if known else 0
    branch = words.segment(graph, node.segment) + (", abandoned" if left else "")
    return CheckpointFact(
        checkpoint=node.checkpoint,
        segment=number,
        status=status,
        marks=tuple(dict.fromkeys(m.mark.replace("_", " ") for m in node.standing)),
        branch=branch,
    )


def _restores(ledger: Ledger, graph: Graph) -> tuple[RestoreFact, ...]:
    """Restores with equal outcome on several ranks in one row."""
    own: dict[tuple[str, str], dict[int, schemas.Restore]] = {}
    told: dict[tuple[str, str], schemas.Restore] = {}
    for r in _known(ledger, graph, "restore"):
        key = (r.segment, r.payload.checkpoint)
        if r.payload.scope == "whole":
            told[key] = r.payload
        else:
            own.setdefault(key, {})[r.rank] = r.payload
    out = []
    for (segment, checkpoint), of_ranks in own.items():
        node = graph.nodes.get(checkpoint)
        where = f"step {node.checkpoint.step:,}" if node else words.short(checkpoint)
        every = restored_whole.outcomes(of_ranks, told.get((segment, checkpoint)))
        out += [RestoreFact(graph.number(segment), where, o.ranks, o.found) for o in every]
    return tuple(out)


def _mitigations(ledger: Ledger, graph: Graph) -> tuple[MitigationFact, ...]:
    effects: dict[str, list[schemas.MitigationEffect]] = {}
    for r in ledger.of("mitigation_effect"):
        effects.setdefault(r.payload.mitigation, []).append(r.payload)
    return tuple(
        MitigationFact(graph.number(r.segment), r.step, r.payload, tuple(effects.get(r.payload.uid, ())))
        for r in _known(ledger, graph, "mitigation")
    )


def _notes(ledger: Ledger, graph: Graph) -> tuple[Note, ...]:
    """Degradations of the layer and notes on trackers, oldest first; alike ones once."""
    out: dict[tuple[str, int, str, str], Note] = {}
    for r in ledger.records:
        if r.kind not in ("degraded", "tracker_note"):
            continue
        p = r.payload
        if r.kind == "degraded":
            text, remedy = f"{p.part}: {p.error}; {p.consequence}", p.remedy
        else:
            text, remedy = f"{p.tracker}: {p.text}", None
        number = graph.number(r.segment) if r.segment in graph.segments else None
        out.setdefault((r.segment, r.rank, p.code, text), Note(r.at, number, r.rank, p.code, text, remedy))
    return tuple(out.values())


def _coverage(ledger: Ledger, graph: Graph) -> tuple[dict[str, str], list[str]]:
    """What the newest segment does not record, and the gaps of all."""
    found = _known(ledger, graph, "coverage")
    newest = max(found, key=lambda r: (graph.number(r.segment), -r.rank), default=None)
    missing = dict(newest.payload.missing) if newest else {}  # of its lowest rank, which captures most
    gaps = [f"segment {graph.number(r.segment)}, rank {r.rank}: {g}" for r in found for g in r.payload.gaps]
    return missing, list(dict.fromkeys(gaps))


def _preserved(records: Sequence[schemas.Record], bads: dict[str, schemas.FirstBad]) -> bool:
    """Whether verified evidence was kept after the newest bad segment began to be bad."""
    began = [r.at for r in records if r.kind in ("alarm", "first_bad") and r.segment in bads] or [
        r.at for r in records if r.kind == "segment" and r.segment in bads
    ]
    kept = [r.at for r in records if r.kind == "preserved" and r.payload.verified]
    return bool(kept) and max(kept) >= max(began, default=max(kept))
