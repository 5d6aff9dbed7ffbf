"""The audit of a ledger: what its own rules find, and what other checks found, the worst first."""

from __future__ import annotations

from ..._rooms import schemas
from . import changes, evidence, habits, incidents, trust
from .audited import Audited
from .rules import RULES, AuditFinding

__all__ = ["RULES", "audit", "changes", "evidence", "habits", "incidents", "trust"]


def audit(audited: Audited) -> list[AuditFinding]:
    """Every finding: the worst first, then by code, segment and step."""
    found = [f for r in RULES for f in r.findings(audited)]
    found += _of_others(audited)
    return sorted(
        found, key=lambda f: (schemas.severity_place(f.severity), f.code, f.segment or 0, f.step or 0)
    )


def _of_others(audited: Audited) -> list[AuditFinding]:
    """What other checks found, each once: the same of several ranks or segments stands where it was found first."""
    out: dict[tuple[str, str, str, tuple[str, ...]], AuditFinding] = {}
    for f in audited.findings:
        p = f.finding
        key = (p.code, p.severity, p.subject, tuple(p.names))
        if key not in out:
            out[key] = AuditFinding(
                code=p.code,
                title=schemas.CODES.get(p.code, p.subject),
                rule=p.check,
                severity=p.severity,
                text=p.text if p.subject in p.text else f"{p.subject}: {p.text}",
                records=(f.record,) if f.record else (),
                remedy=p.remedy or "",
                segment=f.segment,
                step=f.step,
            )
    return list(out.values())


def worst(found: list[AuditFinding]) -> str | None:
    """The worst severity; None where nothing was found."""
    return found[0].severity if found else None
