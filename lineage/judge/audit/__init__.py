"""The audit: bad habits, changes that nobody declared, evidence that is gone, and whether the record can
be trusted."""

from .audited import Audited, Found, Weakened
from .judge import RULES, audit, worst
from .rules import AuditFinding, Rule, Told

__all__ = ["RULES", "AuditFinding", "Audited", "Found", "Rule", "Told", "Weakened", "audit", "worst"]
