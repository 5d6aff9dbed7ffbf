from __future__ import annotations

import pytest

from trackers import headline
from trackers.mlflow_.note import BEGIN, END, NOTE_LIMIT, NOTE_TAG, with_block

from . import builders as b
from .conftest import Case, needs_models

WORDS = "# My run\n\nLR from the sweep | *do not touch*\n\ttrailing  \n"


def test_a_broken_verdict_can_be_searched_for_by_status_claim_and_step(case: Case) -> None:
    other = case.client.create_run(case.experiment).info.run_id
    case.show(b.verdict("broken", 2001))
    for query in (
        "tags.`lineage/status` = 'broken'",
        "tags.`lineage/claims/loss_curve` = 'broken' and tags.`lineage/claims/throughput` = 'holds'",
        "tags.`lineage/broken_since_step` = '2001'",
        "tags.`lineage/verdict` LIKE 'Broken since step 2,001%'",
    ):
        found = [r.info.run_id for r in case.client.search_runs([case.experiment], query)]
        assert found == [case.run_id], query
    assert other != case.run_id


def test_the_users_description_is_kept_word_for_word_around_a_verdict_that_changes(case: Case) -> None:
    case.client.set_tag(case.run_id, NOTE_TAG, WORDS)
    case.show(b.verdict("broken", 2001))
    text = case.tags()[NOTE_TAG]
    assert text.startswith(BEGIN)
    assert text.endswith(END + "\n\n" + WORDS)
    assert headline(b.verdict("broken", 2001)) in text

    case.client.set_tag(case.run_id, NOTE_TAG, "Above. " + text + " Below.")  # the user edits around it
    case.show(b.verdict("caveat", None))
    text = case.tags()[NOTE_TAG]
    assert text.startswith("Above. " + BEGIN)
    assert text.endswith(END + "\n\n" + WORDS + " Below.")
    assert text.count(BEGIN) == 1
    assert "Broken since" not in text


def test_flags_of_a_verdict_that_no_longer_holds_are_gone(case: Case) -> None:
    case.show(b.verdict("broken", 2001))
    case.show(b.verdict("caveat", None))
    tags = case.tags()
    assert tags["lineage/status"] == "caveat"
    assert tags["lineage/claims/loss_curve"] == "caveat"
    assert "lineage/broken_since_step" not in tags


def test_an_older_verdict_shown_again_does_not_displace_the_newer_one(case: Case) -> None:
    broken, again = (b.record(b.verdict("broken", 2001), segment=case.segment) for _ in range(2))
    holds = b.record(b.verdict("holds", None), segment=case.segment)
    for made in (broken, again, holds):
        case.tracker.show(made, case.page)
    for made in (broken, again):
        assert case.attach().show(made, case.page) == "tag lineage/verdicts/001"
        assert case.tags()["lineage/status"] == "holds"


def test_a_verdict_that_returns_after_another_is_the_current_one_again(case: Case) -> None:
    for status, since in (("broken", 2001), ("holds", None), ("broken", 2001)):
        case.show(b.verdict(status, since))  # type: ignore[arg-type]
    assert case.tags()["lineage/status"] == "broken"
    assert "lineage/verdicts/003" in case.tags()


@needs_models
def test_a_verdict_on_a_checkpoint_flags_its_model_and_not_the_run(case: Case) -> None:
    made = b.checkpoint(100)
    case.show(made)
    assert case.show(b.verdict("broken", 50, subject=f"checkpoint:{made.uid}")) is not None
    assert "lineage/status" not in case.tags()
    assert case.models()[0].tags["lineage/status"] == "broken"  # type: ignore[attr-defined]


def test_a_verdict_on_another_run_is_not_shown_on_this_page(case: Case) -> None:
    assert case.show(b.verdict(subject="run:somebody-elses")) is None
    assert "lineage/status" not in case.tags()


@pytest.mark.parametrize("own", [0, 3000, 7000, 7500])
def test_a_long_description_and_a_long_verdict_stay_under_the_limit_with_every_word_of_the_users(
    served: Case, own: int
) -> None:
    words = ("ü" * 99 + "\n") * (own // 100)
    served.client.set_tag(served.run_id, NOTE_TAG, words)
    served.show(b.verdict(reason="because " * 2000))
    text = served.tags()[NOTE_TAG]
    assert len(text) <= NOTE_LIMIT
    assert text.endswith(words)
    assert headline(b.verdict()) in text
    assert END in text


def test_a_description_without_room_is_left_alone_and_the_page_says_where_the_verdict_stands(
    case: Case,
) -> None:
    words = "w" * 7950
    case.client.set_tag(case.run_id, NOTE_TAG, words)
    case.show(b.verdict())
    tags = case.tags()
    assert tags[NOTE_TAG] == words
    assert "leaves no room" in tags["lineage/note/description"]
    assert tags["lineage/status"] == "broken"
    case.client.set_tag(case.run_id, NOTE_TAG, "short")
    case.show(b.verdict(since=2002))
    assert "lineage/note/description" not in case.tags()


def test_a_lone_marker_in_the_users_own_text_costs_them_nothing() -> None:
    words = f"I read about {BEGIN} somewhere"
    text = with_block(words, b.verdict())
    assert text is not None
    assert text.endswith(words)
    again = with_block(text, b.verdict("holds", None))
    assert again is not None
    assert again.endswith(words)
    assert again.count(END) == 1
