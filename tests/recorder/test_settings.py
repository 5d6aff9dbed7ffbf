"""Settings: each does what it says; what is asked for in vain is said and left out."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lineage
from lineage.recorder.settings import SETTINGS, SHARED, resolve


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(f"LINEAGE_{name.upper()}", raising=False)


def test_an_argument_wins_over_a_variable_and_a_variable_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lineage.toml").write_text('exit_timeout = 3\ndir = "from-file"\nprobes = false\n')
    monkeypatch.setenv("LINEAGE_EXIT_TIMEOUT", "2.5")
    monkeypatch.setenv("LINEAGE_DIR", "from-variable")
    found = resolve({"dir": Path("from-argument")}, start=tmp_path)
    assert (found.dir, found.exit_timeout, found.probes, found.quiet) == ("from-argument", 2.5, False, False)
    assert [found.sources[n] for n in ("dir", "exit_timeout", "probes", "quiet")] == [
        "argument",
        "LINEAGE_EXIT_TIMEOUT",
        str(tmp_path / "lineage.toml"),
        "default",
    ]
    assert found.problems == ()


@pytest.mark.parametrize("value", ["environment", "batches", "diffs", "logs", "hosts"])
def test_share_refuses_what_it_would_not_do_with_what_it_takes(value: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"share takes text and nothing else: {value} goes to no tracker"):
        resolve({"share": ["text", value]}, start=tmp_path)
    assert resolve({"share": list(SHARED)}, start=tmp_path).share == ("text",)
    assert value not in SETTINGS["share"].doc


def test_a_file_beside_training_code_cannot_share(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.lineage]\nshare = ["text"]\n')
    found = resolve(start=tmp_path)
    assert found.share == ()
    (problem,) = found.problems
    assert (
        problem
        == f"{tmp_path / 'pyproject.toml'} may not set share, since it lies beside training code; "
        + ("it is left out")
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "treu"),
        ("step_base", "2"),
        ("exit_timeout", "soon"),
        ("exit_timeout", "-1"),
        ("on_alarm", "stop"),
        ("share", "diffs"),
        ("run_id", "../up"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_and_the_default_holds(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LINEAGE_{name.upper()}", text)
    found = resolve(start=tmp_path)
    assert found.values[name] == SETTINGS[name].default
    (problem,) = found.problems
    assert problem.startswith(f"{name} of LINEAGE_{name.upper()} is left out: ")
    assert text in problem


def test_a_name_that_is_no_setting_is_said_with_the_one_that_was_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lineage.toml").write_text("exit_timout = 3\n")
    (problem,) = resolve(start=tmp_path).problems
    assert problem == (
        f"no setting is called 'exit_timout', which {tmp_path / 'lineage.toml'} gives; did you mean exit_timeout?"
    )
    with caplog.at_level(logging.WARNING, "lineage"):
        rec = lineage.attach(None, dir=tmp_path / "runs", report_=False, share=["batches"], quiet=True)
    rec.close()
    said = " ".join(r.getMessage() for r in caplog.records)
    assert "no setting is called 'report_', which an argument gives; did you mean report?" in said
    assert "share takes text and nothing else: batches" in said


def test_doctor_lists_what_is_asked_for_in_vain(tmp_path: Path) -> None:
    (tmp_path / "lineage.toml").write_text('share = ["text"]\n')
    done: Any = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "doctor", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "may not set share" in json.loads(done.stdout)["problems"][0]
