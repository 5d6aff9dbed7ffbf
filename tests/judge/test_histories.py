"""Public histories of large runs, judged from their fields alone and counted against the marks of a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import schemas
from lineage.cli.histories import judge_files
from lineage.judge import placing, reported, scoring

DATA = Path(__file__).parents[1] / "data" / "histories"


@pytest.fixture(scope="module")
def marked() -> list[scoring.Marked]:
    """Every entry of every history, judged."""
    return judge_files([DATA])


def test_every_entry_of_every_history_is_judged(marked: list[scoring.Marked]) -> None:
    """Nothing is dropped: as many judgements as entries in the files, each with a reason."""
    written = sum(len(json.loads(p.read_text())) for p in DATA.glob("*.json"))
    assert len(marked) == written
    assert all(m.judgement.reason and m.judgement.rule for m in marked)


def test_the_judge_agrees_with_the_marks_but_for_two_named_entries(marked: list[scoring.Marked]) -> None:
    """Every marked change is flagged; two code changes are flagged whose harmlessness only prose tells."""
    report = scoring.score(marked)
    judge, concept_alone, everything = report.scores
    assert judge.misses == 0
    named = {
        (m.run, m.entry.concept, m.entry.after.text() if m.entry.after else "") for m in report.disagreements
    }
    assert named == {
        ("bloom pre-launch test runs (main-1 .. main-9)", "kernel_or_code", "PR 260"),
        ("Marin 32B", "kernel_or_code", "removed"),
    }
    assert judge.precision is not None
    assert concept_alone.precision is not None
    assert everything.precision is not None
    assert judge.precision > concept_alone.precision > everything.precision
    assert len(report.undecidable) == sum(m.mark is None for m in marked) > 0


def test_the_marks_and_the_prose_decide_nothing(marked: list[scoring.Marked]) -> None:
    """With marks turned round and all prose exchanged, every judgement stays as it was."""
    by_run: dict[str, list[scoring.Marked]] = {}
    for m in marked:
        by_run.setdefault(m.run, []).append(m)
    for own in by_run.values():
        turned = [
            m.entry.model_copy(
                update={
                    "text": "nothing happened",
                    "extra": {k: schemas.Scalar.of("other") for k in m.entry.extra},
                }
            )
            for m in own
        ]
        again = reported.judge(placing.place(turned))
        assert [j.model_dump() for j in again] == [m.judgement.model_dump() for m in own]


def test_no_rule_knows_a_run(marked: list[scoring.Marked]) -> None:
    """Under any other name of the run the judgements are the same: the name is no argument of the judge."""
    own = [m for m in marked if m.run == "OPT-175B"]
    assert reported.judge([m.entry for m in own]) == [m.judgement for m in own]
