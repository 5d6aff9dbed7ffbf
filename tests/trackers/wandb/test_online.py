"""The page of an online run, as a backend receives it, over several processes' worth of resumes."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import wandb

import schemas
import trackers
from trackers.wandb_.adapter import WandbTracker

from . import builders as b

PINNED = ["lineage/verdict"] if hasattr(wandb.Run, "pin_config_keys") else []


def wait_for(found: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def online(start, **more):
    return start(mode="online", id="r1", **more)


def test_after_a_resume_both_the_old_and_the_new_values_are_visible(start, backend):
    run = online(start, config={"learning_rate": 0.1, "grad_clip": 1.0, "opt": {"wd": 0.1, "eps": 1e-8}})
    tracker, page = WandbTracker(run), trackers.Page(b.RUN)
    first = b.record(b.config(learning_rate=0.1, grad_clip=1.0))
    tracker.show(first, page)
    tracker.show(b.record(b.regime(0, 1)), page)
    tracker.close()
    run.finish()

    run = online(start, resume="must")
    run.config.update({"learning_rate": 0.05, "grad_clip": 0.3, "opt": {"wd": 0.2}}, allow_val_change=True)
    tracker, page = WandbTracker(run), trackers.Page(b.RUN)  # a process that counts from 1 again
    second = b.record(b.config(learning_rate=0.05, grad_clip=0.3), segment=b.SECOND_SEGMENT)
    changes = b.drift(b.change("learning_rate", 0.1, 0.05), b.change("grad_clip", 1.0, 0.3))
    tracker.show(second, page)
    tracker.show(b.record(changes, segment=b.SECOND_SEGMENT), page)
    tracker.show(b.record(b.regime(1, 101, b.REGIME_TWO), segment=b.SECOND_SEGMENT), page)
    tracker.close()
    run.finish()

    values = backend.runs["r1"].values
    assert (values["learning_rate"], values["grad_clip"]) == (0.05, 0.3)
    drift = values["lineage/drift/002"]
    assert (drift["learning_rate"]["requested_before"], drift["learning_rate"]["requested_after"]) == (
        0.1,
        0.05,
    )
    assert (drift["grad_clip"]["effective_before"], drift["grad_clip"]["effective_after"]) == (1, 0.3)
    assert values["lineage/segments/001"]["config"] == first.payload.digest
    assert values["lineage/segments/002"]["config"] == second.payload.digest
    assert values["lineage/regime/001"]["from_step"] == 1
    assert values["lineage/regime/002"]["from_step"] == 101
    points = [
        (r["lineage/step"], r["lineage/regime"]) for r in backend.runs["r1"].history if "lineage/regime" in r
    ]
    assert points == [(1, 0), (101, 1)]


def test_records_shown_again_by_a_process_that_resumes_change_nothing(start, backend):
    records = [
        b.record(b.config(lr=0.1)),
        b.record(b.regime(0, 1)),
        b.record(b.regime(1, 20)),
        b.record(b.alarm(), rank=1, step=37),
        b.record(b.verdict(20, loss_curve="broken")),
        b.record(b.checkpoint(30)),
        b.record(b.seal()),
    ]

    def process(**more: Any) -> tuple[Any, ...]:
        run = online(start, **more)
        tracker, page = WandbTracker(run), trackers.Page(b.RUN)
        for record in records:
            tracker.show(record, page)
            run.log({"loss": 1.0})
        tracker.close()
        run.finish()
        stored = backend.runs["r1"]
        ours = {k: v for k, v in stored.values.items() if k.startswith("lineage/") and k != "lineage/state"}
        summary = {k: v for k, v in stored.summary.items() if k.startswith("lineage/")}
        points = [r["lineage/step"] for r in stored.history if "lineage/regime" in r]
        return ours, summary, points, stored.tags, len(backend.alerts), len(backend.artifacts), stored.pinned

    first = process(tags=["mine"])
    assert process(resume="must") == first
    assert first[2:] == ([1, 20, 30], ["mine", "lineage:broken"], 2, 1, PINNED)


def test_the_verdict_is_pinned_again_by_the_first_record_after_a_resume(start, backend):
    run = online(start)
    WandbTracker(run).show(b.record(b.verdict(1, loss_curve="broken")), trackers.Page(b.RUN))
    run.finish()
    run = online(start, resume="must")
    wait_for(lambda: backend.runs["r1"].pinned == [], 3)
    WandbTracker(run).show(b.record(b.config(lr=1)), trackers.Page(b.RUN))
    run.finish()
    stored = backend.runs["r1"]
    assert stored.pinned == PINNED
    assert stored.tags == ["lineage:broken"]


def test_an_artifact_holds_the_record_byte_for_byte_and_its_parent_is_an_input(start, backend):
    run = online(start)
    tracker, page = WandbTracker(run), trackers.Page(b.RUN)
    parent = b.record(b.checkpoint(100))
    tracker.show(parent, page)
    run.finish()
    stored = backend.artifact("step-100")
    assert stored.committed
    assert stored.uploads["record.json"] == parent.to_line()
    assert json.loads(stored.given["metadata"])["checkpoint"] == parent.payload.uid
    reference = stored.manifest["contents"]["checkpoint"]
    assert reference["ref"] == reference["digest"] == f"ckpt://{parent.payload.uid}#{b.ROOT}"

    run = start(mode="online", id="r2")  # a new tracker run for the same lineage run
    tracker = WandbTracker(run)
    begun = b.segment(b.SECOND_SEGMENT, start="resume", parent_checkpoint=parent.payload.uid, parent_step=100)
    tracker.show(b.record(begun, segment=b.SECOND_SEGMENT), page)
    child = b.checkpoint(200, parents=(parent.payload.uid,), digest="sha256:" + "66" * 32)
    tracker.show(b.record(child, segment=b.SECOND_SEGMENT), page)
    run.finish()
    assert backend.uses == [stored.id]
    assert backend.artifact("step-200").version == 1


def test_a_quarantine_is_a_further_version_of_the_artifact_that_takes_over_its_aliases(start, backend):
    """So a person who uses it by its alias sees the mark. Also from a process that did not show the checkpoint."""
    run, page = online(start), trackers.Page(b.RUN)
    made = b.record(b.checkpoint(100))
    WandbTracker(run).show(made, page)
    run.finish()
    assert backend.artifact(made.payload.uid).version == 0

    run = online(start, resume="must")
    mark = schemas.CheckpointMark(checkpoint=made.payload.uid, mark="quarantined", why="saved after step 90")
    WandbTracker(run).show(b.record(mark), page)
    run.finish()
    stored = backend.artifact(made.payload.uid)
    assert (stored.version, stored.committed) == (1, True)
    assert "step-100" in stored.aliases
    metadata = json.loads(stored.given["metadata"])
    assert metadata["quarantined"] is True
    assert metadata["marks"]["quarantined"]["why"] == "saved after step 90"
    assert json.loads(stored.uploads["marks.json"]) == metadata["marks"]
    if "tags" in inspect.signature(wandb.sdk.wandb_run.Run.log_artifact).parameters:
        assert [t["tagName"] for t in stored.given["tags"]] == ["quarantined"]


def test_a_parent_that_the_server_does_not_know_stops_nothing(start, backend):
    run = online(start)
    child = b.record(b.checkpoint(200, parents=(b.uid(),)))
    assert WandbTracker(run).show(child, trackers.Page(b.RUN))
    run.finish()
    assert backend.uses == []
    assert backend.artifact("step-200").committed


@pytest.mark.slow
def test_a_published_file_is_uploaded_and_uploaded_again_when_it_has_changed(start, backend, tmp_path):
    run = online(start)
    tracker, report = WandbTracker(run), tmp_path / "report.md"
    for text in ("first", "second"):
        report.write_text(text)
        tracker.publish(report, "report.md")
        expected = text.encode()
        assert wait_for(lambda expected=expected: backend.files.get("r1/lineage/report.md") == expected)
    run.finish()


def test_an_alias_names_server_and_page_without_credentials(start, backend, monkeypatch):
    run = online(start)
    alias = WandbTracker(run).alias()
    assert (alias.id, alias.project, alias.uri) == ("r1", "team/p", backend.url)
    assert alias.url.endswith("/team/p/runs/r1")
    run.finish()

    class Settings:
        base_url = "https://user:secret@wandb.example"
        entity = "team"
        mode = "online"

    class Run(wandb.Run):
        id, project, offline, disabled, settings = "r1", "p", False, False, Settings()
        url = "https://user:secret@wandb.example/team/p/runs/r1?apiKey=secret"
        config = MappingProxyType({})

        def __init__(self) -> None:
            """Begin nothing."""

    alias = WandbTracker(Run()).alias()
    assert (alias.uri, alias.url) == ("https://wandb.example", "https://wandb.example/team/p/runs/r1")
