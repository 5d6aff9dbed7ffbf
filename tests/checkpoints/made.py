"""Checkpoints that the real frameworks write, with tiny random models; and looking at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lineage.checkpoints import Contents, look

HERE = Path(__file__).parent


def codes(c: Contents) -> set[str]:
    return {f.code for f in c.findings}


def said(c: Contents, code: str) -> str:
    """All texts of a code, one per line."""
    return "\n".join(f.text for f in c.findings if f.code == code)


def severity(c: Contents, code: str) -> set[str]:
    return {f.severity for f in c.findings if f.code == code}


def copy(folder: Path, to: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(folder, to)
    return to


def cut(file: Path, *, keep: int | None = None) -> None:
    """Cut a file off at its middle."""
    os.truncate(file, file.stat().st_size // 2 if keep is None else keep)


def in_ranks(script: str, world: int, cwd: Path, *args: str) -> None:
    """Run a script in `world` processes that meet at a free port."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    path = cwd / "script.py"
    path.write_text(script)
    started = []
    for rank in range(world):
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        }
        log = (cwd / f"rank{rank}.log").open("w")
        argv = [sys.executable, str(path), *args]
        started.append(subprocess.Popen(argv, cwd=cwd, env=env, stdout=log, stderr=subprocess.STDOUT))
        log.close()
    for rank, process in enumerate(started):
        assert process.wait(timeout=300) == 0, (cwd / f"rank{rank}.log").read_text()[-3000:]


__all__ = ["HERE", "codes", "copy", "cut", "in_ranks", "look", "said", "severity"]
