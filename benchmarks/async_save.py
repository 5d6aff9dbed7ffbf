"""How long an asynchronous save holds training up, with the digests of its state and without them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lineage
from lineage.integrations.dcp import Stager

from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns
from .training import LARGER, Size, Training

NAME = "async_save"
GOAL = 1.1
COLUMNS = (
    Column("what", "until training goes on"),
    *SPREAD,
    Column("ratio", "time, async_save = 1", "ratio"),
)
BARE, AGAIN = "dcp.async_save", "dcp.async_save, once more"
OURS = "dcp.async_save within rec.saving(stager=...)"
LIVE = "dcp.async_save within rec.saving(), which digests the live state"
CLONED = "dcp.async_save, and a clone of all tensors to hash later"
HASHED = "dcp.async_save, and SHA-256 of all tensors"


def run(*, rounds: int = 5, size: Size = LARGER, threads: int = 1) -> Table:
    """Save weights and moments of a GPT by turns, each time into a new folder, and wait for the files outside."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(threads)
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})
    training = Training(size)
    training.compute(next(iter(training.loader)))
    training.update()  # moments are there from now on
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        store = dist.FileStore(str(folder / "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        with lineage.attach(None, dir=folder / "runs", quiet=True, report=False, **training.objects) as rec:
            rec.begin()
            saves = _Saves(folder, training, rec)
            samples = take_turns(saves.variants(), rounds, budget=60)
        dist.destroy_process_group()
    title = (
        f"weights and moments of a GPT of {training.parameters() / 1e6:.1f} M parameters "
        f"({saves.bytes() / 1e6:.0f} MB) on the CPU, torch on {threads} thread(s)"
    )
    table = Table(NAME, title, COLUMNS)
    reference = summary(samples[BARE])["min"]
    for name, values in samples.items():
        s: dict[str, Any] = summary(values)
        table.add(what=name, **s, ratio=s["min"] / reference)
    again = summary(samples[AGAIN])["min"]
    ours = summary(samples[OURS])["min"]
    allowed = GOAL * max(reference, again)
    table.targets.append(
        Target(
            f"at most {GOAL:g} times as long as without the layer",
            f"{ours / reference:.2f} times; the same again without it: {again / reference:.2f}",
            ours <= allowed,
        )
    )
    table.notes += [
        "what is measured is the call, until training goes on; writing the files, and digesting them, comes after",
        "a stager hands over the copy that is staged anyway: it is digested on a thread of its own",
    ]
    return table


class _Saves:
    """Saves of one training, each into a folder of its own."""

    def __init__(self, folder: Path, training: Training, rec: lineage.Recorder) -> None:
        self.folder, self.training, self.rec, self.count = folder, training, rec, 0
        self.stager = Stager()

    def state(self) -> dict[str, Any]:
        t = self.training
        return {"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}

    def tensors(self) -> list[Any]:
        held = self.training.optimizer.state.values()
        return [*self.training.model.parameters(), *(v for s in held for k, v in s.items() if k != "step")]

    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors())

    def variants(self) -> dict[str, Variant]:
        return {
            BARE: lambda: self._save(lambda: None),
            AGAIN: lambda: self._save(lambda: None),
            OURS: lambda: self._ours(self.stager),
            LIVE: lambda: self._ours(None),
            CLONED: lambda: self._save(lambda: [t.detach().clone() for t in self.tensors()]),
            HASHED: lambda: self._save(self._hash),
        }

    def _hash(self) -> None:
        import hashlib

        for t in self.tensors():
            hashlib.sha256(t.detach().numpy().data)

    def _start(self, stager: Any = None) -> tuple[Any, Path]:
        import torch.distributed.checkpoint as dcp

        self.count += 1
        path = self.folder / f"step-{self.count}"
        return dcp.async_save(self.state(), checkpoint_id=path, async_stager=stager), path

    def _save(self, beside: Callable[[], object]) -> float:
        began = time.perf_counter()
        kept = beside()
        future, _ = self._start()
        took = time.perf_counter() - began
        future.result()
        del kept
        return took

    def _ours(self, stager: Any) -> float:
        began = time.perf_counter()
        with self.rec.saving(self.count + 1, stager=stager) as save:
            future, path = self._start(stager)
        took = time.perf_counter() - began
        future.result()
        save.commit(path)
        w = self.rec.begin()
        if w is not None:
            w.tasks.drain(60.0)  # so that the next turn has the machine to itself
        return took
