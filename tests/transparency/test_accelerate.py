"""Accelerate's own tests of its trackers pass, fail and skip under the observer as they do without it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from . import command, page, source
from .suites import SUITES

for needed in ("accelerate", "torch", "wandb", "mlflow"):
    pytest.importorskip(needed)


@pytest.mark.slow
def test_accelerates_tracking_tests_come_to_the_same_outcomes_under_the_observer(tmp_path: Path) -> None:
    try:
        sdist = source.fetch("accelerate", importlib.metadata.version("accelerate"), tmp_path)
    except source.NotFetched as e:
        pytest.skip(f"Accelerate's tests are not at hand: {e}")
    try:
        shown = command.show(SUITES["accelerate"], sdist, ways=("plugin",))
    except command.NotShown as e:
        pytest.fail(str(e))
    assert shown.faults == [], page.text(shown)
    assert shown.rounds["without"][0].counts()["passed"] > 0
    observed = shown.rounds["plugin"][0].observed
    assert observed is not None
    assert observed.runs > 0
