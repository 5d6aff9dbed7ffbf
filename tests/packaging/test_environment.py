"""Setting up says how far it is in a line at a time, and pip's own words only where it fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import REPOSITORY

PIP = """\
Looking in indexes: https://index.example/simple
Collecting torch==2.13.0 (from -c constraints.txt (line 3))
  Downloading https://index.example/torch-2.13.0-cp311-cp311-linux_x86_64.whl (190.1 MB)
Processing ./wheels/rich-14.0-py3-none-any.whl
Collecting rich>=13
  Downloading typer-0.16.0-py3-none-any.whl.metadata (15 kB)
  Downloading typer-0.16.0-py3-none-any.whl (46 kB)
Requirement already satisfied: pip in /venv
Installing collected packages: typer, rich, torch
"""


@pytest.fixture(scope="module")
def environment() -> ModuleType:
    """The set-up script as a module."""
    spec = importlib.util.spec_from_file_location("ci_environment", REPOSITORY / ".ci" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pip_s_lines_become_one_line_that_says_what_it_is_at(environment: ModuleType) -> None:
    progress, at = environment.Progress(), {}
    for line in PIP.splitlines():
        progress.take(line)
        at[line.strip().partition(" ")[0]] = progress.doing
    assert "downloading typer-0.16.0 (46 kB)" in at.values()
    assert progress.doing == "installing 3 packages"
    assert round(progress.megabytes, 3) == 190.146
    assert progress.text().count("\n") == 0


def test_a_failing_pip_gives_its_last_words_and_prints_nothing_before(
    environment: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path), "no-such-package==1")
    failed = environment.pip(Path(sys.executable), *asked)
    assert capsys.readouterr().out == ""
    assert "no-such-package" in "\n".join(failed.said)
    stop = environment.fail(failed, "pip could not install it.")
    assert "no-such-package" in capsys.readouterr().out
    assert "Run the same command again" in str(stop)
