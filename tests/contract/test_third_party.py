"""An adapter that another distribution brings: found by its entry point, used by all commands, held to the contract."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import lineage
import trackers
from tests.packaging.conftest import Installation
from trackers import plugins
from trackers.local import LocalTracker

from .conftest import EXAMPLE

LOOP = """
import sys, lineage
from sqlite_sink import SqliteRun

run = SqliteRun(sys.argv[1], "pretrain", config={"lr": 0.1})
rec = lineage.attach(run, dir=sys.argv[2], run_id="r", quiet=True, exit_timeout=120)
for step in (1, 2):
    with rec.step(step) as st:
        st.loss(1.0)
    run.log({"loss": 1.0}, step=step)
rec.close()
"""


@pytest.mark.slow
def test_a_loop_a_sync_and_a_pull_use_the_installed_adapter(with_sink: Installation, tmp_path: Path) -> None:
    page, ledgers = tmp_path / "runs.db", tmp_path / "ledgers"

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [with_sink.python, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    assert "Training goes on" not in python("-c", LOOP, str(page), str(ledgers))
    ledger = str(ledgers / "r")
    shown = json.loads(python("-m", "lineage", "sync", ledger, "--json"))[0]
    assert (shown["tracker"], shown["shown"], shown["problems"]) == ("sqlite_sink", 0, [])
    shutil.rmtree(ledgers / "r" / "delivered")  # as if nothing were noted as shown
    assert json.loads(python("-m", "lineage", "sync", ledger, "--json"))[0]["shown"] > 5
    python("-m", "lineage", "pull", f"sqlite_sink://{page}#pretrain", "--out", str(tmp_path / "pulled"))
    pulled = lineage.open_ledger(tmp_path / "pulled")
    roots = {r.payload.root for r in lineage.open_ledger(ledger).of("seal")}
    assert {r.payload.root for r in pulled.of("seal")} == roots != set()


@pytest.mark.slow
def test_the_example_keeps_the_contract_where_it_is_installed(
    with_sink: Installation, tmp_path: Path
) -> None:
    test = shutil.copy(EXAMPLE / "test_contract.py", tmp_path)
    done = subprocess.run(
        [with_sink.python, "-m", "pytest", test, "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^1\d passed", done.stdout.splitlines()[-1]), done.stdout


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Say what the installed distributions bring."""

    def bring(name: str, value: str) -> None:
        point = EntryPoint(name, value, plugins.GROUP)
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.GROUP else [])

    return bring


class Theirs:
    """A run of a tracker that an entry point is named after."""


Theirs.__module__ = "their_tracker.runs"


def test_a_run_without_an_adapter_is_said_and_recorded_in_the_ledger_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rec = lineage.attach(Theirs(), dir=tmp_path, run_id="r", quiet=True)
    with rec.step(1):
        pass
    rec.close()
    assert "no run of a known tracker" in caplog.text
    assert lineage.open_ledger(tmp_path / "r").damage == []


def test_an_adapter_that_cannot_be_loaded_is_said_with_its_distribution_and_training_goes_on(
    entry: Callable[[str, str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry("their_tracker", "their_tracker_absent:Adapter")
    assert trackers.kind_of(Theirs()) == "their_tracker"
    rec = lineage.attach(Theirs(), dir=tmp_path, run_id="r", quiet=True)
    with rec.step(1):
        pass
    rec.close()
    assert "their_tracker_absent" in caplog.text
    assert "records go to the ledger only" in caplog.text


def test_what_is_no_adapter_is_refused_by_what_it_lacks(entry: Callable[[str, str], None]) -> None:
    entry("their_tracker", "types:SimpleNamespace")
    with pytest.raises(TypeError):
        trackers.adapter("their_tracker", Theirs())
    entry("their_tracker", f"{__name__}:_half")
    with pytest.raises(TypeError, match=r"lacks alias, requested"):
        trackers.adapter("their_tracker", Theirs())


def _half(run: object) -> object:
    return SimpleNamespace(kind="their_tracker", show=print, publish=print, close=print)


def test_an_adapter_without_reopen_or_held_is_told_as_such(entry: Callable[[str, str], None]) -> None:
    entry("their_tracker", "trackers.local:LocalTracker")
    with pytest.raises(NotImplementedError, match="reopen"):
        plugins.reopened("their_tracker", None)
    with pytest.raises(trackers.TrackerRefused, match="held"):
        trackers.open_held("their_tracker", "x")


def test_an_adapter_itself_may_be_given_as_the_run(tmp_path: Path) -> None:
    class Mine(LocalTracker):
        kind = "mine"

    rec = lineage.attach(Mine(tmp_path / "page"), dir=tmp_path / "ledgers", run_id="r", quiet=True)
    with rec.step(1) as st:
        st.loss(1.0)
    rec.close()
    assert (tmp_path / "page" / "verdict.md").exists()
    assert lineage.open_ledger(tmp_path / "ledgers" / "r").last("run").payload.aliases[0].tracker == "local"


def test_an_object_that_answers_to_every_name_is_no_adapter() -> None:
    assert trackers.kind_of(MagicMock()) is None


def test_our_adapters_are_asked_first_and_no_entry_point_is_read_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(group: str) -> list[EntryPoint]:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(plugins, "entry_points", read)

    class Run:
        pass

    Run.__module__ = "wandb.sdk.wandb_run"
    assert trackers.kind_of(Run()) == "wandb"


def test_the_contract_needs_no_pytest_to_be_imported() -> None:
    code = "import sys, trackers.contract\nassert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=os.fspath(EXAMPLE.parents[1]))
