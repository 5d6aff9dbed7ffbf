"""docs/suspects.md has every rule as the code has it."""

from __future__ import annotations

from .docs_table import PAGE, filled


def test_the_page_has_every_rule_with_its_words_its_class_and_its_source() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "python -m tests.judge.suspects.docs_table"
