"""Real processes over gloo, for tests. Each rank runs one function of its own and leaves what it returns."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

FSDP2_ON_CPU = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7)
"""Before that, FSDP2 asks streams of the CPU for events that they do not have."""
PRELOADED = ["pytest", "torch", "torch._dynamo", "torch.distributed.fsdp", "lineage.probes.probes"]
"""What the ranks are forked with, so that each does not import it anew."""
Body = Callable[[int, int], Any]


def run(body: Body, world: int, folder: Path) -> list[Any]:
    """Run `body(rank, world)` on `world` processes; returns what each returned (plain values)."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    mp.start_processes(_rank, (body, world, str(folder)), nprocs=world, start_method="forkserver")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def _rank(rank: int, body: Body, world: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    found = body(rank, world)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
