"""Public faults of the files themselves: saves cut short, rotated away, or pointed at wrongly."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

import lineage.observe
from lineage.ledger.reader import Ledger, find
from tests.warm import Warm

from . import said
from .loop import CONFIG, Loop, attach, first, resume


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_save_that_was_cut_short_is_named_by_its_file_and_against_what_was_recorded(
    tmp_path: Path, prints: said.Prints, warm_reader: Warm, share: float
) -> None:
    """NeMo Automodel#3261, speculators#739: an interrupted save leaves a file that is later taken as valid."""
    checkpoint = first(tmp_path, Loop())
    file = checkpoint / "state.pt"
    whole = file.stat().st_size
    file.write_bytes(file.read_bytes()[: int(whole * share)])
    with pytest.raises((RuntimeError, OSError)):
        torch.load(file, weights_only=True)
    text = said.printed(warm_reader, "checkpoint", checkpoint)
    assert "a resume would fail" in text
    assert "LIN-K002 state.pt is cut off" in text
    verified = said.printed(warm_reader, "checkpoint", Path("verify"), str(checkpoint))
    assert "NOT AS RECORDED" in verified
    assert f"{whole:,} were recorded" in verified


def test_a_whole_save_is_as_recorded(tmp_path: Path, warm_reader: Warm) -> None:
    checkpoint = first(tmp_path, Loop())
    assert "LIN-K002" not in said.printed(warm_reader, "checkpoint", checkpoint)
    assert "NOT AS RECORDED" not in said.printed(warm_reader, "checkpoint", Path("verify"), str(checkpoint))


def test_a_loader_file_that_is_gone_is_named_before_the_resume_and_after_it(
    tmp_path: Path, prints: said.Prints, warm_reader: Warm
) -> None:
    """RLinf#1469: a missing loader file only warned, and the run trained on what it had seen."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.run(rec, 24)
        checkpoint = loop.save(tmp_path / "saved", without=("loader",))
        rec.checkpoint(checkpoint, step=24)
    text = said.printed(warm_reader, "checkpoint", checkpoint)
    assert "LIN-K009" in text
    found = resume(tmp_path, Loop().load(checkpoint), checkpoint)
    assert said.component(found, "loader_position").status == "differs"
    assert "not restored: data-loader position" in prints("resume", found)


@pytest.fixture
def _no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have imported one: the observer would wait for its run then."""
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("_no_tracker")
def test_a_rotation_that_left_no_checkpoint_is_named(tmp_path: Path, prints: said.Prints) -> None:
    """transformers#25129, #25136, #11748: with a limit of one the old save went before the new one was there."""
    ledger = _rotated(tmp_path, keep=False)
    (left,) = said.findings(ledger, "LIN-C024")
    assert (said.number(left, "deleted"), said.number(left, "first_step")) == (1, 4)
    assert "no complete checkpoint is left: of 1 on record 1 deleted (step 4)" in prints("show", ledger)


@pytest.mark.usefixtures("_no_tracker")
def test_a_rotation_that_keeps_the_newer_save_is_not_named(tmp_path: Path) -> None:
    assert said.findings(_rotated(tmp_path, keep=True)) == []


def _rotated(root: Path, *, keep: bool) -> Ledger:
    """A loop under observation that deletes its save; `keep`: when the next one is there."""
    loop = Loop()
    lineage.observe.install(lineage.observe.Options(dir=str(root / "runs"), quiet=True, capture=False))
    try:
        old, new = root / "checkpoint-4", root / "checkpoint-8"
        for folder in (old, new) if keep else (old,):
            for _ in range(4):
                loop.update(loop.loss(next(loop.loader)))
                loop.done += 1
            loop.save(folder)
        observer = lineage.observe.observer()
        assert observer is not None
        assert observer.flush(300.0)
        shutil.rmtree(old)
        assert observer.flush(300.0)  # it looks again
    finally:
        lineage.observe.uninstall(300.0)
    (path,) = find(root / "runs")
    return Ledger(path)
