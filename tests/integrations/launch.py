"""Several ranks of one loop, each a real process, started as torchrun would start them."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from tests.warm import Warm


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def launch(warm: Warm, script: str, world: int, *arguments: object) -> list[str]:
    """Run a script of this folder on each rank, to its end. Returns what each rank said; raises where one failed."""
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = ["-m", f"tests.integrations.{script}", *map(str, arguments)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(world)]
        processes = [
            warm.start(
                command,
                stdout=f,
                stderr=f,
                env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)},
                cwd=Path(__file__).parents[2],
            )
            for r, f in enumerate(files)
        ]
        codes = [p.wait() for p in processes]
        for f in files:
            f.seek(0)
        said = [f.read() for f in files]
    assert not any(codes), "\n".join(
        f"rank {r} ended with {c}:\n{said[r][-3000:]}" for r, c in enumerate(codes)
    )
    return said
