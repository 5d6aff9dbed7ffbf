"""docs/audit.md has every rule as the code has it, and each has a section among the codes."""

from __future__ import annotations

from lineage.judge.audit import RULES

from .docs_table import PAGE, filled


def test_the_page_has_every_rule_with_its_severity_and_its_remedy() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "python -m tests.judge.audit.docs_table"


def test_every_rule_has_a_section_among_the_codes() -> None:
    codes = (PAGE.parent / "codes.md").read_text(encoding="utf-8")
    assert all(f"## {r.code}\n" in codes for r in RULES)
