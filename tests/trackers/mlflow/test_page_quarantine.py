"""What the description and the advice say of quarantine, in whatever order the records come."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from schemas import CheckpointMark, Finding, Scalar
from trackers.mlflow_.note import BEGIN, NOTE_LIMIT, NOTE_TAG, with_block, with_warnings

from . import builders as b
from .conftest import Case

WORDS = "My own words."
RESUMED = "**Resumed from a quarantined checkpoint**: "


def resumed_bad(checkpoint: str) -> Finding:
    return Finding(
        code="LIN-C006",
        check="quarantine/1",
        severity="fault",
        subject="resume",
        text="this segment resumes from the checkpoint of step 40, which is quarantined",
        names=[checkpoint],
        values={"step": Scalar.of(40)},
        remedy="resume from a checkpoint from before it: step 20 (abc); all since descends from a bad state",
    )


def mark(checkpoint: str, what: str = "quarantined") -> CheckpointMark:
    return CheckpointMark(checkpoint=checkpoint, mark=what, why="saved after step 33")


@pytest.fixture
def case(sqlite_uri: str, tmp_path: Any) -> Case:
    """A run in a SQLite store: what is asked here is the same on a server."""
    return Case(sqlite_uri, tmp_path)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_verdict_finding_and_mark_give_one_description_in_any_order(case: Case, order: list[int]) -> None:
    uid = b.uid()
    records = [b.verdict("broken", 41), resumed_bad(uid), mark(uid)]
    case.client.set_tag(case.run_id, NOTE_TAG, WORDS)
    for n in order:
        case.show(records[n], step=41)
    tags = case.tags()
    parts = tags[NOTE_TAG].split("\n\n")
    assert parts[0] == BEGIN
    assert parts[1].startswith("**Broken since step 41")
    assert parts[2].startswith(RESUMED)
    assert parts[3].startswith("**Quarantined**: do not resume from")
    assert parts[4].startswith("Next: `lineage diff run-7`")
    assert parts[-1] == WORDS
    assert tags["lineage/advice"].startswith("its parent is quarantined: resume from step 20 (")
    assert tags["lineage/advice"].endswith("Until then do not use the broken claims")
    assert tags["lineage/advice"].count(" | ") == 1


def test_a_quarantine_that_was_taken_back_leaves_description_and_advice(case: Case) -> None:
    uid = b.uid()
    for payload in (b.verdict("broken", 41), mark(uid), resumed_bad(uid)):
        case.show(payload, step=41)
    assert RESUMED in case.tags()[NOTE_TAG]
    case.show(mark(uid, "quarantine_lifted"))
    tags = case.tags()
    assert "uarantined" not in tags[NOTE_TAG]
    assert tags["lineage/advice"].startswith("lineage diff run-7 (what changed)")


def test_a_run_without_a_verdict_still_says_that_its_parent_is_quarantined(case: Case) -> None:
    case.client.set_tag(case.run_id, NOTE_TAG, WORDS)
    case.show(resumed_bad(b.uid()), step=41)
    text = case.tags()[NOTE_TAG]
    assert text.split("\n\n")[1].startswith(RESUMED)
    assert text.endswith(WORDS)


def test_a_mark_that_quarantines_nothing_leaves_the_description_alone(case: Case) -> None:
    case.client.set_tag(case.run_id, NOTE_TAG, WORDS)
    case.show(mark(b.uid(), "last_good"))
    assert case.tags()[NOTE_TAG] == WORDS


@pytest.mark.parametrize("own", [0, 3000, 6000, 7200, 7700])
def test_warnings_and_the_users_words_stay_under_the_limit_with_every_word_of_the_users(own: int) -> None:
    words = "w" * own
    verdict = b.verdict(reason="because " * 2000)
    warnings = [RESUMED + "r" * 400 + ". Next: resume from step 20; it is good", "**Quarantined**: step 40."]
    at_once, before = with_block(words, verdict, warnings), with_block(words, verdict)
    afterwards = None if before is None else with_warnings(before, warnings)
    for text in (at_once, afterwards):
        if text is None:
            assert own > 7000
            continue
        assert len(text) <= NOTE_LIMIT
        assert text.endswith(words)
        assert "Broken since step 2,001" in text
        if own <= 3000:
            assert all(w in text for w in warnings)


def test_the_data_of_each_regime_are_datasets_of_the_run_once_each(case: Case) -> None:
    for index, (mix, step) in enumerate((("web 1.0", 1), ("web 0.7, code 0.3", 41), ("web 1.0", 61))):
        case.show(b.regime(index, step, data_mix=mix, learning_rate=0.1))
    case.show(b.regime(3, 81, learning_rate=0.1))  # nothing tells what the data is
    found = case.client.get_run(case.run_id).inputs.dataset_inputs
    told = {d.dataset.name: [t.value for t in d.tags] for d in found}
    assert told == {
        "web 1.0": ["segment 1, from step 1"],
        "web 0.7, code 0.3": ["segment 1, from step 41"],
    }
    assert all(len(d.dataset.digest) <= 36 for d in found)
