"""Servers that are slow, failing or gone, and a wandb-core that has died."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import wandb

import schemas
import trackers
from trackers.wandb_.adapter import WandbTracker
from trackers.wandb_.errors import is_away, masked, translated

from . import builders as b
from .conftest import finished

# Seconds between the client's own tries: a test has no minute to wait for a server that is back.
IMPATIENT = {f"x_{part}_retry_wait_max_seconds": 1 for part in ("file_stream", "file_transfer", "graphql")}


def core_pids() -> list[int]:
    """The wandb-core processes that this process started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if name.startswith("wandb-core") and state != "Z" and int(parent) == os.getpid():
            found.append(int(folder.name))
    return found


def stop(pid: int) -> None:
    """Stop a process, and wait until each of its threads stands still."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        if all(text.rpartition(")")[2].split()[0] == "T" for text in stats):
            return
    raise AssertionError(f"process {pid} did not stop")


def test_scalars_config_and_verdicts_wait_for_no_answer_of_the_server(start, backend, page):
    run = start(mode="online", id="r1", settings=IMPATIENT)
    tracker = WandbTracker(run)
    with backend.silent():  # who waited for an answer in here would wait for ever
        tracker.show(b.record(b.config(lr=0.1)), page)
        tracker.show(b.record(b.regime(0, 1)), page)
        tracker.show(b.record(b.verdict(1, loss_curve="broken")), page)
    run.finish()
    assert backend.runs["r1"].tags == ["lineage:broken"]
    assert backend.runs["r1"].values["lineage/regime/001"]["index"] == 0


@pytest.mark.parametrize("gone", ["503", "refusing"])
def test_a_server_gone_for_a_while_delays_nothing_and_receives_everything_later(start, backend, page, gone):
    run = start(mode="online", id="r1", settings=IMPATIENT)
    tracker = WandbTracker(run)
    if gone == "503":
        backend.status = 503
    else:
        backend.close()
    tracker.show(b.record(b.regime(0, 1)), page)  # both return although nothing arrives
    tracker.show(b.record(b.verdict(1, loss_curve="broken")), page)
    time.sleep(1)
    if gone == "503":
        backend.status = 0
    else:
        backend.open()
    run.finish()
    stored = backend.runs["r1"]
    assert stored.tags == ["lineage:broken"]
    assert stored.summary["lineage/status"] == "broken"
    assert [(r["lineage/step"], r["lineage/regime"]) for r in stored.history] == [(1, 0)]


def test_after_wandb_core_is_killed_records_are_unavailable_and_none_is_taken_for_shown(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.regime(0, 1)), page)
    (pid,) = core_pids()
    os.kill(pid, signal.SIGKILL)
    payloads = (b.verdict(1, loss_curve="broken"), b.regime(1, 9), b.checkpoint(9), b.seal(), b.config(lr=1))
    for payload in payloads * 2:
        with pytest.raises(trackers.TrackerUnavailable, match=r"lineage sync|confirm"):
            tracker.show(b.record(payload), page)
    with pytest.raises(trackers.TrackerUnavailable):
        tracker.publish(Path(__file__), "file.py")


def test_a_record_that_a_hanging_wandb_core_has_only_buffered_is_not_taken_for_shown(start, page):
    run = start(settings={"summary_timeout": 1})
    tracker = WandbTracker(run)
    note = b.record(schemas.Degraded(code="LIN-L001", part="probes", error="", consequence="none seen"))
    (pid,) = core_pids()
    stop(pid)
    try:
        with pytest.raises(trackers.TrackerUnavailable, match="confirm"):
            tracker.show(note, page)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert tracker.show(note, page)
    assert finished(run).summary["lineage/degraded"] == "LIN-L001: probes: none seen"


def test_a_record_that_failed_is_shown_in_full_when_it_is_sent_again(start, page, monkeypatch):
    run = start(tags=["mine"])
    tracker = WandbTracker(run)
    record = b.record(b.verdict(1, loss_curve="broken"))
    real = type(run).alert

    def reset(*args: object, **more: object) -> None:
        raise ConnectionResetError("core is gone")

    monkeypatch.setattr(type(run), "alert", reset)
    with pytest.raises(trackers.TrackerUnavailable, match="ConnectionResetError"):
        tracker.show(record, page)
    monkeypatch.setattr(type(run), "alert", real)
    tracker.show(record, page)
    log = finished(run)
    assert len(log.alerts) == 1
    assert (log.tags, log.summary["lineage/status"]) == (("mine", "lineage:broken"), "broken")


def test_the_outbox_survives_the_death_of_wandb_core(start, page):
    run = start()
    troubles, shown = [], []
    outbox = trackers.Outbox(
        WandbTracker(run),
        page,
        on_shown=lambda record, place: shown.append(record.id),
        on_trouble=lambda error, item, final: troubles.append((error, final)),
    )
    outbox.put(b.record(b.regime(0, 1)))
    assert outbox.drain(120) == 0
    (pid,) = core_pids()
    os.kill(pid, signal.SIGKILL)
    outbox.put(b.record(b.verdict(1, loss_curve="broken")))
    assert outbox.close(2) == 1
    assert len(shown) == 1
    assert {final for _, final in troubles} == {False}


def test_what_w_b_refuses_is_told_from_what_it_cannot_take_now():
    assert is_away(ConnectionResetError())
    assert is_away(TimeoutError())
    assert is_away(wandb.errors.CommError("slow"))
    assert is_away(wandb.errors.AuthenticationError("not logged in"))
    assert not is_away(ValueError("level must be one of"))
    assert not is_away(FileNotFoundError())
    assert not is_away(TypeError())


def test_a_refusal_s_text_masks_credentials_and_names_the_record():
    with (
        pytest.raises(trackers.TrackerRefused, match=r"the seal record 7.*https://host/x") as refused,
        translated("the seal record 7"),
    ):
        raise ValueError("cannot post to https://me:token@host/x")
    assert "token" not in str(refused.value)
    assert masked("no address") == "no address"
