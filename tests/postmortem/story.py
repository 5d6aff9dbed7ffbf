"""A real incident, from the alarm to its end: a broken sample, a replay that flips, a decision, a resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import lineage
from lineage.ledger.reader import Ledger
from tests.replay.cases import BAD, Case, at, spoiled

REPOSITORY = Path(__file__).parents[2]
MAIN = "from lineage.cli import main; main()"
BUILD = """
from tests.replay.cases import BAD, Case, at, spoiled
build = Case(batch=at(BAD, spoiled(3))).build
"""
HOSTILE = "<script>alert(1)</script> | *eval*"


class Story(Case):
    """One run in a folder of its own, and what people do with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(batch=at(BAD, spoiled(3)))
        self.folder = folder

    @property
    def ledger(self) -> Ledger:
        """The run's ledger as it stands now."""
        (found,) = (self.folder / "runs").iterdir()
        return Ledger(found)

    @property
    def path(self) -> str:
        """Where it lies."""
        return str(self.ledger.path)

    def go(self, until: int, *, resume: int | None = None, clip: float = 1.0) -> None:
        """Train to a step and save every fifth; from nothing, or from a saved step and without the broken sample."""
        model, optimizer = self.parts()
        source = None if resume is None else self.folder / f"ck-{resume}"
        if source is not None:
            state = torch.load(source / "state.pt", weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        given = {"model": model, "optimizer": optimizer, "config": {"lr": self.lr, "clip": clip}}
        options: dict[str, Any] = {"dir": self.folder / "runs", "quiet": True, "report": False}
        with lineage.attach(None, resumed_from=source, **given, **options) as rec:
            if clip != 1.0:
                rec.mitigate("grad_clip", before=1.0, after=clip, why="the norm", hypothesis="one batch")
            for step in range((resume or 0) + 1, until + 1):
                batch = self.given(step, 0) if resume is None else Case().given(step, 0)
                with rec.step(step, batch) as st:
                    optimizer.zero_grad()
                    loss = self.loss(model, batch)
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                    optimizer.step()
                    st.loss(loss)
                if step % 5 == 0:
                    path = self.folder / f"ck-{step}"
                    if not path.exists():
                        self.save(path, model, optimizer)
                    rec.checkpoint(path, step=step)

    def run(self, *words: str | Path, code: str = MAIN) -> subprocess.CompletedProcess[str]:
        """Run a command in the run's folder."""
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        command = [sys.executable, "-c", code, *map(str, words)]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def ok(self, *words: str | Path) -> str:
        """What a command prints that must not fail."""
        done = self.run(*words)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout

    def postmortem(self, out: Path) -> str:
        """Make the page."""
        done = self.run("postmortem", os.path.relpath(self.path, self.folder), "--out", out)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def to_the_end(self) -> None:
        """Everything that people and machines do until the incident is closed."""
        self.go(16)
        self.ok(
            "incident", "note", self.path, "--owner", "ann", "--told", f"eval team: {HOSTILE}", "--by", "bo"
        )
        self.ok("incident", "preserve", self.path)
        (self.folder / "mine.py").write_text(BUILD)
        for change in ("without-sample:3", "deterministic"):
            self.ok("replay", self.path, "--with", "mine:build", "--change", change)
        flips = next(r.payload for r in self.ledger.of("replay") if r.payload.flips)
        words = ("--family", "data", "--text", "sample 3 of step 12 is NaN", "--by", "ann")
        self.ok("incident", "cause", self.path, "--replay", flips.uid, *words)
        clip = "grad_clip=0.5 because the norm spiked; hypothesis: one batch; smallest: 0.9 did not do"
        decided = (
            "--owner",
            "ann",
            "--told",
            "ops: resumes",
            "--price",
            "2.5",
            "--currency",
            "EUR",
            "--by",
            "bo",
        )
        self.ok("recover", self.path, "--mitigate", clip, *decided, "--yes")
        self.go(40, resume=10, clip=0.5)
        self.ok("recover", "compare", self.path, "--at", "1,5,20", "--record")
        self.ok("recover", "declare", self.path, "--at", "1,5", "--despite", "a toy", "--by", "ann")
        self.ok("incident", "close", self.path, "--why", "a check of samples is planned", "--by", "ann")
