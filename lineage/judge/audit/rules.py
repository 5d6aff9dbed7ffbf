"""What a rule of the audit is: one function, with its code, its severity and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..._rooms import schemas

if TYPE_CHECKING:
    from .audited import Audited

Severity = Literal["fault", "warning", "note"]


@dataclass(frozen=True)
class Told:
    """What a rule found once."""

    text: str
    records: tuple[str, ...] = ()
    """ids of the records that it rests on, or names of series and files"""
    segment: int | None = None
    """its number"""
    step: int | None = None
    severity: Severity | None = None
    """where it is another one than the rule's"""
    remedy: str | None = None
    """where it is another one than the rule's"""


@dataclass(frozen=True)
class AuditFinding:
    """One finding of the audit."""

    code: str
    title: str
    rule: str
    severity: str
    text: str
    records: tuple[str, ...]
    remedy: str
    segment: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Rule:
    """One rule."""

    code: str
    name: str
    severity: Severity
    says: str
    """what it looks for, as the documentation has it"""
    remedy: str
    look: Callable[[Audited], Iterable[Told]]

    def findings(self, audited: Audited) -> list[AuditFinding]:
        """What it finds in a ledger."""
        return [
            AuditFinding(
                code=self.code,
                title=schemas.CODES[self.code],
                rule=self.name,
                severity=told.severity or self.severity,
                text=told.text,
                records=told.records,
                remedy=told.remedy or self.remedy.format(run=audited.run),
                segment=told.segment,
                step=told.step,
            )
            for told in self.look(audited)
        ]


RULES: list[Rule] = []
"""All rules, in the order of their codes."""


def rule(
    code: str, name: str, severity: Severity, remedy: str
) -> Callable[[Callable[[Audited], Iterable[Told]]], Callable[[Audited], Iterable[Told]]]:
    """Add a function as a rule. Its docstring is what the rule says; `{run}` in the remedy is the run's name."""

    def add(look: Callable[[Audited], Iterable[Told]]) -> Callable[[Audited], Iterable[Told]]:
        says = " ".join((look.__doc__ or "").split())
        RULES.append(Rule(code, name, severity, says, remedy, look))
        RULES.sort(key=lambda r: r.code)
        return look

    return add
