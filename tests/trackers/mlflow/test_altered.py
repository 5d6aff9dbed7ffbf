"""What MLflow does to the user's own values without a word is said on the page, from what the store itself holds."""

from __future__ import annotations

import math

import schemas

from . import builders as b
from .conftest import Case

LONG = "a system prompt, " * 500


def ended(case: Case) -> dict[str, str]:
    """The tags after the segment's end."""
    case.show(schemas.SegmentEnd(reason="finished", last_step=9), step=9)
    return case.tags()


def test_a_param_that_mlflow_cut_is_named_and_the_whole_stands_beside(case: Case) -> None:
    case.client.log_param(case.run_id, "prompt", LONG)
    case.client.log_param(case.run_id, "other", "x" * 9000)
    case.client.log_param(case.run_id, "lr", "0.1")
    assert len(case.client.get_run(case.run_id).data.params["prompt"]) == 6000 < len(LONG)
    case.show(b.config(prompt=LONG, lr=0.1))
    note = ended(case)["lineage/note/LIN-T002"]
    assert "MLflow cut prompt without a word" in note
    assert "other is exactly as long as MLflow lets a value be" in note
    assert "lr" not in note
    assert LONG in case.artifact("lineage/config_001.json")


def test_latest_values_that_the_page_hides_or_alters_are_named(case: Case) -> None:
    for name, value in {"loss": math.nan, "ppl": math.inf, "down": -math.inf, "ok": 1.0}.items():
        case.client.log_metric(case.run_id, name, value, step=9)
    note = ended(case)["lineage/note/LIN-T003"]
    assert "the latest value of loss is NaN" in note
    assert "down, ppl is an infinity" in note
    assert "ok" not in note


def test_a_page_on_which_nothing_was_altered_says_nothing(case: Case) -> None:
    case.client.log_metric(case.run_id, "loss", 1.0)
    case.client.log_param(case.run_id, "prompt", "short")
    assert {k for k in ended(case) if "LIN-T00" in k} == set()


def test_ten_thousand_metrics_of_the_user_s_and_a_config_of_ten_thousand_keys_are_all_there(
    case: Case,
) -> None:
    from mlflow.entities import Metric

    points = [Metric(f"layer {n}/größe", float(n), 0, 1) for n in range(10_000)]
    case.client.log_batch(case.run_id, metrics=points)
    case.show(b.config(**{f"schlüssel {n} 層": n for n in range(10_000)}))
    case.show(b.drift(*(b.change(f"schlüssel {n} 層", n, n + 1) for n in range(10_000))))
    case.show(b.verdict())
    tags = case.tags()
    assert len(case.client.get_run(case.run_id).data.metrics) == 10_000
    assert '"schlüssel 9999 層": 9999' in case.artifact("lineage/config_001.json")
    assert '"schlüssel 9999 層' in case.artifact("lineage/drift_001.json")
    assert '"left_out": {"changes": ' in tags["lineage/drift/001"]
    assert tags["lineage/status"] == "broken"
