"""Loops as they are: gradients accumulated under `no_sync`, a short last batch, ranks with fewer batches."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import lineage
from lineage.ledger import beside
from lineage.ledger.reader import Ledger
from tests.probes import ranks

EVERY = 2


def model_and_optimizer() -> tuple[Any, Any]:
    """Equal on all ranks."""
    torch.manual_seed(2)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    )
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def x(rank: int, step: int, micro: int, size: int = 4) -> torch.Tensor:
    """A micro-batch of this rank's own."""
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(step * 100 + micro * 10 + rank))


def accumulated(rank: int, world: int, root: str) -> None:
    """Three micro-batches a step, reduced at the last; at the end of the data rank 1 has fewer samples."""
    model, optimizer = model_and_optimizer()
    with lineage.attach(
        None, dir=root, run_id="r", model=model, optimizer=optimizer, agree_every=EVERY, quiet=True
    ) as rec:
        for step in range(1, 9):
            with rec.step(step) as st:
                for micro in range(3):
                    short = step == 8 and micro == 2 and rank == 1
                    batch = x(rank, step, micro, 1 if short else 4)
                    st.batch({"x": batch})
                    with model.no_sync() if micro < 2 else contextlib.nullcontext():
                        loss = model(batch).pow(2).mean() / 3
                        loss.backward()
                    st.loss(loss)
                optimizer.step()
                optimizer.zero_grad()


def test_accumulation_and_a_short_last_batch_are_no_disagreement(tmp_path: Path) -> None:
    ranks.run(functools.partial(accumulated, root=str(tmp_path / "l")), 2, tmp_path)
    ledger = Ledger(tmp_path / "l" / "r")
    found = beside.compare(ledger, ledger.segments[0])
    assert [f.code for f in found.findings if f.severity != "note"] == []
    assert found.state.steps == [1, 2, 4, 6, 8]
    assert found.state.missing == {}
    sizes = {
        r["rank"]: r["samples"]
        for r in ledger.series("batches").to_pylist()
        if (r["step"], r["micro"]) == (8, 2)
    }
    assert sizes == {0: 4, 1: 1}


def joined(rank: int, world: int, root: str) -> None:
    """Rank 1 runs out of data after five steps of eight; DistributedDataParallel shadows its reductions."""
    model, optimizer = model_and_optimizer()
    with (
        lineage.attach(
            None, dir=root, run_id="r", model=model, optimizer=optimizer, agree_every=EVERY, quiet=True
        ) as rec,
        Join([model]),
    ):
        for step in range(1, 9 if rank == 0 else 6):
            batch = x(rank, step, 0)
            with rec.step(step, {"x": batch}) as st:
                loss = model(batch).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                st.loss(loss)


def test_a_rank_that_runs_out_of_data_is_missing_and_not_different(tmp_path: Path) -> None:
    ranks.run(functools.partial(joined, root=str(tmp_path / "l")), 2, tmp_path)
    ledger = Ledger(tmp_path / "l" / "r")
    found = beside.compare(ledger, ledger.segments[0])
    assert found.state.found == []
    assert found.state.missing == {6: (1,), 8: (1,)}
    assert any("of step 8 for rank 1" in text for text in found.not_compared)
