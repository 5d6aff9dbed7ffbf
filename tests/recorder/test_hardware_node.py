"""The kernel's log and the scheduler's nodes, read as the machine gives them: real files, real processes."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from lineage.recorder.hardware import scheduler
from lineage.recorder.hardware.kernel_log import KMSG, KernelLog

OOM = "Out of memory: Killed process 4711 (python) total-vm:1kB"


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def line(text: str, seq: int, ago: float = 0.0) -> str:
    """A line as /dev/kmsg gives it, with a value that belongs to it."""
    return f"6,{seq},{int((uptime() - ago) * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


def program(folder: Path, name: str, text: str) -> None:
    """Put a program of that name first on the path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path of programs, but for the shell that runs them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder


def test_only_what_is_logged_after_the_start_is_read_and_each_line_once(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text(line(OOM.replace("4711", "1"), 1, ago=100))
    log = KernelLog(kmsg)
    log.open()
    assert log.source == str(kmsg)
    with kmsg.open("a") as f:
        f.write(line("usb 1-1: new device", 2) + line(OOM, 3))
    (found,) = log.read()
    about, event = found
    assert (event.category, event.code, event.pid) == ("process", "oom killed", 4711)
    assert event.when is not None
    assert event.when.at is not None
    assert "4711" not in " ".join(about[4:])  # lines that differ in numbers alone are about one thing
    assert list(log.read()) == []
    log.close()


def test_a_time_ahead_of_this_machine_s_clock_is_now(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    log = KernelLog(kmsg)
    log.open()
    kmsg.write_text(line(OOM, 1, ago=-3600))
    (found,) = log.read()
    assert found[1].when is not None
    assert found[1].when.at is not None
    assert abs(found[1].when.at.timestamp() - time.time()) < 600
    log.close()


def test_the_kernel_log_of_this_machine_is_read_or_its_refusal_is_said() -> None:
    """/dev/kmsg itself, as it is here."""
    log = KernelLog(KMSG)
    log.open()
    assert (log.source is None) == (len(log.refused) == 3)
    assert len(list(log.read(now=True))) >= 0
    log.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not read")
def test_somebody_who_may_not_read_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission refused by the kernel, and the programs' own refusals beside it."""
    with tempfile.TemporaryDirectory() as made:  # pytest's folders cannot be entered by others
        folder = Path(made)
        folder.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
        (folder / "kmsg").touch(mode=0o600)
        program(
            folder, "journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2"
        )
        program(
            folder, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
        )
        log = KernelLog(folder / "kmsg")
        os.seteuid(65534)
        try:
            log.open()
        finally:
            os.seteuid(0)
        assert log.refused == [
            f"{folder}/kmsg: Permission denied",
            "journalctl: No journal files were opened due to insufficient permissions.",
            "dmesg: read kernel buffer failed: Operation not permitted",
        ]
        assert (log.source, list(log.read(now=True))) == (None, [])


def test_journalctl_is_asked_where_the_device_is_not_there(tmp_path: Path, path: Path) -> None:
    """Entries since the last question, in microseconds since 1970; what is no entry is left."""
    later = int((time.time() + 5) * 1e6)
    entry = f'{{"MESSAGE":"{OOM}","__REALTIME_TIMESTAMP":"{later}"}}'
    program(
        path,
        "journalctl",
        f"""echo "$@" >> {tmp_path}/asked
case "$*" in *--since*) echo '{entry}'; echo 'torn {{'; echo '{{"MESSAGE":[1]}}';; *) echo '{{}}';; esac""",
    )
    log = KernelLog(tmp_path / "none")
    log.open()
    assert log.source == "journalctl"
    (found,) = log.read(now=True)
    assert (found[1].code, int(found[1].when.at.timestamp() * 1e6)) == ("oom killed", later)  # type: ignore[union-attr]
    assert list(log.read()) == []  # a command is asked rarely
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 2
    assert all(a.startswith("-k -q --no-pager -o json") for a in asked)


def test_dmesg_is_asked_where_nothing_else_is_there(tmp_path: Path, path: Path) -> None:
    """Its whole buffer comes back each time: only lines that are newer than the last one count."""
    program(path, "journalctl", "exit 1")
    buffer = tmp_path / "buffer"
    buffer.write_text(f"[    5.000001] {OOM}\n")
    program(path, "dmesg", f"cat {buffer}")
    log = KernelLog(tmp_path / "none")
    log.open()
    assert log.source == "dmesg"
    assert list(log.read(now=True)) == []
    with buffer.open("a") as f:
        f.write(f"[{uptime():12.6f}] {OOM}\n")
    assert [e.code for _, e in log.read(now=True)] == ["oom killed"]
    assert list(log.read(now=True)) == []


def test_a_command_that_hangs_is_given_up(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineage.recorder.hardware.kernel_log.PATIENCE", 0.1)
    program(path, "journalctl", "exec sleep 60")
    program(path, "dmesg", "exit 1")
    log = KernelLog(tmp_path / "none")
    log.open()
    assert log.refused[1:] == [
        "journalctl: no answer within 0.1 s",
        "dmesg: it shows no line of the kernel",
    ]


def test_slurm_s_nodes_come_from_the_environment() -> None:
    found, why = scheduler.nodes(
        {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[01-03,07]", "SLURM_RESTART_COUNT": "2"}
    )
    assert found is not None
    assert (found.nodes, found.code, found.text) == (
        ("n01", "n02", "n03", "n07"),
        "nodes",
        "node list of 4 nodes",
    )
    assert (dict(found.values), why) == ({"job": "77", "restarts": "2"}, None)


def test_slurm_s_nodes_come_from_scontrol_where_the_environment_lacks_them(path: Path) -> None:
    program(path, "scontrol", 'echo "JobId=$4 JobName=a ReqNodeList=(null) NodeList=gpu[1-2] BatchHost=gpu1"')
    found, why = scheduler.nodes({"SLURM_JOB_ID": "77"})
    assert found is not None
    assert (found.nodes, why) == (("gpu1", "gpu2"), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "Invalid job id"),
        ("echo 'JobId=77 NodeList=(null)'", "did not name them"),
        ("exit 0", "no output"),
    ],
)
def test_a_scontrol_that_names_no_nodes_is_said(path: Path, text: str, why: str) -> None:
    program(path, "scontrol", text)
    found, said = scheduler.nodes({"SLURM_JOB_ID": "77"})
    assert found is None
    assert why in (said or "")


def test_outside_a_job_of_slurm_nothing_is_said_and_a_list_that_cannot_be_read_is() -> None:
    assert scheduler.nodes({}) == (None, None)
    found, why = scheduler.nodes({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[01-"})
    assert found is None
    assert "LIN-E006" in (why or "")
