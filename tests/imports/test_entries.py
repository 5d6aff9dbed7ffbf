"""One entry of a logbook: what cannot be read is kept as it stands, and said."""

from __future__ import annotations

from typing import Any

import pytest

from lineage.imports.entries import entry
from lineage.judge import reported


@pytest.mark.parametrize(
    ("written", "step"),
    [
        (18_500, 18_500),
        (18_500.0, 18_500),
        ("18500", 18_500),
        ("about 56.4k", 56_400),
        ("18,500", 18_500),
        ("~ 2 M", 2_000_000),
    ],
)
def test_a_step_is_read_however_it_is_written(written: Any, step: int) -> None:
    """Digits, thousands separators, k and M, and words of approximation."""
    _, found = entry({"step": written, "concept": "lr"}, 0, "log.csv")
    assert found.step == step


@pytest.mark.parametrize("written", ["after lunch", "12-15", -4, True, [3]])
def test_free_text_where_a_step_is_due_is_kept_and_said(written: Any) -> None:
    """The text stays in the entry, the step stays unknown, and the problem quotes it."""
    _, found = entry({"step": written, "concept": "lr"}, 0, "log.csv")
    assert found.step is None
    assert found.extra["step_as_written"].text() in (
        str(written),
        f"[{written[0]}]" if isinstance(written, list) else "",
    )
    assert any("no count of updates" in p for p in found.problems)


@pytest.mark.parametrize("written", ["2022-13-01", "2022-02-30", "20222-01-01", "last tuesday"])
def test_a_date_with_a_typing_error_is_kept_and_orders_nothing(written: str) -> None:
    """What is no day of the calendar is shown as written."""
    _, found = entry({"date": written, "concept": "lr"}, 0, "log.csv")
    assert found.date == written
    assert any("no date of the calendar" in p for p in found.problems)


def test_an_entry_without_concept_step_or_date_is_kept() -> None:
    """Nothing can be concluded from it, and nothing of it is lost."""
    _, found = entry({"note": "it looked odd", "who": "night shift"}, 3, "log.csv")
    assert found.concept == "unstated"
    assert found.text == "it looked odd"
    assert found.extra["who"].value == "night shift"
    assert len(found.problems) == 2


def test_an_entry_that_is_plain_text_is_kept_as_text() -> None:
    """A line of a log without fields is an entry all the same."""
    _, found = entry("loss looks fine", 0, "log.jsonl")
    assert found.text == "loss looks fine"
    assert found.problems


def test_a_restart_after_its_own_step_is_kept_as_written() -> None:
    """Reading an entry takes nothing away; placing it says that it cannot be."""
    _, found = entry({"step": 23_100, "restart_from_step": 33_100, "concept": "rollback"}, 0, "log.json")
    assert (found.step, found.restart_from) == (23_100, 33_100)


def test_a_list_of_concepts_is_one_entry_of_several_words() -> None:
    """`["learning_rate", "grad_clip"]` changes both."""
    _, found = entry(
        {"step": 100, "concept": ["learning_rate", "grad_clip"], "after": [1e-5, 1.0]}, 0, "log.json"
    )
    assert found.problems == []
    (judged,) = reported.judge([found])
    assert judged.concepts == ["learning_rate", "grad_clip"]


def test_a_step_that_no_run_has_made_is_no_step() -> None:
    """1e30 is kept as it stands, and said."""
    _, found = entry({"step": 1e30, "concept": "lr"}, 0, "log.json")
    assert found.step is None
    assert found.extra["step_as_written"].plain() == 1e30
    assert "no count of updates" in found.problems[0]


def test_secrets_in_a_logbook_are_masked() -> None:
    """Prose, values and unknown fields are masked as everywhere."""
    key = "wandb_v1_" + "Zk3Qp7Xw9Lm2Rt5Yb8Nc1Vd4Hg6Jf0As"
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    raw = {
        "concept": "code",
        "after": f"token={token}",
        "action": f"api_key={key}",
        "by": f"password={token}",
        "step": f"after token={token}",
        "date": f"password={token}",
    }
    _, found = entry(raw, 0, "log.json")
    text = found.model_dump_json()
    assert token not in text
    assert key not in text


def test_values_of_public_histories_are_not_taken_for_secrets() -> None:
    """Commit hashes and numbers of a history stay readable."""
    _, found = entry({"concept": "dependency", "before": "37011a92", "after": "61d51fd"}, 0, "log.json")
    assert (found.before.value, found.after.value) == ("37011a92", "61d51fd")  # type: ignore[union-attr]
