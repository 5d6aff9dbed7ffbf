from __future__ import annotations

import json

import pytest
from mlflow.utils.validation import _validate_tag_name

from trackers.mlflow_.limits import KEY_LIMIT, TAG_LIMIT, fit_json, fit_text, key, size


@pytest.mark.parametrize(
    "part", ["plain", "a[0](b)", "x//y", "../up", "/lead", "ünï 日本", "a@b#c|d=e,f", "w" * 400, "a/./b"]
)
def test_every_key_of_ours_is_one_that_mlflow_accepts(part: str) -> None:
    made = key("claims", part)
    _validate_tag_name(made)  # MLflow's own check
    assert len(made) <= KEY_LIMIT
    assert made.startswith("lineage/claims/")


def test_two_long_keys_that_begin_alike_stay_two() -> None:
    assert key("note", "w" * 400 + "a") != key("note", "w" * 400 + "b")


def test_keys_that_differ_in_refused_characters_alone_stay_two_and_plain_ones_are_as_they_were() -> None:
    """A metric may be called loss@1 or loss#1; MLflow takes neither character."""
    assert key("finding", "LIN-S001", "loss@1") != key("finding", "LIN-S001", "loss#1")
    assert key("note", " lead") != key("note", "lead")
    assert key("claims", "loss_curve") == "lineage/claims/loss_curve"


def test_a_text_that_fits_is_unchanged_and_one_that_does_not_says_that_it_was_shortened() -> None:
    assert fit_text("x" * TAG_LIMIT) == "x" * TAG_LIMIT
    cut = fit_text("日" * 5000)
    assert size(cut) <= TAG_LIMIT
    assert "shortened from 5,000 characters" in cut


@pytest.mark.parametrize("items", [1, 50, 5000])
def test_json_is_valid_whatever_is_left_out_and_what_is_left_out_is_counted(items: int) -> None:
    data = {"record": "id", "changes": [{"text": "日" * 400} for _ in range(items)], "note": "n" * 9000}
    text, cut = fit_json(data, "lineage/x.json")
    back = json.loads(text)
    assert size(text) <= TAG_LIMIT
    assert cut
    assert back["record"] == "id"
    assert back["whole"] == "lineage/x.json"
    assert len(back["changes"]) + back.get("left_out", {}).get("changes", 0) == items


def test_json_that_fits_is_unchanged() -> None:
    data = {"a": [1, 2.5, None, "NaN"]}
    assert fit_json(data, "x") == ('{"a": [1, 2.5, null, "NaN"]}', False)
