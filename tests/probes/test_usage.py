"""The loop of docs/probes.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from .models import batch, loss_of, net

DOCUMENT = Path(__file__).parents[2] / "docs" / "probes.md"


def test_the_documented_loop_runs_and_finds_what_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    """Step 3's update is made of a NaN gradient: that step's frame names it, in the order of the backward pass."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())

    def train() -> None:
        optimizer.zero_grad()
        loss = loss_of(model, batch(1))
        (loss * (float("nan") if space["step"] == 3 else 1.0)).backward()
        optimizer.step()

    body = code.replace("    ...  ", "    train()  ", 1)
    assert body != code
    space: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "scaler": None,
        "steps": 3,
        "train": train,
    }
    exec(compile(body, str(DOCUMENT), "exec"), space)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert "[]" in lines[0]
    assert "exact: Adam" in lines[0]
    assert (
        "Key(kind='gradient', name='head.weight'), Key(kind='gradient', name='blocks.1.outer.bias')"
        in lines[2]
    )
