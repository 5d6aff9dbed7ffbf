"""Training with the layer on gives the same losses and weights, bit for bit, as training without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import Subprocess, Warm

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow


SMALL = ("--batch-size", "2")
"""The same model with less to compute: what is compared are bits, not results of training."""


@pytest.fixture(autouse=True)
def _ranks_start_warm(warm_trainer: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    from lineage.demo import run

    monkeypatch.setattr(run, "subprocess", Subprocess(warm_trainer.address))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_layer_on_and_off_give_the_same_bits(tmp_path: Path, world: int) -> None:
    """World sizes 1, 2 and 3, real gloo processes, dropout and clipping included."""
    from lineage.demo import run

    story = run.Story(tmp_path, world=world, steps=24)
    run.train(story, "on", SMALL)
    run.train(story, "off", (*SMALL, "--layer", "off"))
    assert run.equal_losses(story, "on", "off")
    assert run.equal_weights(story, "on", "off")
    assert len(story.results["on"][0]["losses"]) == 24


def test_breaking_one_ranks_layer_changes_nothing(tmp_path: Path) -> None:
    """The layer of rank 1 is broken at step 5: training goes on, bit for bit the same, and finishes."""
    from lineage.demo import run

    story = run.Story(tmp_path, world=2, steps=24)
    run.train(story, "whole", SMALL)
    run.train(story, "broken", (*SMALL, "--kill-layer", "1:5"))
    assert run.equal_losses(story, "whole", "broken")
    assert run.equal_weights(story, "whole", "broken")
    log = (tmp_path / "broken" / "log-broken-1.txt").read_text()
    assert "Training goes on" in log
    assert log.count("the layer was broken on purpose") <= 6, "each part says it once, not each step"
