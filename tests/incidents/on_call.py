"""An engineer on call who has only the checklist: reads it, does what stands under `next:`, and reads it again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.warm import Warm

MAIN = "from lineage.cli import main; main()"
ITEM = re.compile(r"^[> ] +(\d+)  (done|part|todo|  - )  (.+)$")


@dataclass(frozen=True)
class Page:
    """One reading of the checklist."""

    text: str
    states: Mapping[str, str]
    """title of an item -> done, part, todo or -"""
    title: str | None
    """of what is to be done next; None where nothing is left"""
    lines: tuple[str, ...]
    """what stands under it, as it is printed"""

    def state(self, word: str) -> str:
        """The state of the item whose title begins so."""
        (found,) = [s for t, s in self.states.items() if t.startswith(word)]
        return found


def parse(text: str) -> Page:
    """Read what `lineage incident RUN` printed."""
    lines = text.splitlines()
    states = {m[3]: m[2].strip() for m in map(ITEM.match, lines) if m}
    at = next((i for i, line in enumerate(lines) if line.startswith("next: ")), None)
    if at is None:
        return Page(text, states, None, ())
    under = []
    for line in lines[at + 1 :]:
        if not line.startswith("    "):
            break
        under.append(line.strip())
    doing = tuple(line for line in under if not line.startswith("see "))
    return Page(text, states, lines[at].removeprefix("next: "), doing)


@dataclass
class OnCall:
    """Runs what is printed, in a folder, with a person's words where the checklist leaves room for them."""

    folder: Path
    reader: Warm
    words: Mapping[str, str]
    """what stands in a printed command -> what this person writes there"""
    trainer: Warm | None = None
    """for commands that import torch"""
    seen: list[str] = field(default_factory=list)
    """the commands that were run"""
    page: Page | None = None
    """the checklist as it was read last"""

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """One printed command, with its blanks filled in."""
        for blank, word in self.words.items():
            line = line.replace(blank, word)
        self.seen.append(line)
        first, *arguments = shlex.split(line)
        env = {**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
        if first == "lineage":
            heavy = arguments[:1] == ["replay"] and self.trainer is not None
            where = self.trainer if heavy and self.trainer is not None else self.reader
            return where.run(["-c", MAIN, *arguments], cwd=self.folder, env=env)
        assert first == "torchrun", line
        command = [sys.executable, "-m", "torch.distributed.run", *arguments]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def read(self, run: str) -> Page:
        """The checklist as it stands. Exit code 1 while something is left, 0 then."""
        done = self.run(f"lineage incident {run}")
        page = parse(done.stdout)
        assert done.returncode == (0 if page.title is None else 1), done.stdout + done.stderr
        self.page = page
        return page

    def walk(
        self, run: str, by_hand: Mapping[str, Callable[[Page], None]], until: str | None = None
    ) -> list[str]:
        """Do what is next until nothing is left, or until an item is next. Returns the titles, in their order.

        `by_hand`: the begin of an item's title -> what is done there in place of the printed lines. Where an item is
        still next after its commands were run, it fails: what was done must be recognised.
        """
        titles: list[str] = []
        page = self.page or self.read(run)
        while page.title is not None and not (until and page.title.startswith(until)):
            before = (page.title, page.lines)
            titles.append(page.title)
            assert page.lines, page.text
            hand = next((h for word, h in by_hand.items() if page.title.startswith(word)), None)
            if hand is not None:
                hand(page)
            else:
                for line in page.lines:
                    done = self.run(line)
                    codes = (0, 1, 4) if "lineage replay" in line else (0, 1)
                    assert done.returncode in codes, f"{line}\n{done.stdout}{done.stderr}"
            page = self.read(run)
            assert (page.title, page.lines) != before, f"it was done and is not recognised:\n{page.text}"
        return titles
