"""The gate: a non-finite step changes nothing, a finite one is bit for bit what it would have been."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.probes.gate import FUSED, TAKEN, Gate

from . import ranks
from .models import batch, loss_of, net

OPTIMIZERS = {
    "AdamW fused": (lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True), FUSED),
    "Adam fused": (lambda p: torch.optim.Adam(p, lr=1e-2, fused=True), FUSED),
    "AdamW": (lambda p: torch.optim.AdamW(p, lr=1e-2), TAKEN),
    "SGD with momentum": (lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), TAKEN),
}
BAD = 3


def state(model: Any, optimizer: Any) -> list[Any]:
    """Weights and everything that the optimizer holds, in order."""
    held = [v for p in model.parameters() for _, v in sorted(optimizer.state.get(p, {}).items())]
    return [p.detach().clone() for p in model.parameters()] + [
        v.clone() if isinstance(v, torch.Tensor) else v for v in held
    ]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a, b, strict=True)
    )


def train(name: str, *, gate: bool, steps: tuple[int, ...], bad: int | None, scaler: Any = None) -> Any:
    model = net()
    make, way = OPTIMIZERS[name]
    optimizer = make(model.parameters())
    found = Gate(optimizer, model=model) if gate else None
    states = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        (scaler.scale(loss) if scaler else loss).backward()
        if step == bad:
            model.blocks[1].inner.weight.grad[5, 5] = math.nan
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        states.append(state(model, optimizer))
        assert not hasattr(optimizer, "found_inf")
    if found is not None:
        assert found.way == way
        assert found.trouble == {}
    return states, found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_non_finite_step_leaves_weights_moments_and_counters_untouched(name: str) -> None:
    states, gate = train(name, gate=True, steps=(1, 2, BAD, 4), bad=BAD)
    without, _ = train(name, gate=False, steps=(1, 2, 4), bad=None)
    assert same(states[2], states[1]), "the bad step changed nothing"
    assert same(states[3], without[2]), "and the run goes on as if that batch had not been"
    assert gate.held_back == (1 if gate.way == TAKEN else 0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_finite_steps_are_bit_for_bit_those_without_the_gate(name: str) -> None:
    on, _ = train(name, gate=True, steps=(1, 2, 3), bad=None)
    off, _ = train(name, gate=False, steps=(1, 2, 3), bad=None)
    assert all(same(a, b) for a, b in zip(on, off, strict=True))


@pytest.mark.parametrize("name", ["AdamW fused", "AdamW"])
def test_beside_a_grad_scaler_both_flags_count(name: str) -> None:
    """The scaler finds the NaN too and halves its scale; with or without the gate the run is the same."""
    runs = []
    for gate in (True, False):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        states, _ = train(name, gate=gate, steps=(1, 2, BAD, 4), bad=BAD, scaler=scaler)
        runs.append((states, scaler.get_scale()))
    assert runs[0][1] == runs[1][1] == 2.0**7
    assert all(same(a, b) for a, b in zip(runs[0][0], runs[1][0], strict=True))
    assert same(runs[0][0][2], runs[0][0][1])


def test_gradients_are_there_again_after_a_step_that_was_held_back() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(optimizer)
    loss_of(model, batch(1)).backward()
    model.head.weight.grad[0, 0] = math.inf
    before = model.head.weight.grad
    optimizer.step()
    assert model.head.weight.grad is before
    gate.remove()
    optimizer.step()
    assert not model.head.weight.isfinite().all(), "without the gate the step is made"


def test_a_norm_over_all_ranks_can_be_passed() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    gate = Gate(optimizer)
    loss_of(model, batch(1)).backward()
    before = state(model, optimizer)[:14]
    gate.judge(torch.tensor(math.nan))
    optimizer.step()
    assert same(state(model, optimizer)[:14], before)
    optimizer.step()
    assert not same(state(model, optimizer)[:14], before), "a norm counts for one step"


def _ddp(rank: int, world: int) -> Any:
    model = net()
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    gate = Gate(optimizer, model=ddp)
    alone = Gate(torch.optim.AdamW(net().parameters()), model=None)
    flags = []
    for step in (1, 2, 3):
        optimizer.zero_grad()
        loss = loss_of(ddp, batch(step, rank))
        if step == 2 and rank == 1:
            loss = loss * math.nan
        loss.backward()
        optimizer.step()
        flags.append(gate.flag.tolist())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    counter = optimizer.state[model.head.weight]["step"].tolist()
    return {"flags": flags, "sum": weights.double().sum().item(), "step": counter, "shared": alone.shared}


@pytest.mark.slow
def test_under_ddp_all_ranks_hold_the_same_step_back(tmp_path: Path) -> None:
    a, b = ranks.run(_ddp, 2, tmp_path)
    assert a["flags"] == b["flags"] == [0.0, 1.0, 0.0]
    assert a["sum"] == b["sum"]
    assert math.isfinite(a["sum"])
    assert a["step"] == 2.0
    assert a["shared"] is False, "without DDP nothing says that ranks see the same gradients: no verdict"
