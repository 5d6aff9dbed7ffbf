"""What a bundle does not have is named in it, with the line that would give it; nothing that is there is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import lineage
from tests.recorder.loop import Loop, attach

from .test_evidence import bundles, run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that no git repository that is being worked on is captured


def test_all_that_is_not_there_is_named_with_what_would_give_it(tmp_path: Path) -> None:
    """A loop that gives its model alone: nothing that evidence would need is left out in silence."""
    loop = Loop()
    with lineage.attach(None, model=loop.model, dir=tmp_path) as rec:
        for step in range(1, 8):
            with rec.step(step) as st:
                st.loss(loop.model(torch.randn(2, 3)).sum() * (float("nan") if step == 6 else 1.0))
    (found,) = bundles(tmp_path)
    absent = found.manifest.absent
    for what, line in {
        "batches of the step": "rec.step(step, batch)",
        "learning rates and parameter groups": "optimizer=optimizer",
        "gradient scaler": "scaler=scaler",
        "scheduler state": "scheduler",
        "loader state": "loader",
        "gradients by layer": "model=model",
        "activations by layer": "activations=True",
        "config of the run": "config=config",
        "the code's difference from its revision": "no git repository",
        "hardware and software events": "lineage events import",
        "last good checkpoint": "none is recorded",
        "first bad checkpoint": "lineage first-bad",
    }.items():
        assert line in absent[what], what
    assert "environment of the run" not in absent
    assert "this process watches nothing" in absent["hardware and software events"]


def test_with_no_event_at_that_time_it_is_said_what_was_watched(tmp_path: Path) -> None:
    """A machine without a GPU, or without the binding, says so in the bundle too."""
    loop = Loop()
    with attach(loop, tmp_path, hardware_every=60.0) as rec:
        loop.run(rec, 2)
        for _ in range(600):  # its first look is on another thread
            seen = rec.hardware.covered() if rec.hardware is not None else ([], {}, [])
            if any(seen):
                break
            time.sleep(0.05)
        loop.run(rec, 8, spoil=6)
    (found,) = bundles(tmp_path)
    parts, missing, gaps = seen
    told = [*parts, *missing.values(), *gaps]
    if found.json("events.json") == []:  # the node of this test may have had one just now
        why = found.manifest.absent["hardware and software events"]
        assert told
        assert all(t.removeprefix("hardware events: ").split(",")[0] in why for t in told)


def test_nothing_is_named_as_absent_that_is_there(tmp_path: Path) -> None:
    """A loop that gives all of it: only the checkpoint that is not saved yet, and events of a quiet node, are named."""
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu")
    found = run(tmp_path, loop=loop, scaler=scaler, config={"lr": 0.1}, activations=True, gate=True)
    quiet = {
        "hardware and software events",
        "log tails",
        "last good checkpoint",
        "first bad checkpoint",
        "the code's difference from its revision",
    }
    assert set(found.manifest.absent) <= quiet
