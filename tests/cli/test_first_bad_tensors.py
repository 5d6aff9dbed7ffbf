"""`lineage first-bad` by tensor: the layer whose gradient left its range, and what is not finite in it."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.judge.layers import NEEDED, TensorRow, at_step, layer_of
from tests.warm import Warm

BAD, STEPS = 50, 52


def trained(root: Path, spoil: Any) -> Path:
    """A model of six layers, one of whose gradients is spoiled at one step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    at = {"step": 0}
    model[2].weight.register_hook(lambda g: spoil(g.clone()) if at["step"] == BAD else g)
    with lineage.attach(None, dir=root, run_id="bad", model=model, optimizer=optimizer, quiet=True) as rec:
        for step in range(1, STEPS + 1):
            at["step"] = step
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            with rec.step(step, x) as st:
                loss = (model(x) - x).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e3)
                if step != BAD:
                    optimizer.step()
                st.loss(loss)
    return root / "bad"


def one_nan(g: Any) -> Any:
    g[0, 0] = math.nan
    return g


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda g: g * 1000, "1 of 6 layers: 2; gradient norm of 2 "),
        (
            one_nan,
            "gradients: 1 of 12 not finite, in order 2.weight; 2.weight: 1 of 64 elements, the largest finite",
        ),
    ],
)
def test_the_layer_and_the_tensor_are_named(tmp_path: Path, warm_reader: Warm, spoil: Any, says: str) -> None:
    """One layer a thousand times too large; one element that is not a number."""
    ledger = trained(tmp_path, spoil)

    def first_bad(*more: str) -> subprocess.CompletedProcess[str]:
        command = ["-c", "from lineage.cli import main; main()", "first-bad", str(ledger), *more]
        return warm_reader.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "140"})

    done = first_bad()
    assert done.returncode == 1
    assert "by tensor, on rank 0:" in done.stdout
    assert says in " ".join(done.stdout.split())
    (line,) = json.loads(first_bad("--json").stdout)["tensors"]
    assert says in line


def row(step: int, tensor: str, norm: float, kind: str = "gradient") -> TensorRow:
    return TensorRow(step, kind, tensor, 0, norm, norm, 0, 64)


def test_layers_that_rise_together_are_told_as_such_and_healthy_ones_as_healthy() -> None:
    """Half of the layers at eight times their norm; and a step like all others."""
    wobble = [1.0 + 0.05 * math.sin(7.0 * s) for s in range(61)]
    rows = [row(s, f"blocks.{i}.w", wobble[s] * (1 + i)) for s in range(1, 60) for i in range(8)]
    bad = [row(60, f"blocks.{i}.w", (8.0 if i < 4 else 1.0) * (1 + i)) for i in range(8)]
    (line,) = at_step(rows + bad, 60)
    assert "4 of 8 layers rose together" in line
    assert at_step(rows, 59) == [
        "step 59: no layer stands out from the others and from its own past (layers/1)"
    ]
    assert at_step(rows, 99) == []


def test_too_few_steps_tell_nothing_of_a_layer() -> None:
    """While the rule cannot speak yet, its silence is not said to be a finding."""
    rows = [row(s, f"blocks.{i}.w", 1.0 if s < 20 else 900.0) for s in range(1, 21) for i in range(8)]
    (line,) = at_step(rows, 20)
    assert (
        line
        == f"step 20: 19 steps before it are too few to say what is usual for a layer ({NEEDED} are needed)"
    )
    rows = [row(s, f"blocks.{i}.w", 1.0) for s in range(1, NEEDED + 2) for i in range(8)]
    assert "no layer stands out" in at_step(rows, NEEDED + 1)[0]
    rows += [row(NEEDED + 2, f"blocks.{i}.w", 900.0 if i == 3 else 1.0) for i in range(8)]
    assert "1 of 8 layers: blocks.3" in at_step(rows, NEEDED + 2)[0]


@pytest.mark.parametrize(
    ("name", "layer"),
    [("blocks.3.attn.qkv.weight", "blocks.3"), ("head.weight", "head"), ("scale", "scale"), ("0.bias", "0")],
)
def test_a_layer_is_a_name_up_to_its_first_number(name: str, layer: str) -> None:
    assert layer_of(name) == layer
