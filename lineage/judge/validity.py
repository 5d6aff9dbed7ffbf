"""Validity: what may still be concluded, claim by claim, and the chain of changes that decides it.

Monotonic: a claim holds only with positive evidence for every concept that could break it. What is missing
is `not_shown`, never fine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from .drift import REQUIRED, alters, requested_only
from .execution import EVALUATION
from .graph import Graph, Stretch, build, latest
from .lines import SHOW
from .overall import broken_since, overall, worst

FIRST_SEGMENT_NEEDS = ("learning_rate", "optimizer", "model", "data_mix")
"""What must be watched in an unbroken segment for an in-run change not to go unseen."""


@dataclass
class Tally:
    """What was found for one claim."""

    links: list[schemas.ChainLink] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    aside: str = ""
    """what a reader of `holds` must know as well"""

    @property
    def status(self) -> schemas.Status:
        """The worst of what was found; what is missing is not shown."""
        return worst([*(k.effect for k in self.links), *(("not_shown",) if self.missing else ())])


def verdict(
    records: Sequence[schemas.Record],
    *,
    segment: str | None = None,
    checkpoint: str | None = None,
    bad: Mapping[str, schemas.FirstBad] | None = None,
    graph: Graph | None = None,
    damage: Sequence[str] = (),
) -> schemas.Verdict:
    """Judge a checkpoint, or the newest state of a segment, against the first segment of its own path.

    `bad` maps segments to their first bad cell, where one is known. `damage` names what of the ledger could not
    be read: a record that would have broken a claim may be among it.
    """
    graph = graph or build(records)
    if checkpoint is not None:
        path, subject = graph.path_to(checkpoint), f"checkpoint:{checkpoint}"
    else:
        segment = segment or next(reversed(graph.segments), "")
        path = graph.path_to_segment(segment)
        run = records[0].run if records else "unknown"
        subject = f"run:{run}"
    return _judge(records, graph, path, subject, bad or {}, damage)


def _judge(
    records: Sequence[schemas.Record],
    graph: Graph,
    path: Sequence[Stretch],
    subject: str,
    bad: Mapping[str, schemas.FirstBad],
    damage: Sequence[str],
) -> schemas.Verdict:
    catalogue = schemas.catalogue()
    tallies, confounded = collect(records, graph, path, bad, damage)
    if not path:
        for tally in tallies.values():
            tally.missing["parent"] = "no segment is on record"
    add_evaluations(tallies["evaluation"], records)
    claims = [claim_verdict(c, t, confounded, len(path)) for c, t in tallies.items()]
    return schemas.Verdict(
        subject=subject,
        status=overall({c.claim: c.status for c in claims}),
        since_step=broken_since(claims),
        confounded=confounded,
        claims=claims,
        path=[s.segment for s in path],
        policy=catalogue.digest,
    )


def collect(
    records: Sequence[schemas.Record],
    graph: Graph,
    path: Sequence[Stretch],
    bad: Mapping[str, schemas.FirstBad],
    damage: Sequence[str] = (),
    *,
    own: bool = True,
) -> tuple[dict[str, Tally], bool]:
    """Collect for each claim what lies on a path: changes, and what is not shown. Also: is any boundary confounded?

    `own` judges against the run's own first segment.
    """
    tallies = {claim: Tally() for claim in schemas.catalogue().claims}
    confounded = False
    if damage:
        for tally in tallies.values():
            tally.missing["damage"] = f"{len(damage)} damaged places in the ledger, the first: {damage[0]}"
    by_segment: dict[str, list[schemas.Record]] = {}
    for r in records:
        by_segment.setdefault(r.segment, []).append(r)
    for stretch in path:
        mine = by_segment.get(stretch.segment, [])
        if stretch.segment not in graph.segments or stretch.segment in graph.unheld:
            for tally in tallies.values():
                tally.missing.setdefault("ledger", _gap(graph, stretch))
            continue
        for r in _drifts(mine, stretch):
            confounded = confounded or r.payload.confounded
            _add_drift(tallies, r.payload, r.segment, (r.id,))
        if not stretch.cut:
            _add_other_ranks(tallies, mine, stretch)
        _add_missing(
            tallies, mine, graph, stretch, first=not stretch.cut and graph.root(stretch.segment), own=own
        )
        if stretch.segment in bad:
            _add_bad(tallies, bad[stretch.segment], stretch)
    return tallies, confounded


def _gap(graph: Graph, stretch: Stretch) -> str:
    end = "" if stretch.upto is None else f" to step {stretch.upto:,}"
    run = f" of run {graph.runs[stretch.segment]}" if stretch.segment in graph.runs else ""
    return f"what happened from step {stretch.after:,}{end}{run} stands in a ledger that is not at hand"


def tallies_of(drift: schemas.Drift, segment: str) -> dict[str, Tally]:
    """What a drift by itself does to each claim."""
    tallies = {claim: Tally() for claim in schemas.catalogue().claims}
    _add_drift(tallies, drift, segment, ())
    return tallies


def _drifts(records: Sequence[schemas.Record], stretch: Stretch) -> list[schemas.Record]:
    """Drift records of a segment that lie on the stretch: of a resume the newest, of those in the run each, and each
    that a source reports."""
    found: dict[tuple[str, int], schemas.Record] = {}
    for r in records:
        if r.kind != "drift" or r.segment != stretch.segment:
            continue
        if stretch.cut and r.payload.from_step <= stretch.after:
            continue
        if stretch.upto is None or r.payload.from_step <= stretch.upto:
            boundary = r.payload.moment if r.payload.moment == "resume" else r.id
            found[(boundary, r.payload.from_step)] = r
    return sorted(found.values(), key=lambda r: r.payload.from_step)


def _add_drift(
    tallies: Mapping[str, Tally], drift: schemas.Drift, segment: str, records: Sequence[str]
) -> None:
    catalogue = schemas.catalogue()
    for change in drift.changes:
        concept = catalogue.concept(change.concept)
        for claim, tally in tallies.items():
            effect = _effect(concept, change, claim)
            if effect != "holds":
                tally.links.append(_link(drift, change, effect, segment, records))
    for change in drift.unclassified:
        for tally in tallies.values():
            tally.links.append(_link(drift, change, "caveat", segment, records))
    for concept_id, why in drift.not_shown.items():
        _miss(tallies, concept_id, why)


def _effect(concept: schemas.Concept, change: schemas.Change, claim: str) -> schemas.Status:
    effect = concept.effect(claim, change.cls)
    if effect == "broken" and requested_only(change):
        return "caveat"  # asked for, but the live value stayed
    return effect


def _link(
    drift: schemas.Drift,
    change: schemas.Change,
    effect: schemas.Status,
    segment: str,
    records: Sequence[str],
) -> schemas.ChainLink:
    declared = change.mitigation is not None
    code = "LIN-D006" if change.cls == "unclassified" else "LIN-D001" if declared else "LIN-D002"
    if change.concept in schemas.COMPONENTS:
        code = "LIN-C003"
    return schemas.ChainLink(
        code=code,
        concept=change.concept,
        step=drift.from_step,
        segment=segment,
        declared=declared,
        effect=effect,
        text=change.text,
        records=[*records, *change.evidence],
    )


def _miss(tallies: Mapping[str, Tally], concept_id: str, why: str) -> None:
    """A concept that is not shown leaves every claim open that a change of it would break."""
    concept = schemas.catalogue().concept(concept_id)
    for claim, tally in tallies.items():
        if claim in concept.breaks or (concept.id == "unclassified" and claim != "throughput"):
            tally.missing.setdefault(concept_id, why)


def _add_missing(
    tallies: Mapping[str, Tally],
    records: Sequence[schemas.Record],
    graph: Graph,
    stretch: Stretch,
    *,
    first: bool,
    own: bool,
) -> None:
    info = graph.segments[stretch.segment]
    _add_absent_ranks(tallies, records, info, stretch)
    resumed = info.start in ("resume", "rewind", "unknown") or stretch.after > 0
    if first and resumed:
        why = "the segment continues from a checkpoint that this ledger does not hold"
        if info.parent_checkpoint is None:
            why = "training continued from a state whose checkpoint was not named"
            if info.parent_evidence == "declared":
                why = "a checkpoint was named, and nothing tells of the state at its save: see note LIN-C001"
        for tally in tallies.values():
            tally.missing.setdefault("parent", why)
    if first and own and info.start == "fresh" and graph.number(stretch.segment) > 1:
        for tally in tallies.values():
            tally.missing.setdefault("parent", "the segment starts anew, apart from this run's first segment")
    if not first and not stretch.cut and not _drifts(records, Stretch(stretch.segment, stretch.after, None)):
        for tally in tallies.values():
            tally.missing.setdefault(
                "drift", f"segment {graph.number(stretch.segment)} ended before its first step was compared"
            )
    _add_unwatched(tallies, records, stretch)


def _add_unwatched(tallies: Mapping[str, Tally], records: Sequence[schemas.Record], stretch: Stretch) -> None:
    """What a segment did not record at all: a change of it would go unseen."""
    if latest(records, "environment", stretch.segment) is None:
        for concept in ("software", "hardware"):
            _miss(tallies, concept, "no environment record")
    if latest(records, "code", stretch.segment) is None:
        _miss(tallies, "code", "no code record")
    effective = latest(records, "effective", stretch.segment)
    for concept in FIRST_SEGMENT_NEEDS:
        if effective is None:
            _miss(tallies, concept, "no live values were recorded")
        elif concept not in effective.payload.values:
            _miss(tallies, concept, effective.payload.unseen.get(concept, "not recorded"))


def _add_other_ranks(
    tallies: Mapping[str, Tally], records: Sequence[schemas.Record], stretch: Stretch
) -> None:
    """What other ranks than the judging one did not restore: each rank records its own."""
    every = [r for r in records if r.kind == "restore" and r.segment == stretch.segment]
    found = [r for r in every if r.payload.scope == "rank"]
    told = {c.component for r in found if r.rank == 0 for c in r.payload.components if c.status != "restored"}
    together = {c.component for r in every if r.payload.scope == "whole" for c in r.payload.components}
    for r in found:
        if r.rank == 0:
            continue
        for c in r.payload.components:
            concept = schemas.catalogue().concept(c.component)
            if c.component in told:
                continue
            if c.status == "not_recorded":
                if c.component not in together:
                    _miss(tallies, c.component, f"rank {r.rank}: {c.text}")
            elif c.status != "restored":
                for claim, tally in tallies.items():
                    if concept.effect(claim) != "holds":
                        tally.links.append(
                            schemas.ChainLink(
                                code="LIN-C002",
                                concept=c.component,
                                step=stretch.after + 1,
                                segment=r.segment,
                                effect=concept.effect(claim),
                                text=f"rank {r.rank}: {c.text}",
                                records=[r.id],
                            )
                        )


def add_evaluations(tally: Tally, records: Sequence[schemas.Record]) -> None:
    """Evaluations of one evaluator can be compared only where its version and its data are the same."""
    found = [r for r in records if r.kind == "evaluation"]
    tally.aside = "" if found else ", as far as training goes: no evaluation is on record"
    concept = schemas.catalogue().concept("eval_protocol")
    for name in sorted({r.payload.evaluator for r in found}):
        mine = [r for r in found if r.payload.evaluator == name]
        ways = sorted({f"{r.payload.evaluator_version} on {r.payload.data or 'unnamed data'}" for r in mine})
        if len(ways) > 1:
            tally.links.append(
                schemas.ChainLink(
                    code="LIN-D002",
                    concept=concept.id,
                    step=mine[-1].step or 0,
                    effect="broken",
                    text=f"{name} was run in {len(ways)} ways: {'; '.join(ways[:4])}",
                    records=[r.id for r in mine],
                )
            )


def _add_absent_ranks(
    tallies: Mapping[str, Tally],
    records: Sequence[schemas.Record],
    info: schemas.Segment,
    stretch: Stretch,
) -> None:
    """What ranks that left no record restored, read or changed is not shown."""
    there = {r.rank for r in records if r.segment == stretch.segment and r.kind == "segment"}
    absent = info.world_size - len(there)
    if absent > 0:
        why = f"{absent} of {info.world_size} ranks left no record in this ledger"
        for concept in ("rng", "loader_position", "optimizer_state"):
            _miss(tallies, concept, why)


def _add_bad(tallies: Mapping[str, Tally], bad: schemas.FirstBad, stretch: Stretch) -> None:
    cell = bad.cell
    if cell is None or (stretch.upto is not None and cell.step > stretch.upto):
        return
    if cell.signal.startswith(EVALUATION):
        return  # what an evaluation gave entered no weights
    if stretch.cut and cell.step <= stretch.after:
        return
    # replicas that differ are no one set of weights: which was trained, and which was saved, depends on the rank
    effect: schemas.Status = "caveat" if cell.abnormal == "out_of_range" else "broken"
    code = {"loss": ("LIN-A001", "LIN-A003")}.get(cell.signal, ("LIN-A002", "LIN-A004"))[effect == "caveat"]
    code = "LIN-A007" if cell.abnormal == "differs" else code
    differs = cell.abnormal == "differs"
    what = (
        "ranks train no one set of weights" if differs else "nothing shows that it did not enter the weights"
    )
    link = schemas.ChainLink(
        code=code,
        concept="weights",
        step=cell.step,
        segment=cell.segment,
        effect=effect,
        text=f"rank {cell.rank}: {cell.text}; {what}",
    )
    for claim in ("loss_curve", "scaling_law", "ablation", "evaluation"):
        tallies[claim].links.append(link)


def claim_verdict(claim: str, tally: Tally, confounded: bool, stretches: int = 2) -> schemas.ClaimVerdict:
    status = tally.status
    deciding = [k for k in tally.links if k.effect == status]
    show = None
    if status in ("broken", "caveat"):
        reason = because(deciding, claim)
        if confounded and claim == "ablation" and status == "broken":
            reason += "; several changes came at one restart, so no effect can be traced to one of them"
    elif status == "not_shown":
        reason = "not shown: " + "; ".join(f"{title(k)} ({v})" for k, v in list(tally.missing.items())[:3])
        if len(tally.missing) > 3:
            reason += f"; and {len(tally.missing) - 3} more"
        show = next((SHOW[k] for k in tally.missing if k in SHOW), None)
    else:
        reason = (
            "every watched concept that could break it was compared on each boundary, and none differs"
            if stretches > 1
            else "one unbroken segment, and no watched value that could break it changed in it"
        ) + tally.aside
    return schemas.ClaimVerdict(claim=claim, status=status, reason=reason, chain=tally.links, show=show)


def because(links: Sequence[schemas.ChainLink], claim: str) -> str:
    """The deciding changes by step, and, for a single one, what it does."""
    by_step: dict[int, list[str]] = {}
    for k in links:
        texts = by_step.setdefault(k.step, [])
        if k.text not in texts:
            texts.append(k.text)
    parts = [f"at step {step:,}: {'; '.join(texts[:6])}" for step, texts in sorted(by_step.items())]
    text = "; ".join(parts[:4]) + (f"; and at {len(parts) - 4} further steps" if len(parts) > 4 else "")
    if len({k.concept for k in links}) == 1 and links[0].code[4] in "CD":
        text += f" ({schemas.catalogue().concept(links[0].concept).why_so(claim, links[0].effect)})"
    return text


def title(concept_id: str) -> str:
    """A concept in words; what the catalogue does not know by its own name."""
    concept = schemas.catalogue().concept(concept_id)
    return concept.title if concept.id != "unclassified" else concept_id


__all__ = ["REQUIRED", "alters", "verdict", "worst"]
