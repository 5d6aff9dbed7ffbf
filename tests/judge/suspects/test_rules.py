"""The rules of the suspects: each speaks where it must, is silent next to it, and never speaks of a cause."""

from __future__ import annotations

import re

import pytest

from lineage.judge.suspects import EVIDENCE, FAMILIES, Line, rules, suspects
from lineage.judge.suspects.known import Known
from lineage.judge.suspects.rules import Rule

from .build import cell, known, outcome
from .cases import CASES, RESUMED

RULES = {r.id: r for r in rules()}


def said(rule: Rule, of: Known) -> list[str]:
    return [s.text for s in rule.look(of)]


def test_every_rule_has_an_incident_at_which_it_speaks() -> None:
    assert set(CASES) == set(RULES)
    assert len(RULES) == len(rules())


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_where_it_must_and_is_silent_next_to_it(name: str) -> None:
    speaks, silent = CASES[name]
    assert said(RULES[name], speaks())
    assert not said(RULES[name], silent())


@pytest.mark.parametrize("name", CASES)
def test_no_line_names_a_cause_or_a_number_that_looks_like_odds(name: str) -> None:
    rule = RULES[name]
    for text in [*said(rule, CASES[name][0]()), rule.says]:
        text = text.replace("not shown to be the cause", "")  # noqa: PLW2901 - the one way to use the word
        assert not re.search(
            r"\b(caused|the cause|due to|because of|proves?|proven|likely|probab\w+|confidence|score)\b|\d\s*%",
            text,
        ), text


@pytest.mark.parametrize("name", CASES)
def test_a_line_names_its_records_unless_it_rests_on_what_is_absent(name: str) -> None:
    rule = RULES[name]
    for found in rule.look(CASES[name][0]()):
        assert found.records or rule.evidence == "absence" or name == "distributed/one-rank-only"


def test_every_rule_has_a_source_a_class_and_a_sentence() -> None:
    for r in rules():
        assert r.source.title
        assert r.evidence in EVIDENCE
        assert r.evidence not in ("flip", "replay"), "only replays flip, and their lines are their own"
        assert r.says.endswith(".")
        assert len(r.says) > 20


def lines(of: Known) -> list[Line]:
    return [n for s in suspects(of).found for n in s.lines]


def test_nothing_fits_where_nothing_is_on_record() -> None:
    assert not [n for n in lines(known()) if n.side == "for"]
    assert not [n for n in lines(known(cell(signal="grad_norm"), world=8)) if n.side == "for"]


def test_that_it_ran_after_a_restart_fits_nothing() -> None:
    restored = [outcome(c, "restored") for c in ("weights", "optimizer_state", "lr_scheduler", "rng")]
    after = known(**{**RESUMED, "parent_step": 59}, symptoms=["after_restart"], outcomes=restored)
    assert not [n for n in lines(after) if n.side == "for"]


def test_every_family_has_a_check_and_says_what_is_not_on_record() -> None:
    bare = known(cell(signal="loss", abnormal="non_finite", value=float("nan")), world=4)
    for f in FAMILIES:
        found = f.next(bare)
        assert found is not None
        assert found.source.title
    assert all(f.missing(bare) for f in FAMILIES)
