"""Comparing two runs: their beginnings against each other, and what changed in each since."""

from __future__ import annotations

from dataclasses import dataclass

from .._rooms import schemas
from . import drift as drift_
from .validity import judge_drift, worst


@dataclass(frozen=True)
class PairSide:
    """One side of a comparison."""

    name: str
    side: drift_.Side
    verdict: schemas.Verdict
    first_segment: str


def drift(a: PairSide, b: PairSide) -> schemas.Drift:
    """What differs between the conditions under which two runs began.

    Two runs that share their first segment began as one. State digests are not compared: that both started
    from the same weights follows from seed, code and config, and is shown only as far as these are.
    """
    if a.first_segment == b.first_segment:
        return schemas.Drift(from_step=1, changes=[], confounded=False)
    found = drift_.drift(a.side, b.side, from_step=1)
    shown = {k: v for k, v in found.not_shown.items() if k not in schemas.COMPONENTS}
    return found.model_copy(update={"not_shown": shown})


def verdict(subject: PairSide, reference: PairSide) -> schemas.Verdict:
    """Judge a subject against a reference: the worst of the difference at the beginning and of each since.

    Changes that both sides took on their common path cancel: they are part of the reference.
    """
    begun = judge_drift(drift(reference, subject), reference.first_segment)
    claims = []
    for claim in schemas.CLAIMS:
        parts = [begun[claim], _claim(subject.verdict, claim), _claim(reference.verdict, claim)]
        common = {_key(k) for k in parts[1].chain} & {_key(k) for k in parts[2].chain}
        chain = [k for p in parts for k in p.chain if _key(k) not in common]
        missing = [p for p in parts if p.status == "not_shown"]
        status = worst([k.effect for k in chain] + (["not_shown"] if missing else []))
        claims.append(_combined(claim, status, parts, chain, missing))
    broken = [k.step for c in claims for k in c.chain if k.effect == "broken"]
    return schemas.Verdict(
        subject=subject.name,
        reference=reference.name,
        status=worst(c.status for c in claims),
        since_step=min(broken, default=None),
        confounded=subject.verdict.confounded,
        claims=claims,
        path=subject.verdict.path,
        policy=subject.verdict.policy,
    )


def _claim(v: schemas.Verdict, claim: str) -> schemas.ClaimVerdict:
    return next(c for c in v.claims if c.claim == claim)


def _key(link: schemas.ChainLink) -> tuple[str | None, int, str]:
    return link.segment, link.step, link.concept


def _combined(
    claim: str,
    status: schemas.Status,
    parts: list[schemas.ClaimVerdict],
    chain: list[schemas.ChainLink],
    missing: list[schemas.ClaimVerdict],
) -> schemas.ClaimVerdict:
    if status == "not_shown":
        return schemas.ClaimVerdict(
            claim=claim, status=status, reason=missing[0].reason, chain=chain, show=missing[0].show
        )
    if status == "holds":
        reason = "both began under the same conditions, and nothing that bears on it differs since"
        return schemas.ClaimVerdict(claim=claim, status=status, reason=reason, chain=chain)
    deciding = [p.reason for p in parts if p.status == status]
    return schemas.ClaimVerdict(
        claim=claim, status=status, reason="; ".join(dict.fromkeys(deciding)), chain=chain
    )
