"""Every command that reads a damaged ledger says so and exits with 3; and `python -m lineage` is the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.recorder.loop import parent_run
from tests.warm import Warm

COMMANDS = ("show", "verdict", "diff", "first-bad", "report", "tree", "phases", "compare")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of which two lines are garbage."""
    base = tmp_path_factory.mktemp("damaged")
    ledger = parent_run(base / "runs", base / "ck")
    (journal,) = (ledger.path / "journal").rglob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"', b"'", 3)
    lines[8] = b"\x00\xff garbage\n"
    journal.chmod(0o600)
    journal.write_bytes(b"".join(lines))
    return ledger.path


@pytest.mark.parametrize("command", COMMANDS)
def test_damage_is_told_by_every_command(damaged: Path, command: str, warm_reader: Warm) -> None:
    """In text on the terminal; with --json on stderr, so that stdout stays JSON."""
    names = [str(damaged)] * (2 if command == "compare" else 1)
    env = {**os.environ, "LINEAGE_DIR": str(damaged.parent), "COLUMNS": "140"}
    start = ["-c", "from lineage.cli import main; main()", command, *names]
    said = warm_reader.run(start, cwd=damaged.parent, env=env)
    assert said.returncode == 3, said.stdout + said.stderr
    assert "damaged: " in said.stdout
    assert "line 6" in said.stdout
    assert "lineage verify" in said.stdout
    plain = warm_reader.run([*start, "--json"], cwd=damaged.parent, env=env)
    assert plain.returncode == 3
    json.loads(plain.stdout)
    assert "damaged: " in plain.stderr


def test_python_m_lineage_is_the_command(tmp_path: Path) -> None:
    """It prints what `lineage` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "lineage", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("runlineage ")
