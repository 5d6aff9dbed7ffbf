"""MLflow's own pages of four real trainings, in a real browser, as somebody sees them who opens nothing else."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mlflow")

from tests.trackers.mlflow.conftest import needs_models

from . import browser as pages
from .mlflow_side import MlflowSide
from .story import BAD, BASELINE, CHANGED, RUNS, SPOILED

pytestmark = [
    needs_models,  # the pages of MLflow 3
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(pages.CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
FLAGGED = "Broken since step 41: comparison of loss curves, scaling-law fit, ablation against a baseline"


def test_the_run_list_tells_flagged_from_healthy_since_when_for_what_and_what_to_do(
    browser: Any, mlflow_side: MlflowSide
) -> None:
    with pages.run_list(browser, mlflow_side, *RUNS) as page:
        shown = {name: pages.columns_of(page, name) for name in RUNS}
    assert {name: c["lineage/status"] for name, c in shown.items()} == {
        BASELINE: "holds",
        CHANGED: "broken",
        SPOILED: "broken",
        BAD: "broken",
    }
    assert shown[CHANGED]["lineage/verdict"].startswith(FLAGGED)
    assert shown[CHANGED]["lineage/advice"].startswith("lineage diff ")
    assert "of before step 41" in shown[CHANGED]["lineage/advice"]
    assert shown[BAD]["lineage/advice"].startswith("its parent is quarantined: resume from step 20 (")
    assert shown[BASELINE]["lineage/advice"].startswith("nothing needs doing")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tags.`lineage/status` = 'broken'", (CHANGED, SPOILED, BAD)),
        ("tags.`lineage/broken_since_step` = '33'", (SPOILED,)),
    ],
)
def test_the_run_list_is_searched_by_validity(
    browser: Any, mlflow_side: MlflowSide, query: str, found: tuple[str, ...]
) -> None:
    with pages.run_list(browser, mlflow_side, *found, query=query) as page:
        body = page.inner_text("body")
    assert {name for name in RUNS if name in body.split()} == set(found)


def test_the_overview_has_verdict_advice_data_models_and_the_users_own_words(
    browser: Any, mlflow_side: MlflowSide
) -> None:
    with pages.overview(browser, mlflow_side, CHANGED) as page:
        body = page.inner_text("body")
        models = pages.models(page)
    assert FLAGGED in body
    assert "Next: lineage diff " in body
    assert "peak learning rate 0.1 -> 0.03 (undeclared)" in body
    assert "Second try. Rate lowered after the plateau." in body
    assert "noise (" in body.partition("Datasets")[2].partition("Tags")[0]
    assert "Segment 1, From Step 1" in body  # MLflow writes contexts with capitals
    assert models == [("Output", str(s), f"ckpt-step-{s}") for s in (20, 40, 60, 80)]
    assert "lineage:begin" not in body  # the markers are not for people


def test_the_overview_of_a_fork_names_its_quarantined_parent_and_where_to_resume_instead(
    browser: Any, mlflow_side: MlflowSide
) -> None:
    with pages.overview(browser, mlflow_side, BAD) as page:
        body = page.inner_text("body")
        models = pages.models(page)
    told = body.partition("Description")[2]
    assert told.index("Broken since step 41") < told.index("Resumed from a quarantined checkpoint")
    assert "resume from a checkpoint from before it: step 20" in told
    assert "Quarantined: do not resume from the checkpoints of step 60, step 80" in told
    assert models == [
        ("Input", "-", "ckpt-step-40"),
        ("Output", "60", "ckpt-step-60"),
        ("Output", "80", "ckpt-step-80"),
    ]


def test_the_regime_is_a_line_over_the_same_steps_as_the_loss(browser: Any, mlflow_side: MlflowSide) -> None:
    with pages.charts(browser, mlflow_side, CHANGED) as page:
        regime, loss = pages.lines(page)
        titles = page.get_by_text("Step", exact=True).count()
    assert sorted(set(regime)) == [(1, 0), (40, 0), (41, 1), (80, 1)]
    assert [step for step, _ in loss] == list(range(1, 81))
    assert titles == 2


@pytest.mark.parametrize("file", ["report.html", "report.md"])
def test_the_report_is_read_in_the_artifact_view(browser: Any, mlflow_side: MlflowSide, file: str) -> None:
    with pages.artifact(browser, mlflow_side, CHANGED, file) as page:
        shown = page.frame_locator("iframe") if file.endswith("html") else page
        for line in ("The answer", FLAGGED, "Do next:"):
            shown.get_by_text(line).first.wait_for()


def test_a_comparison_shows_which_of_two_runs_is_flagged_since_when_for_what_and_what_to_do(
    browser: Any, mlflow_side: MlflowSide
) -> None:
    with pages.comparison(browser, mlflow_side, BASELINE, CHANGED) as page:
        rows = {
            cells[0]: cells[1:]
            for row in page.get_by_role("row").all()
            if (cells := [c.inner_text().strip() for c in row.locator("th, td, [role=cell]").all()])
        }
    assert rows["lineage/status"] == ["holds", "broken"]
    assert rows["lineage/broken_since_step"] == ["", "41"]
    assert rows["lineage/claims/loss_curve"] == ["holds", "broken"]
    assert rows["lineage/advice"][0].startswith("nothing needs doing")
    assert rows["lineage/advice"][1].startswith("lineage diff ")
    assert "lineage/claims/throughput" not in rows  # the same in both
