"""What an audit finds in how incidents were handled: exceptions with their reasons, and what came too early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from .._rooms import schemas
from .incident_life import Life, lives

CHECK = "incident-handled/1"


def findings(records: Sequence[schemas.Record]) -> list[tuple[str, schemas.Finding]]:
    """(segment, finding) of each incident of a ledger (LIN-I001 to LIN-I004)."""
    return [(life.segment, f) for life in lives(records) for f in _of(life, records)]


def _of(life: Life, records: Sequence[schemas.Record]) -> Iterator[schemas.Finding]:
    for r in life.recoveries:
        p: schemas.Recovery = r.payload
        if p.override:
            what = [e.what for e in p.evidence if e.required and e.state in ("missing", "gone")]
            what += p.restart.doubts
            yield _finding(
                "LIN-I001",
                life,
                "a recovery was decided although something was missing",
                what,
                p.override,
                p.by,
            )
    for status, code, text in (
        ("recovered", "LIN-I002", "the run was declared recovered although something spoke against it"),
        ("closed", "LIN-I003", "the incident was closed although something was missing"),
    ):
        m = life.reached(status)  # type: ignore[arg-type]
        if m is not None and m.override:
            yield _finding(code, life, text, m.missing, m.override, m.by)
    yield from _early(life, records)


def _finding(
    code: str, life: Life, text: str, missing: Sequence[str], why: str, by: str | None
) -> schemas.Finding:
    who = f" ({by})" if by else ""
    what = "; ".join(missing) or "not stated"
    return schemas.Finding(
        code=code,
        check=CHECK,
        severity="warning",
        subject="incident",
        text=f"{text}: {what}. The reason that was given{who}: {why}",
        names=[life.uid],
        remedy="hold what can still be held: lineage incident preserve",
    )


def _early(life: Life, records: Sequence[schemas.Record]) -> Iterator[schemas.Finding]:
    """A segment of the run that began after the incident and before anything of it was kept."""
    kept = _kept(life, records)
    first: dict[str, schemas.Record] = {}
    for r in records:
        if r.kind != "segment" or r.segment == life.segment or r.payload.start not in ("resume", "rewind"):
            continue
        if r.segment not in first or r.at < first[r.segment].at:
            first[r.segment] = r
    early = sorted(
        (r for r in first.values() if r.at > life.opened and (kept is None or r.at < kept)),
        key=lambda r: r.at,
    )
    if not early:
        return
    when = f"{early[0].at:%Y-%m-%d %H:%M} UTC"
    then = (
        f"and nothing of it has been kept since{_by_itself(life, records)}"
        if kept is None
        else f"it was kept at {kept:%Y-%m-%d %H:%M} UTC"
    )
    yield schemas.Finding(
        code="LIN-I004",
        check=CHECK,
        severity="warning",
        subject="incident",
        text=f"training was restarted ({when}) before the evidence of the incident was kept; {then}",
        names=[life.uid],
        count=len(early),
        remedy="lineage incident preserve, before checkpoints rotate away",
    )


def _by_itself(life: Life, records: Sequence[schemas.Record]) -> str:
    """What the run captured while it trained: not preserved, and there all the same."""
    bundles = sum(r.kind == "bundle" and r.segment == life.segment for r in records)
    return (
        f", but for {bundles} bundle{'s' if bundles > 1 else ''} that the run captured itself"
        if bundles
        else ""
    )


def _kept(life: Life, records: Sequence[schemas.Record]) -> datetime | None:
    """When evidence of an incident was first kept."""
    told = [r.at for r in records if r.kind == "preserved" and r.segment == life.segment]
    said = life.reached("evidence_held")
    return min([*told, *([said.at] if said else [])], default=None)
