"""Comparing two states: what they share decides nothing, what came after it on either branch does.

Where the branches have a common ancestor they are compared from it on; where they have none, from their starts,
and the difference between these counts too. A change that both made alike is no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from . import ancestry, conditions, validity
from . import drift as drift_
from .alike import Alike, Mirrored
from .ancestry import Ancestor
from .conditions import Conditions
from .graph import Node, Stretch
from .joined import Branch, World
from .lines import SHOW
from .overall import broken_since, overall
from .validity import Tally

Where = Literal["between", "a", "b"]
"""between: the two differ where the comparison begins; a, b: that side changed since."""

SIDES: dict[str, str] = {"between": "", "a": "on the reference's side, ", "b": "on the subject's side, "}


SAME = "they are the same state"
"""The reason where nothing lies between the two."""


@dataclass(frozen=True)
class Decisive:
    """One change that parts the two, and where it lies."""

    side: Where
    link: schemas.ChainLink


@dataclass(frozen=True)
class Missing:
    """One piece of evidence that is missing for a claim, and what would show it."""

    side: Where
    concept: str
    why: str
    show: str | None


@dataclass(frozen=True)
class Comparison:
    """Two states, what they share, and what parts them. A is the verdict's reference, B its subject."""

    verdict: schemas.Verdict
    branches: tuple[Branch, Branch]
    a: Conditions
    """the conditions at A"""
    b: Conditions
    """the conditions at B"""
    ancestor: Ancestor | None
    begun: schemas.Drift | None
    """what differs where the comparison begins; None where both begin as one"""
    decisive: list[Decisive]
    """what the status of some claim rests on"""
    beside: list[Decisive]
    """what differs too, and no claim's status rests on"""
    alike: list[Mirrored]
    missing: Mapping[str, list[Missing]]
    """claim -> what it lacks"""


def compare(world: World, a: Branch, b: Branch) -> Comparison:
    """Judge B against A, claim by claim."""
    ancestor, rest_a, rest_b = ancestry.common(world, a, b)
    begun = _begun(world, a, b, ancestor)
    parts = {
        "between": _between(begun, a),
        "a": _since(world, rest_a),
        "b": _since(world, rest_b),
    }
    if ancestor is not None and ancestor.by == "content":
        _throughput_from_the_starts(world, a, b, parts)
    parted = ancestry.parted(world, rest_a, rest_b)
    if parted is not None:
        parts["between"]["bitwise"].links.append(_parted(*parted))
    for claim, tally in parts["between"].items():
        _damage(world, tally)
        if claim == "evaluation":
            _evaluations(world, (a, rest_a), (b, rest_b), tally)
    finder = Alike(world.records)
    mirrored = {c: finder.match(parts["a"][c].links, parts["b"][c].links) for c in schemas.CLAIMS}
    found = {c: _left(parts, c, mirrored[c]) for c in schemas.CLAIMS}
    missing = {c: _missing(parts, c) for c in schemas.CLAIMS}
    confounded = _confounded(finder, begun, found)
    same = ancestor is not None and not rest_a and not rest_b and not (begun and begun.changes)
    since = "" if ancestor is None else f"since their common ancestor at step {ancestor.step:,}"
    by_content = ancestor is not None and ancestor.by == "content"
    claims = [
        _claim(
            c,
            found[c],
            missing[c],
            since,
            confounded,
            same and not (by_content and c == "throughput"),
            parts["between"][c].aside,
        )
        for c in schemas.CLAIMS
    ]
    verdict = schemas.Verdict(
        subject=b.name,
        reference=a.name,
        status=overall({c.claim: c.status for c in claims}),
        since_step=broken_since(claims),
        confounded=confounded,
        claims=claims,
        path=[s.segment for s in b.path if s.segment],
        policy=schemas.catalogue().digest,
    )
    parting = {(d.side, d.link.step, d.link.concept, d.link.text): d for ds in found.values() for d in ds}
    ordered = sorted(parting.values(), key=lambda d: (d.link.step, d.side, d.link.concept))
    decisive, beside = deciding(ordered, verdict.claims)
    alike = {(m.a.step, m.a.concept, m.a.text): m for ms in mirrored.values() for m in ms}
    return Comparison(
        verdict=verdict,
        branches=(a, b),
        a=at(world, a),
        b=at(world, b),
        ancestor=ancestor,
        begun=begun,
        decisive=decisive,
        beside=beside,
        alike=list(alike.values()),
        missing=missing,
    )


def deciding(
    found: Sequence[Decisive], claims: Sequence[schemas.ClaimVerdict]
) -> tuple[list[Decisive], list[Decisive]]:
    """Part the differences into those that the status of a claim rests on, and the rest.

    A claim that is broken rests on what breaks it, one with a caveat on what leaves it, and one that is not shown on
    the evidence that is missing: a difference beside that decides nothing.
    """
    rests = {
        (k.step, k.concept, k.text)
        for c in claims
        for k in c.chain
        if c.status in ("broken", "caveat") and k.effect == c.status
    }
    keys = [(d.link.step, d.link.concept, d.link.text) for d in found]
    return (
        [d for d, key in zip(found, keys, strict=True) if key in rests],
        [d for d, key in zip(found, keys, strict=True) if key not in rests],
    )


def at(world: World, branch: Branch) -> Conditions:
    """The conditions at a state: a checkpoint's step, or the end of its segment."""
    node = world.graph.nodes.get(branch.checkpoint or "")
    step = node.checkpoint.step if node else None
    return conditions.at(world.records, world.graph, branch.segment, step, branch.checkpoint)


def difference(a: Conditions, b: Conditions, from_step: int = 1) -> schemas.Drift:
    """What differs between two sets of conditions.

    States are not compared here: that two runs started from the same weights follows from seed, code and config,
    and is shown only as far as these are.
    """
    found = drift_.drift(a.side, b.side, from_step=from_step)
    shown = {k: v for k, v in found.not_shown.items() if k not in schemas.COMPONENTS}
    return found.model_copy(update={"not_shown": shown})


def _begun(world: World, a: Branch, b: Branch, ancestor: Ancestor | None) -> schemas.Drift | None:
    """What differs where the comparison begins: nothing in one checkpoint of one uid."""
    if ancestor is None:
        return difference(_start(world, a), _start(world, b))
    if ancestor.by != "content":
        return None
    one = conditions.at(world.records, world.graph, ancestor.segment, ancestor.step, ancestor.checkpoint)
    two = conditions.at(world.records, world.graph, ancestor.twin_segment or "", ancestor.step, ancestor.twin)
    return difference(one, two, ancestor.step + 1)


def _start(world: World, branch: Branch) -> Conditions:
    first = next((s.segment for s in branch.path if s.segment), branch.segment)
    return conditions.at_start(world.records, first)


def _between(begun: schemas.Drift | None, a: Branch) -> dict[str, Tally]:
    if begun is None:
        return {c: Tally() for c in schemas.CLAIMS}
    return validity.tallies_of(begun, a.path[0].segment if a.path else a.segment)


def _since(world: World, rest: Sequence[Stretch]) -> dict[str, Tally]:
    return validity.collect(world.records, world.graph, rest, world.bad, own=False)[0]


def _throughput_from_the_starts(
    world: World, a: Branch, b: Branch, parts: dict[str, dict[str, Tally]]
) -> None:
    """Two processes that reached one state need not have gone at one speed."""
    started = difference(_start(world, a), _start(world, b))
    parts["between"]["throughput"] = _between(started, a)["throughput"]
    parts["a"]["throughput"] = _since(world, a.path)["throughput"]
    parts["b"]["throughput"] = _since(world, b.path)["throughput"]


def _parted(a: Node, b: Node) -> schemas.ChainLink:
    """Digests decide over conditions: neither state reproduces the other."""
    return schemas.ChainLink(
        code="LIN-D009",
        concept="weights",
        step=a.checkpoint.step,
        effect="broken",
        text=f"the weights after step {a.checkpoint.step:,} are not the same, digest by digest",
        records=[a.record, b.record],
    )


def _damage(world: World, tally: Tally) -> None:
    if world.damage:
        n = len(world.damage)
        tally.missing["damage"] = f"{n} damaged places in the ledgers, the first: {world.damage[0]}"


def _evaluations(
    world: World, a: tuple[Branch, Sequence[Stretch]], b: tuple[Branch, Sequence[Stretch]], tally: Tally
) -> None:
    """Evaluations compare where both sides were evaluated in one same way."""
    ours, theirs = _ways(world, *a), _ways(world, *b)
    both = sorted(set(ours) & set(theirs))
    tally.aside = "" if both else ", as far as training goes: no evaluator's result of both is on record"
    for name in both:
        if set(ours[name]) & set(theirs[name]):
            continue
        text = f"{name}: {'; '.join(sorted(ours[name]))} against {'; '.join(sorted(theirs[name]))}"
        records = [r.id for ways in (ours[name], theirs[name]) for found in ways.values() for r in found]
        step = max(r.step or 0 for ways in (ours[name], theirs[name]) for f in ways.values() for r in f)
        tally.links.append(
            schemas.ChainLink(
                code="LIN-D002",
                concept="eval_protocol",
                step=step,
                effect="broken",
                text=text,
                records=records,
            )
        )


def _ways(
    world: World, branch: Branch, rest: Sequence[Stretch]
) -> dict[str, dict[str, list[schemas.Record]]]:
    """evaluator -> version and data -> the records, of the checkpoint, else of what lies on the branch."""
    found = [r for r in world.records if r.kind == "evaluation"]
    mine = [r for r in found if r.payload.checkpoint == branch.checkpoint]
    for path in (rest, branch.path):
        on = {n.uid for n in ancestry.on(world.graph, path)}
        mine = mine or [r for r in found if r.payload.checkpoint in on]
    out: dict[str, dict[str, list[schemas.Record]]] = {}
    for r in mine:
        way = f"{r.payload.evaluator_version} on {r.payload.data or 'unnamed data'}"
        out.setdefault(r.payload.evaluator, {}).setdefault(way, []).append(r)
    return out


def _left(
    parts: Mapping[str, Mapping[str, Tally]], claim: str, mirrored: Sequence[Mirrored]
) -> list[Decisive]:
    """The changes that are left when those that both made alike are taken out."""
    gone = {id(m.a) for m in mirrored} | {id(m.b) for m in mirrored}
    return [
        Decisive(side, k)  # type: ignore[arg-type]
        for side, tallies in parts.items()
        for k in tallies[claim].links
        if id(k) not in gone
    ]


def _missing(parts: Mapping[str, Mapping[str, Tally]], claim: str) -> list[Missing]:
    return [
        Missing(side, concept, why, SHOW.get(concept))  # type: ignore[arg-type]
        for side, tallies in parts.items()
        for concept, why in tallies[claim].missing.items()
    ]


def _confounded(finder: Alike, begun: schemas.Drift | None, found: Mapping[str, list[Decisive]]) -> bool:
    """Whether two or more changes that alter results came at one restart of one side, or stand between the starts."""
    if begun is not None and begun.confounded:
        return True
    at_one: dict[tuple[str, str], set[str]] = {}
    for d in {id(d.link): d for ds in found.values() for d in ds}.values():
        change = finder.change(d.link)
        if change is not None and drift_.alters(change):
            at_one.setdefault((d.side, d.link.records[0]), set()).add(change.text)
    return any(len(texts) > 1 for texts in at_one.values())


def _claim(
    claim: str,
    found: Sequence[Decisive],
    missing: Sequence[Missing],
    since: str,
    confounded: bool,
    same: bool,
    aside: str,
) -> schemas.ClaimVerdict:
    links = [d.link for d in found]
    status = validity.worst([k.effect for k in links] + (["not_shown"] if missing else []))
    show = None
    if status in ("broken", "caveat"):
        parts = []
        for side, words in SIDES.items():
            of_side = [d.link for d in found if d.side == side and d.link.effect == status]
            parts += [words + validity.because(of_side, claim)] if of_side else []
        reason = "; ".join(parts)
        if confounded and claim == "ablation" and status == "broken":
            reason += "; several changes came at one restart, so no effect can be traced to one of them"
    elif status == "not_shown":
        told = [f"{validity.title(m.concept)} ({SIDES[m.side]}{m.why})" for m in missing]
        reason = "not shown: " + "; ".join(told[:3]) + (f"; and {len(told) - 3} more" if told[3:] else "")
        show = next((m.show for m in missing if m.show), None)
    elif same:
        reason = SAME
    elif since:
        reason = f"nothing that bears on it differs {since}{aside}"
    else:
        reason = f"both began under the same conditions, and nothing that bears on it differs since{aside}"
    return schemas.ClaimVerdict(claim=claim, status=status, reason=reason, chain=links, show=show)
