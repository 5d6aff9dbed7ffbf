"""What a report says about a real run that broke and was recovered badly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lineage
from lineage import report
from lineage.report import as_html, as_markdown
from lineage.report.facts import Facts

from . import pages


@pytest.fixture(scope="module", params=["markdown", "html"])
def text(request: pytest.FixtureRequest, facts: Facts) -> str:
    """The words of each format, without its mark-up."""
    if request.param == "html":
        return pages.words(as_html.render(facts))
    return pages.words(pages.from_markdown(as_markdown.render(facts)))


def test_the_four_changes_of_the_bad_restart_are_listed(text: str) -> None:
    for change in (
        "gradient clipping 1 -> 0.3",
        "peak learning rate 0.003 -> 0.001",
        "optimizer state not restored",
        "the loader stands 3 further on than at the save",
    ):
        assert change in text


def test_several_changes_at_one_restart_are_called_confounded(text: str) -> None:
    assert "Confounded" in text
    assert "No effect can be traced to one of them" in text


def test_the_answer_names_flag_step_claims_last_good_checkpoint_and_command(facts: Facts, text: str) -> None:
    answer = text[text.index("The answer") : text.index("What may still be concluded")]
    assert "Flagged: Broken since step 9: comparison of loss curves, scaling-law fit" in answer
    assert (
        "First bad cell in segment 3: rank 0, step 11: gradient before the reduction of head.weight" in answer
    )
    assert re.search(r"Last good checkpoint: step 8 of segment 1 \(\w{8}\), \S*step-8", answer)
    assert f"lineage incident preserve {facts.ledger}" in answer
    assert len(re.findall(r"(Flagged|Why|Other claims|Last good checkpoint|Do next):", answer)) == 5


def test_the_first_bad_cell_is_marked_in_words_and_later_symptoms_are_not(facts: Facts, text: str) -> None:
    assert text.count("FIRST BAD: local grad NaN") == 1
    grid = facts.bads[0].grid.around
    assert grid is not None
    kinds = [s.kind for row in grid.rows for s in row.squares]
    assert kinds == ["fine", "fine", "first", "bad"]
    assert grid.steps == [9, 10, 11, 12]


def test_requested_and_effective_stand_side_by_side_where_they_differ(facts: Facts) -> None:
    rows = pages.table(as_html.render(facts), "What changed", column="What")
    row = next(r for r in rows if r["What"].startswith("weight decay"))
    assert row["Requested"] == "0.01 -> 0.2"
    assert row["In effect"].startswith("0.01 -> 0.01 (read from: optimizer.param_groups")
    assert row["Declared"] == "asked for, NOT in effect"
    clip = next(r for r in rows if r["What"].startswith("gradient clipping"))
    assert clip["Requested"] == "1 -> 0.3"
    assert clip["In effect"].startswith("1 -> 0.3 (read from: the max_norm")
    assert clip["Declared"] == "declared"


def test_a_mitigation_is_in_effect_only_with_evidence(facts: Facts) -> None:
    rows = pages.table(as_html.render(facts), "Declared mitigations", column="What")
    found = {r["What"].partition(" (")[0]: (r["In effect?"], r["Evidence"]) for r in rows}
    assert found["gradient clipping"][0] == "in effect from step 9 to step 12"
    assert found["weight decay"][0] == "NOT in effect"
    assert "holds 0.01" in found["weight decay"][1]


def test_every_branch_tip_has_its_own_verdict(facts: Facts) -> None:
    assert [(t.segment, t.state) for t in facts.tips] == [
        (3, "newest"),
        (2, "branch that nothing later continues"),
        (1, "steps after 8 abandoned"),
    ]
    status = {t.segment: {c.claim: c.status for c in t.verdict.claims} for t in facts.tips}
    assert status[3]["loss_curve"] == "broken"
    assert status[2]["loss_curve"] != "broken"
    assert status[1]["loss_curve"] == "holds"


def test_the_phase_table_gives_steps_samples_rates_batch_and_mitigations(facts: Facts) -> None:
    first, tail, faithful, bad = facts.phases
    assert [(p.steps, p.segments, p.abandoned) for p in facts.phases] == [
        ("1 to 8", (1,), False),
        ("9 to 10", (1,), True),
        ("9 to 10", (2,), True),
        ("9 to 12", (3,), False),
    ]
    assert (first.samples, first.tokens) == ("0 to 16 samples", "0 to 512 tokens")
    assert (tail.samples, tail.regime) == ("16 to 20 samples", 0)
    assert (faithful.regime, bad.regime) == (0, 1)
    assert bad.samples == "16 to 24 samples"
    assert bad.learning_rate is not None
    assert (bad.learning_rate.text, bad.learning_rate.how) == ("0.001", "measured")
    assert first.learning_rate is not None
    assert first.learning_rate.text.endswith(" to 0.003")  # it warms up
    assert bad.batch is not None
    assert bad.batch.text == "2 (2 x 1 x 1)"
    assert bad.start.startswith("step 8 of segment 1 (")
    clip = next(m for m in bad.mitigations if m.concept == "grad_clip")
    assert (clip.value, clip.first, clip.last, clip.in_effect) == ("0.3", 9, 12, "yes")
    decay = next(m for m in bad.mitigations if m.concept == "weight_decay")
    assert decay.in_effect == "no"
    assert first.mitigations == ()


def test_what_a_resume_did_not_restore_is_named(facts: Facts) -> None:
    found = {(r.segment, r.component.component): r.component.status for r in facts.restores}
    assert found[2, "optimizer_state"] == "restored"
    assert found[3, "optimizer_state"] == "absent"
    assert found[3, "loader_position"] == "differs"
    assert found[3, "weights"] == "restored"


def test_steps_that_a_chart_cannot_show_are_named_in_words(text: str) -> None:
    # The spoiled gradient of step 11 spoils the weights, and with them the loss of step 12.
    assert "rank 0 before the reduction is NaN at steps 11 to 12" in text
    assert "it is NaN at step 12, which no line can show" in text


def test_open_questions_ask_for_the_cause_and_for_who_changed_what(text: str) -> None:
    questions = text[text.rindex("Open questions") :]
    assert "Why did rank 0 go bad at step 11 of segment 3?" in questions
    assert "Who changed this at step 9 of segment 3, and why?" in questions
    asked = questions[questions.index("Who changed this") :].split("Which of the changes")[0]
    assert "peak learning rate" in asked
    assert "gradient clipping" not in asked  # that one was declared


def test_what_is_not_recorded_stands_with_the_line_that_would_add_it(healthy_run: Path, facts: Facts) -> None:
    assert "Nothing that this version can record is missing" in as_markdown.render(facts)
    healthy = report.gather(lineage.open_ledger(healthy_run))
    assert healthy.answer.status == "holds"
    assert healthy.answer.flagged.startswith("Holds")
    assert healthy.answer.command.startswith("lineage verify ")
    assert healthy.bads == ()


def test_both_formats_have_the_same_sections(facts: Facts) -> None:
    titles = re.findall(r"^## (.+)$", as_markdown.render(facts), re.M)
    assert titles == pages.headings(as_html.render(facts), "h2")
    assert titles[0] == "The answer"


def test_both_files_are_written_for_the_owner_only(ledger: lineage.Ledger, tmp_path: Path) -> None:
    written = report.write(ledger, tmp_path / "out")
    assert [p.name for p in written] == ["report.md", "report.html"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in written)
    assert all(p.stat().st_size < 3_000_000 for p in written)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.md"]
    assert report.html(ledger).startswith("<!doctype html>")
    assert report.markdown(ledger).startswith("# Lineage report: ")
