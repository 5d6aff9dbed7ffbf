"""torchrun with two gloo workers, forked and spawned children: one run, one segment, every rank where it belongs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .conftest import Observed, Run, ledgers, script
from .test_wandb import metrics, start

TRAIN = """
import os, sys
import torch, torch.distributed as dist, wandb
from torch.nn.parallel import DistributedDataParallel

lr = float(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
first = 1
if os.path.exists("ck.pt"):
    state = torch.load("ck.pt")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"] + 1
if rank == 0:
    run = wandb.init(project="p", config={"lr": lr})
for step in range(first, first + 3):
    loss = model(torch.randn(2, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        wandb.log({"loss": loss.item()}, step=step)
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ck.pt")
    run.finish()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_of_an_unchanged_script_resumed_with_another_rate(tmp_path: Path, run: Run) -> None:
    """Two ranks, two segments of one run, the second from the first's checkpoint: what was asked for is told."""
    train = script(tmp_path, "train.py", TRAIN)
    for lr in ("0.1", "0.01"):
        done = run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", train, lr)
        assert done.returncode == 0, done.stderr
        assert "not reached" not in done.stderr
    (ledger,) = ledgers(tmp_path)
    assert ledger.damage == []
    one, two = ledger.segments
    assert (one.ranks, two.ranks) == ((0, 1), (0, 1))
    assert one.info.world_size == 2
    assert {r.payload.identity for r in ledger.of("segment") if r.rank == 1} == {"launcher"}
    assert sorted(metrics(ledger, "loss")) == [1, 2, 3, 4, 5, 6]
    parent = next(r.payload for r in ledger.of("checkpoint", one.uid))
    assert {r.payload.parent_checkpoint for r in ledger.of("segment", two.uid)} == {parent.uid}
    assert {r.rank for r in ledger.of("load", two.uid)} == {0, 1}
    (drift,) = [r.payload for r in ledger.of("drift")]
    assert [(c.concept, c.requested_before.plain(), c.requested_after.plain()) for c in drift.changes] == [
        ("learning_rate", 0.1, 0.01)
    ]
    for words, code, text in (
        (("show",), 1, "lr requested 0.1 -> 0.01; the value in effect is not shown"),
        (("diff",), 1, "undeclared"),
        (("verdict",), 1, "peak learning rate"),
    ):
        said = _lineage(tmp_path, *words, str(ledger.path))
        assert said.returncode == code, said.stderr
        assert text in " ".join(said.stdout.split())


def _lineage(folder: Path, *words: str):  # type: ignore[no-untyped-def]
    import subprocess

    code = "from lineage.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "300"},
        timeout=120,
    )


def test_a_forked_child_neither_repeats_nor_disturbs_its_parent_s_run(home: Path, observed: Observed) -> None:
    """As a DataLoader's worker: it saves, loads and ends, and the parent goes on."""
    import torch

    run = start()
    run.log({"loss": 1.0}, step=1)
    observed.settle()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.save({"x": 1}, home / "from-the-child.pt")
            light = sys.modules["_lineage_light"]
            code = 0 if not light.events.EVENTS else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.log({"loss": 0.5}, step=2)
    run.finish()
    ledger = observed.only()
    assert metrics(ledger, "loss") == {1: 1.0, 2: 0.5}
    assert ledger.of("checkpoint") == []
    assert len({r.file for r in ledger.records}) == 1


def test_a_child_that_begins_a_run_of_its_own_is_observed_forked_or_spawned(tmp_path: Path, run: Run) -> None:
    sweep = script(
        tmp_path,
        "sweep.py",
        "import multiprocessing, sys, wandb\n"
        "def trial(lr):\n"
        "    run = wandb.init(project='p', config={'lr': lr})\n"
        "    run.log({'loss': lr}, step=1)\n"
        "    run.finish()\n"
        "if __name__ == '__main__':\n"
        "    trial(0.5)\n"
        "    for how, lr in (('fork', 0.1), ('spawn', 0.2)):\n"
        "        p = multiprocessing.get_context(how).Process(target=trial, args=(lr,))\n"
        "        p.start()\n"
        "        p.join()\n"
        "        assert p.exitcode == 0\n",
    )
    done = run(sys.executable, sweep)
    assert done.returncode == 0, done.stderr
    found = ledgers(tmp_path)
    assert sorted(metrics(ledger, "loss")[1] for ledger in found) == [0.1, 0.2, 0.5]
    assert all(ledger.of("segment_end") for ledger in found)
    assert "not reached" not in done.stderr
