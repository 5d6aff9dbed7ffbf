"""`lineage explain` says what a code means, and the severities that it states are those that the code gives."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import schemas
from lineage.cli import explain
from lineage.cli.common import CliError
from lineage.judge.audit.rules import RULES


def test_a_code_is_known_in_any_case_and_without_its_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ("LIN-C002", "lin-c002", "c002"):
        explain.command(asked, as_json=True)
        told = json.loads(capsys.readouterr().out)
        assert told["code"] == "LIN-C002"
        assert told["severity"] == ["change"]
        assert "lineage/judge/validity.py" in told["named_in"]


def test_all_parts_of_a_page_are_printed_and_links_are_plain_words() -> None:
    page = schemas.explained("LIN-C009")
    assert "](#lin-r006)" in page.found
    assert "LIN-R006." in explain.plain(page.found)
    assert "](" not in explain.plain(page.found)
    heads = [head for head, _ in explain.sections(page)]
    assert heads == ["What was found", "Why it matters", "What to do next"]


def test_every_word_of_a_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it is piped: no line is cut at the width of a terminal."""
    for code in ("LIN-K005", "LIN-B004"):
        explain.command(code)
        told = " ".join(capsys.readouterr().out.split())
        for _, text in explain.sections(schemas.explained(code)):
            assert " ".join(explain.plain(text).split()) in told
        for module in explain.named_in(code):
            assert module in told


def test_an_unknown_code_is_refused_with_what_is_near() -> None:
    with pytest.raises(CliError, match="did you mean LIN-C02"):
        explain.command("LIN-C0O2")


def test_the_severity_of_each_rule_of_the_audit_stands_on_its_page() -> None:
    import lineage.judge.audit  # noqa: F401  # the rules register themselves

    assert RULES
    for rule in RULES:
        assert rule.severity in schemas.explained(rule.code).severity, rule.code


def test_the_severity_that_a_finding_is_made_with_stands_on_its_page() -> None:
    """Where a module makes a finding with its code and its severity as literals, side by side."""
    words = "fault|warning|note|fails|differs|fine"
    given = re.compile(rf'"(LIN-[A-Z]\d{{3}})",\s*(?:check=[^\n]*\n\s*)?(?:severity=)?"({words})"')
    seen = set()
    for file in (Path(schemas.__file__).parents[1] / "lineage").rglob("*.py"):
        for code, severity in given.findall(file.read_text(encoding="utf-8")):
            assert severity in schemas.explained(code).severity, f"{file}: {code} {severity}"
            seen.add(code)
    assert len(seen) > 30, "the pattern no longer finds how findings are made"


def test_a_code_is_called_unprinted_just_where_no_module_names_it() -> None:
    for page in schemas.all_explained():
        named = [n for n in explain.named_in(page.code) if "contract" not in n]  # samples for adapters' tests
        assert bool(named) != ("unprinted" in page.severity), (page.code, named)
