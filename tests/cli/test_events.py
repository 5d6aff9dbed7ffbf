"""`lineage events`, and events in `show`, `first-bad` and the report: beside the run, and never as a cause."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from lineage import report
from lineage.imports.events import Told, into_ledger, read
from lineage.ledger.reader import Ledger
from tests.imports.events.run import LATER, XID, Clock, at, syslog, write
from tests.warm import Warm

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
BAD = at(20, LATER)
"""When the step was recorded whose loss is no number."""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Rank 1 of the second segment, on node002, has a bad loss at step 20."""
    return write(tmp_path / "runs", Clock(monkeypatch))


@pytest.fixture
def cli(tmp_path: Path, warm_reader: Warm) -> Cli:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["-c", "from lineage.cli import main; main()", *map(str, arguments)]
        return warm_reader.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "400"})

    return run


def causes(text: str) -> list[str]:
    """Every place that speaks of a cause other than to say that it is not shown."""
    return [
        m[0] for m in re.finditer(r".{0,40}\bcaus(?:e|ed|es|ing)\b.{0,20}", text, re.I) if not _denied(m[0])
    ]


def _denied(text: str) -> bool:
    return bool(re.search(r"not shown to be the cause|\bno cause|caused_by", text))


def messages(tmp_path: Path) -> Path:
    """Events at the bad step on its node and on another, an hour earlier, and on a machine of another job."""
    path = tmp_path / "messages"
    path.write_text(
        "\n".join(
            [
                syslog(BAD - timedelta(seconds=4), XID),
                syslog(BAD + timedelta(seconds=30), "ib0: link is down", "node001"),
                syslog(BAD - timedelta(hours=1), "python[1003]: segfault at 0"),
                syslog(BAD, "NVRM: Xid (PCI:0000:08:00): 48, pid=77, DBE", "node900"),
            ]
        )
        + "\n"
    )
    return path


def test_importing_says_what_was_read_placed_and_refused(ledger: Ledger, tmp_path: Path, cli: Cli) -> None:
    """A hostile dump beside a good log: the log is imported, the dump is reported, and the exit code is 1."""
    evil = tmp_path / "_dump_0"
    evil.write_bytes(pickle.dumps({"entries": [], "x": os.getcwd}))
    done = cli("events", "import", messages(tmp_path), evil, "--into", ledger.path)
    assert done.returncode == 1, done.stderr
    assert "messages (kernel): 4 lines read, 4 events, 4 new, 0 there already" in done.stdout
    assert "2 placed in a segment, 2 in none" in done.stdout
    assert "LIN-E001: 1 in no segment: no segment of this run has a rank on n-" in done.stdout
    assert "not read: LIN-E005: _dump_0" in done.stdout
    again = cli("events", "import", messages(tmp_path), "--into", ledger.path, "--json")
    assert again.returncode == 0
    (file,) = json.loads(again.stdout)["files"]
    assert (file["new"], file["known"], file["placed"]) == (0, 4, 2)
    only = cli("events", "import", evil, "--into", ledger.path)
    assert only.returncode == 2
    assert "LIN-E005" in only.stderr


def test_events_are_listed_with_their_steps_and_what_is_not_sure(
    ledger: Ledger, tmp_path: Path, cli: Cli
) -> None:
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    done = cli("events", "show", ledger.path)
    assert done.returncode == 0, done.stderr
    assert "3 faults, 1 warning; 2 in no segment of this run" in done.stdout
    assert "between step 19 and 20" in done.stdout
    assert "not sure: how far its clock is from the run's is not known (4 events)" in done.stdout
    data = json.loads(cli("events", "show", ledger.path, "--json").stdout)
    placed = {e["event"]["code"]: e for e in data}
    assert (placed["79"]["segment"], placed["79"]["ranks"], placed["79"]["placed_by"]) == (2, [0], "process")
    assert placed["48"]["segment"] is None
    assert causes(done.stdout) == []


def test_first_bad_tells_events_of_that_time_and_node_apart_and_as_no_cause(
    ledger: Ledger, tmp_path: Path, cli: Cli
) -> None:
    """What came at the bad step stands under its own heading; what came an hour before does not stand there."""
    before = cli("first-bad", ledger.path)
    assert "at the same time" not in before.stdout
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    done = cli("first-bad", ledger.path)
    assert done.returncode == 1, done.stderr
    body, _, beside = done.stdout.partition("at the same time (not shown to be the cause):")
    assert "rank 1, step 20" in body
    assert "79" not in body
    assert "fault: xid 79" in beside
    assert (
        "(4 s before the step was recorded, rank 0; same time, same node; not shown to be the cause)"
        in beside
    )
    assert (
        "30 s after the step was recorded, rank 2, 3; same time, another node; not shown to be the cause"
        in beside
    )
    assert "segfault" not in beside
    told = json.loads(cli("first-bad", ledger.path, "--json").stdout)
    assert len(told["events_at_that_time"]) == 3
    assert causes(done.stdout) == []


@pytest.mark.parametrize("command", ["show", "first-bad", "verdict"])
def test_no_output_says_that_an_event_is_a_cause(
    ledger: Ledger, tmp_path: Path, cli: Cli, command: str
) -> None:
    """With a fault at the very step of the bad value, the word stands only where it is denied."""
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    for arguments in ((command, ledger.path), (command, ledger.path, "--json")):
        done = cli(*arguments)
        assert done.stdout
        assert causes(done.stdout) == []


def test_a_verdict_is_the_same_with_and_without_events(ledger: Ledger, tmp_path: Path, cli: Cli) -> None:
    """What may be concluded rests on what the run recorded; an event beside it changes no claim."""
    without = json.loads(cli("verdict", ledger.path, "--json").stdout)
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    assert json.loads(cli("verdict", ledger.path, "--json").stdout) == without


def test_the_report_lists_events_in_a_section_of_their_own_and_on_the_timeline(
    ledger: Ledger, tmp_path: Path
) -> None:
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    text = report.markdown(Ledger(ledger.path))
    assert "Hardware and software events" in text
    assert "not shown to be the cause of anything" in text
    assert "beside the run: xid 79" in text
    about = [
        line for line in text.splitlines() if re.search(r"xid|segfault|link is down|at the same time", line)
    ]
    assert len(about) >= 4
    assert causes("\n".join(about)) == []


def test_a_tracker_s_report_has_events_without_their_words(ledger: Ledger, tmp_path: Path) -> None:
    into_ledger(ledger, [(messages(tmp_path), read(messages(tmp_path)))], Told())
    folder = tmp_path / "report"
    report.write_for_tracker(Ledger(ledger.path), folder)
    assert "fallen off the bus." in (folder / "report.md").read_text()
    assert "fallen off the bus." not in (folder / "tracker" / "report.md").read_text()
    assert "its words stay in the ledger" in (folder / "tracker" / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--zone", "Mars/Base"), "is no time zone"),
        (("--clock-offset", "soon"), "is no length of time"),
        (("--at", "2026-11-29T16:00:00"), "has no zone"),
        (("--at", "noon"), "is no time"),
        (("--map", "node"), "write field=column"),
        (("--format", "magic"), "is none of auto"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_words(
    ledger: Ledger, tmp_path: Path, cli: Cli, arguments: tuple[str, str], says: str
) -> None:
    done = cli("events", "import", messages(tmp_path), "--into", ledger.path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
