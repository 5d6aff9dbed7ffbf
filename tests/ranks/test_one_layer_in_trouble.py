"""One rank's layer that is off, dead, frozen or slow: training on all ranks gives the same bits, and goes on."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lineage
from lineage.ledger import beside
from lineage.ledger.reader import Ledger
from lineage.ledger.series import SeriesWriter
from lineage.recorder import agreeing, live_agreement
from lineage.recorder.worker import Worker
from tests.probes import ranks

STEPS = 12
TROUBLED = 1


def train(root: str, trouble: str) -> list[str]:
    """Train; returns all losses and weights as hexadecimal numbers."""
    torch.manual_seed(5)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    given: dict[str, Any] = {"model": model, "optimizer": optimizer, "agree_every": 1}
    if trouble == "off" and dist.get_rank() == TROUBLED:
        given["enabled"] = False
    rec = None
    if trouble != "without":
        rec = lineage.attach(
            None, dir=root, run_id=trouble, quiet=True, report=False, exit_timeout=0.2, **given
        )
    losses = []
    for step in range(1, STEPS + 1):
        g = torch.Generator().manual_seed(step * 7 + dist.get_rank())
        x = torch.randn(4, 8, generator=g)
        if rec is None:
            losses.append(_update(model, optimizer, x))
        else:
            with rec.step(step, {"x": x}) as st:
                loss = _update(model, optimizer, x)
                st.loss(loss)
            losses.append(loss)
    if rec is not None:
        rec.close()
    return [
        v.hex()
        for v in [*map(float, losses), *torch.cat([p.reshape(-1) for p in model.parameters()]).tolist()]
    ]


def _update(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def spoil(trouble: str) -> None:
    """Make this rank's layer fail in one way."""
    never = threading.Event()  # nobody sets it: whoever waits here waits until the process ends
    if trouble == "dead":  # its threads run nothing
        Worker._work = lambda self: None
    elif trouble == "frozen":
        live_agreement.Live._exchange = lambda self, step, roots: never.wait()
    elif trouble == "frozen_disk":
        SeriesWriter.write = lambda self, rows: time.sleep(0.5)
    elif trouble == "raises":

        def broken(*_: Any) -> Any:
            raise RuntimeError("this layer is broken")

        agreeing.placement.look = broken


def both(rank: int, world: int, root: str, trouble: str) -> list[list[str]]:
    """Train without the layer, then with it and its trouble."""
    plain = train(root, "without")
    if rank == TROUBLED:
        spoil(trouble)
    return [plain, train(root, trouble)]


@pytest.mark.parametrize("trouble", ["off", "dead", "frozen", "frozen_disk", "raises"])
def test_training_is_the_same_bit_for_bit_and_others_say_which_rank_is_silent(
    tmp_path: Path, trouble: str
) -> None:
    found = ranks.run(functools.partial(both, root=str(tmp_path / "l"), trouble=trouble), 3, tmp_path)
    assert all(plain == layered for plain, layered in found)
    ledger = Ledger(tmp_path / "l" / trouble)
    state = beside.compare(ledger, ledger.segments[0]).state
    assert not state.found  # what is missing is no disagreement
    assert state.tensors == 12  # two ranks can still be compared: four parameters and their moments
    silent = {r for gone in state.missing.values() for r in gone}
    assert silent == (
        set() if trouble == "frozen" else {TROUBLED}
    )  # frozen is what compares, not what writes
