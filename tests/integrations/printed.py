"""What the product prints of a run, and what it recorded of the newest resume."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import schemas
from lineage.cli.app import app
from lineage.cli.common import console
from lineage.ledger.reader import Ledger, find


class Told:
    """One ledger: its records, and the text of the commands on it."""

    def __init__(self, root: Path) -> None:
        (self.path,) = find(root)
        self.ledger = Ledger(self.path)

    def payloads(self, kind: str) -> list[Any]:
        """Payloads of a kind in the newest segment."""
        return [r.payload for r in self.ledger.of(kind, self.ledger.segments[-1].uid)]

    def components(self, rank: int = 0) -> dict[str, schemas.ComponentRestore]:
        """What the newest segment says of each component, on one rank."""
        uid = self.ledger.segments[-1].uid
        found = [
            r.payload for r in self.ledger.of("restore", uid) if r.rank == rank and r.payload.scope == "rank"
        ]
        return {c.component: c for c in found[-1].components}

    def statuses(self, rank: int = 0) -> dict[str, str]:
        """Component -> what became of it."""
        return {name: c.status for name, c in self.components(rank).items()}

    def changes(self) -> dict[str, schemas.Change]:
        """Concept -> the change that was found at the newest resume."""
        return {c.concept: c for p in self.payloads("drift") if p.moment != "in_run" for c in p.changes}

    def segment_verdict(self) -> schemas.Verdict:
        """The newest segment's verdict."""
        return self.payloads("verdict")[-1]  # type: ignore[no-any-return]

    def says(self, command: str, *more: str) -> str:
        """What a command prints of this run."""
        return printed(command, str(self.path), *more)[1]


def printed(command: str, *words: str) -> tuple[int, str]:
    """(exit code, text) of a command."""
    with wide(console):
        done = CliRunner(env={"NO_COLOR": "1"}).invoke(app, [command, *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


@contextlib.contextmanager
def wide(console: Any, columns: int = 300) -> Iterator[None]:
    """A console of that width, whatever the terminal was when the console was made."""
    before = console._width
    console.width = columns
    try:
        yield
    finally:
        console._width = before


def in_ranks(module: str, world: int, folder: Path, *words: str) -> None:
    """Run `python -m module FOLDER words` on several ranks, as torchrun would start them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    started = []
    for rank in range(world):
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "none",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        }
        log = (folder / f"log{rank}.txt").open("w")
        argv = [sys.executable, "-m", module, str(folder), *words]
        started.append(subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT))
        log.close()
    codes = [p.wait(timeout=600) for p in started]
    for rank, code in enumerate(codes):
        assert code == 0, (folder / f"log{rank}.txt").read_text()[-4000:]
