"""What stands on W&B's pages of real trainings: read back from the local log, in its terminal viewer, on a backend."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

wandb = pytest.importorskip("wandb")

from trackers.wandb_ import offline_log

from .story import BAD, CHANGED, SAVED_BAD, SPOILED
from .wandb_side import WandbSide

pytestmark = pytest.mark.slow
FLAGGED = "Broken since step 41: comparison of loss curves, scaling-law fit, ablation against a baseline"
PINS = hasattr(wandb.Run, "pin_config_keys")


def test_verdict_tag_columns_and_advice_stand_in_the_local_log(offline: WandbSide) -> None:
    log = offline_log.read_run(offline.log_of(CHANGED))
    verdict = log.config["lineage/verdict"]
    assert verdict.startswith(f"**{FLAGGED}")
    assert "Next: `lineage diff " in verdict
    assert "peak learning rate 0.1 -> 0.03 (undeclared)" in verdict
    assert log.pinned == (["lineage/verdict"] if PINS else [])
    assert log.tags == ("lineage:broken",)
    assert log.notes == "Second try. Rate lowered after the plateau."
    columns = {k.removeprefix("lineage/"): v for k, v in log.summary.items()}
    assert (columns["status"], columns["broken_since_step"]) == ("broken", 41)
    assert (columns["claims/loss_curve"], columns["claims/evaluation"]) == ("broken", "holds")
    assert columns["advice"].startswith("lineage diff ")
    assert "of before step 41" in columns["advice"]


def test_the_regime_is_a_line_over_the_training_steps_in_the_local_logs(offline: WandbSide) -> None:
    points = {}
    for path in offline.logs[CHANGED]:
        rows = offline_log.read_run(path).history
        points |= {r["lineage/step"]: r["lineage/regime"] for r in rows if "lineage/regime" in r}
    assert {step: points[step] for step in (1, 41)} == {1: 0, 41: 1}
    assert {points[step] for step in points if step > 41} == {1}


def test_the_timeline_is_an_html_panel_that_answers_by_itself(offline: WandbSide) -> None:
    log = offline_log.read_run(offline.log_of(CHANGED))
    assert log.summary["lineage/report"]["_type"] == "html-file"
    page = offline.panel(CHANGED).read_text()
    for words in ("The answer", FLAGGED, "Do next:", "Timeline"):
        assert words in page, words


def test_the_terminal_viewer_shows_flag_step_claims_and_advice(offline: WandbSide) -> None:
    pytest.importorskip("pyte")
    terminal = pytest.importorskip("tests.pages.terminal")  # a pseudo-terminal: not on Windows
    if not hasattr(wandb, "__version__") or tuple(map(int, wandb.__version__.split(".")[:2])) < (0, 31):
        pytest.skip("this wandb has no terminal viewer as tested")
    viewer = terminal.Leet(offline.log_of(CHANGED))
    try:
        text = viewer.verdict()
    finally:
        viewer.close()
    shown = dict(re.findall(r"^ (lineage/\S+|Tags:) +(\S.*?)  +", text, re.MULTILINE))
    assert shown["Tags:"] == "lineage:broken"
    assert shown["lineage/status"] == "broken"
    assert shown["lineage/broken_since_step"] == "41"
    assert shown["lineage/claims/loss_curve"] == "broken"
    assert shown["lineage/claims/throughput"] == "holds"
    assert shown["lineage/verdict"].startswith("**Broken since step 41: comparison of loss curves")
    assert shown["lineage/advice"].startswith("lineage diff ")


def test_the_server_has_the_checkpoints_as_artifacts_and_the_fork_s_parent_as_an_input(
    online: tuple[WandbSide, Any],
) -> None:
    _, backend = online
    outputs = {(a.given["runName"], step) for a in backend.artifacts for step in a.aliases if "step-" in step}
    assert outputs >= {(SPOILED, "step-20"), (BAD, "step-60"), (BAD, "step-80")}
    parent = backend.artifact(f"step-{SAVED_BAD}")
    assert parent.given["runName"] == SPOILED
    assert backend.uses == [parent.id]
    assert json.loads(parent.given["metadata"])["quarantined"] is True


def test_the_fork_s_pinned_verdict_names_its_quarantined_parent_and_where_to_resume_instead(
    online: tuple[WandbSide, Any],
) -> None:
    _, backend = online
    fork = backend.runs[BAD]
    verdict = fork.values["lineage/verdict"]
    head, resumed, *_ = verdict.split("\n\n")
    assert head.startswith("**Broken since step 41")
    assert resumed.startswith("**Resumed from a quarantined checkpoint**")
    assert "resume from a checkpoint from before it: step 20" in resumed
    assert fork.summary["lineage/advice"].startswith("its parent is quarantined: resume from step 20 (")
    assert fork.pinned == (["lineage/verdict"] if PINS else [])
    assert fork.tags == ["lineage:broken"]
