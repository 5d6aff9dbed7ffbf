"""The command runs a real suite in real sessions, and its exit code, table and page say what it found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import command, suites
from .suites import Suite

pytest.importorskip("safetensors")

SAVES = """
import numpy, safetensors.numpy

def test_saves(tmp_path):
    safetensors.numpy.save_file({"a": numpy.zeros(2)}, tmp_path / "a.safetensors")
"""
MIXED = """
import os, pathlib, random, subprocess, sys
import pytest, safetensors.numpy

def test_looks_at_what_is_wrapped():
    assert not hasattr(safetensors.numpy.save_file, "__lineage_original__")

def test_varies():
    counter = pathlib.Path(COUNTER)
    n = int(counter.read_text()) if counter.exists() else 0
    counter.write_text(str(n + 1))
    assert n not in (1, 2)

def test_a_child_of_the_session_runs_as_it_does(tmp_path):
    words = [sys.executable, "-c", "import safetensors.numpy; print('here')"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\\n", "")

def test_has_the_same_random_numbers(request):
    assert request.node.nodeid and random.random() == random.Random(request.node.nodeid).random()

def test_finds_its_copy_clean():
    assert not pathlib.Path("left").exists()
    pathlib.Path("left").mkdir()

@pytest.mark.xfail
def test_is_known_to_fail():
    assert False

@pytest.mark.skip(reason="not now")
def test_is_skipped():
    pass

@pytest.fixture
def broken():
    raise RuntimeError("in the fixture")

def test_has_no_fixture(broken):
    pass
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a suite of its own, which the command knows as `toy`."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    found = Suite("toy", "safetensors", select=["test_toy.py"], take=["test_toy.py"])
    monkeypatch.setitem(suites.SUITES, "toy", found)
    return folder


def _main(folder: Path, *more: str) -> int:
    words = ["toy", "--suite", str(folder), "--commit", "abc", "--observer", "plugin", "--rounds", "2", *more]
    return command.main(words)


def test_a_test_that_the_observer_changes_is_told_from_one_that_varies_anyway(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SAVES + MIXED.replace("COUNTER", repr(str(tmp_path / "counter")))
    (toy / "test_toy.py").write_text(text)
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nWords before.\n")
    assert _main(toy, "--page", str(page)) == command.DIFFERENT
    out = capsys.readouterr().out
    assert out.strip() in page.read_text()
    rows = {line.split("|")[1].strip(): line for line in out.splitlines() if line.startswith("|")}
    assert "**differs**" in rows["`test_toy.py::test_looks_at_what_is_wrapped`"]
    assert "varies without the observer too" in rows["`test_toy.py::test_varies`"]
    assert rows["passed"].split("|")[2:4] == [" 6 ", " 4 "]
    for outcome in ("error", "skipped", "xfailed"):
        assert rows[outcome].split("|")[2:4] == [" 1 ", " 1 "]
    assert rows["further processes observed"].split("|")[3] == " 1 "
    assert rows["calls observed"].split("|")[3] != " 0 "
    assert "Tests of abc" in out
    assert page.read_text().startswith("# A page\n\nWords before.\n")


def test_a_suite_in_which_the_observer_sees_nothing_proves_nothing(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (toy / "test_toy.py").write_text("def test_calls_no_tracker():\n    pass\n")
    assert _main(toy) == command.NOT_SHOWN
    assert "saw no call" in capsys.readouterr().err


def test_what_cannot_be_run_is_said_before_anything_runs(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(toy) == command.NOT_SHOWN
    assert "has no test_toy.py" in capsys.readouterr().err
    (toy / "test_toy.py").write_text(SAVES)
    assert _main(toy, "--python", str(toy / "no-python")) == command.NOT_SHOWN
    assert "cannot be asked" in capsys.readouterr().err
    assert command.main(["toy", "--suite", str(toy), "--python", sys.executable]) == command.NOT_SHOWN
    assert "say it with --commit" in capsys.readouterr().err


def test_a_section_of_a_page_is_replaced_by_a_later_run(tmp_path: Path) -> None:
    from . import page
    from .compare import Observed, Session

    shown = command.Shown(Suite("toy", "toy", ["t"], ["t"]), "1.0", "abc", {"python": "3"})
    shown.rounds = {
        "without": [Session({"t": "passed"}, exit=0)],
        "plugin": [Session({"t": "passed"}, exit=0, observed=Observed(calls=3))],
    }
    shown.differ = {"plugin": []}
    kept = tmp_path / "page.md"
    page.keep(kept, shown)
    shown.commit = "def"
    page.keep(kept, shown)
    text = kept.read_text()
    assert text.count("## toy 1.0") == 1
    assert "Tests of def" in text
    assert "Tests of abc" not in text
    shown.rounds["plugin"][0].observed = Observed(calls=3, failures=1, first_failure="KeyError: 'x'")
    assert shown.faults == [
        "the observer failed on 1 calls with `-p lineage.observe.pytest_plugin`: KeyError: 'x'"
    ]
