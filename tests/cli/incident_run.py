"""Real runs that break, and the command line beside them, for the tests of incidents and recoveries."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from lineage.ledger.reader import Ledger
from tests.recorder.loop import Loop, attach, only
from tests.warm import Warm

MAIN = "from lineage.cli import main; main()"
BAD = 24
"""The step whose loss is not a number."""


class Case:
    """A run in a folder of its own, and what people do with it."""

    def __init__(self, folder: Path, reader: Warm) -> None:
        self.folder, self._reader = folder, reader
        self.root = folder / "runs"

    @property
    def ledger(self) -> Ledger:
        """The run's ledger as it stands now."""
        return only(self.root)

    def train(self, until: int, *, every: int = 5, spoil: int = BAD, **options: Any) -> Loop:
        """Train, saving every few steps, from nothing or from `resumed_from`."""
        source = options.get("resumed_from")
        loop = Loop().load(source) if source else Loop()
        with attach(loop, self.root, **options) as rec:
            for step in range(loop.done + 1, until + 1):
                loop.run(rec, step, spoil=spoil)
                if step % every == 0:
                    rec.checkpoint(loop.save(self.checkpoint(step)), step=step)
        return loop

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.folder / f"ck-{step}"

    def run(
        self, *arguments: str | Path, code: str = MAIN, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own, in the run's folder."""
        env = {**os.environ, "COLUMNS": "200", **environ}
        return self._reader.run(["-c", code, *map(str, arguments)], cwd=self.folder, env=env)

    def ok(self, *arguments: str | Path) -> str:
        """What a command prints that must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def walk(self) -> dict[str, Any]:
        """The checklist as data."""
        done = self.run("incident", self.ledger.path, "--json")
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
