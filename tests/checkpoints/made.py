"""Checkpoints that the real frameworks write, with tiny random models; and looking at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lineage.checkpoints import Contents, look
from lineage.cli.checkpoint import _plain

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
    try:
        for rank, process in enumerate(started):
            assert process.wait(timeout=300) == 0, (cwd / f"rank{rank}.log").read_text()[-3000:]
    finally:
        for process in started:  # a rank that waits for one that failed would wait on
            process.kill()


def stored(path: Path, name: str) -> str:
    """A copy of a folder or file in memory://, and its URL."""
    import fsspec

    store = fsspec.filesystem("memory")
    store.rm(f"/{name}", recursive=True) if store.exists(f"/{name}") else None
    for p in [path] if path.is_file() else sorted(path.rglob("*")):
        if p.is_file():
            store.pipe_file(f"/{name}/{p.relative_to(path.parent).as_posix()}", p.read_bytes())
    return f"memory://{name}/{path.name}"


def told(path: Path | str, **how: int) -> dict[str, object]:
    """All that is said of a checkpoint, but where it lies and what it cost to look."""
    found = _plain(look(path, **how))
    return {k: v for k, v in found.items() if k not in ("path", "bytes_read", "files_opened")}


def same_in_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Hold what is said of a checkpoint in a store against what is said of it here; only ranges are read there."""
    from fsspec.implementations.memory import MemoryFileSystem

    url = stored(path, "same")
    whole = MemoryFileSystem.cat_file

    def ranged(self: object, path: str, start: int | None = None, end: int | None = None) -> bytes:
        assert start is not None
        assert end is not None
        return bytes(whole(self, path, start=start, end=end))

    def refused(self: object, *args: object, **how: object) -> None:
        raise AssertionError("a file is opened whole")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cat_file", ranged)
        patch.setattr(MemoryFileSystem, "get_file", refused)
        patch.setattr(MemoryFileSystem, "cat", refused)
        found = told(url)
    assert found == told(path)
    return found


__all__ = [
    "HERE",
    "codes",
    "copy",
    "cut",
    "in_ranks",
    "look",
    "said",
    "same_in_store",
    "severity",
    "stored",
    "told",
]
