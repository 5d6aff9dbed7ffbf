"""Losses of single samples: kept beside their samples, bounded, and by them the sample that broke a batch is named."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.judge.sample_losses import SampleLoss, judge
from lineage.recorder import sample_losses
from lineage.recorder.off import OffStep
from tests.warm import Warm

from .loop import only


def trained(root: Path, give: Any, *, batch: int = 8, **settings: Any) -> None:
    """Twelve steps of two micro-batches; sample 5 of the second one is broken at step 11."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with lineage.attach(
        None, dir=root, run_id="run", model=model, optimizer=optimizer, quiet=True, **settings
    ) as rec:
        for step in range(1, 13):
            with rec.step(step) as st:
                optimizer.zero_grad()
                for micro in range(2):
                    x = torch.randn(batch, 3, generator=torch.Generator().manual_seed(10 * step + micro))
                    if (step, micro) == (11, 1):
                        x[5] = math.inf
                    st.batch({"x": x}, ids=[f"doc-{step}-{micro}-{i}" for i in range(batch)])
                    losses = (model(x) ** 2).reshape(-1)
                    losses.mean().backward()
                    give(st, losses)
                    st.loss(losses.mean())
                if step != 11:
                    optimizer.step()


def rows(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = only(root).series("samples").to_pylist()
    return found


def test_the_sample_that_broke_the_batch_is_named(tmp_path: Path, warm_reader: Warm) -> None:
    """By its micro-batch, its place, and the id that the loop gave it."""
    trained(tmp_path, lambda st, losses: st.sample_losses(losses))
    (bad,) = [r for r in rows(tmp_path) if r["n_nan"] or r["n_posinf"]]
    assert (bad["step"], bad["micro"], bad["place"], bad["sample"]) == (11, 1, 5, "doc-11-1-5")
    assert bad["digest"] is not None
    command = ["-c", "from lineage.cli import main; main()", "first-bad", str(tmp_path / "run"), "--json"]
    done = warm_reader.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "140"})
    found = json.loads(done.stdout)["first_bad"]
    (sample,) = found["samples"]
    assert (sample["micro"], sample["place"], sample["sample"]) == (1, 5, "doc-11-1-5")
    assert "sample 5 of micro-batch 1 (doc-11-1-5): loss is" in sample["text"]
    assert not any("which sample" in s for s in found["not_shown"])


def test_without_losses_of_samples_it_is_said_what_would_show_them(tmp_path: Path) -> None:
    trained(tmp_path, lambda st, losses: None)
    assert all(r["loss"] is None for r in rows(tmp_path))
    found = only(tmp_path).last("first_bad")
    assert found is not None
    assert any("which sample of the batch" in s and "st.sample_losses" in s for s in found.payload.not_shown)


def test_their_number_is_bounded_and_the_worst_stay(tmp_path: Path) -> None:
    """Two rows of a step, and up to eight of the worst losses beyond them in each micro-batch."""
    trained(tmp_path, lambda st, losses: st.sample_losses(losses.tolist()), batch=40, samples=2)
    step = [r for r in rows(tmp_path) if r["step"] == 11]
    assert len(step) <= 2 + 2 * sample_losses.BEYOND
    assert sample_losses.kept(40, [0.0] * 30 + [math.nan] + [5.0] * 9, 2)[:2] == [0, 1]
    assert 30 in sample_losses.kept(40, [0.0] * 30 + [math.nan] + [5.0] * 9, 2)


def test_another_shape_is_refused_and_training_goes_on(tmp_path: Path) -> None:
    trained(tmp_path, lambda st, losses: st.sample_losses(losses.reshape(2, -1)))
    (said,) = only(tmp_path).of("degraded")
    assert "one loss per sample is needed, and the shape is (2, 4)" in said.payload.error
    assert len({r["step"] for r in rows(tmp_path)}) == 12
    OffStep().sample_losses([1.0])


def test_a_sample_far_above_the_others_is_named_and_the_hardest_of_many_is_not() -> None:
    usual = [SampleLoss(0, i, None, None, 2.0 + 0.1 * (i % 7)) for i in range(64)]
    assert judge(usual) == []
    assert judge([*usual, SampleLoss(0, 64, None, None, 3.2)]) == []
    (found,) = judge([*usual, SampleLoss(1, 3, "doc", None, 40.0)])
    assert (found.micro, found.place) == (1, 3)
    assert "the median of the batch is 2.3" in found.text
    assert judge([SampleLoss(0, 0, None, None, 9.0), SampleLoss(0, 1, None, None, 1.0)]) == []
