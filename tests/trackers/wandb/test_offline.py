"""What stands on the page of an offline run, read back from its log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import wandb

import schemas
import trackers
from schemas import Coverage, Degraded, FirstBad, TrackerNote
from trackers.wandb_ import offline_log
from trackers.wandb_.adapter import WandbTracker

from . import builders as b
from .conftest import finished, settings

PINS = hasattr(wandb.Run, "pin_config_keys")


def test_both_sides_of_a_change_stand_beside_each_other_under_the_segment_s_number(start, page):
    run = start(config={"optimizer": {"lr": 0.1}})
    tracker = WandbTracker(run)
    first, second = b.record(b.config(lr=0.1)), b.record(b.config(lr=0.05), segment=b.SECOND_SEGMENT)
    changes = b.drift(b.change("learning_rate", 0.1, 0.05), b.change("grad_clip", 1.0, float("inf")))
    tracker.show(first, page)
    tracker.show(second, page)
    place = tracker.show(b.record(changes, segment=b.SECOND_SEGMENT), page)
    log = finished(run)
    assert place.endswith("#lineage/drift/002")
    assert log.config["lineage/segments/001"]["config"] == first.payload.digest
    assert log.config["lineage/segments/002"]["config"] == second.payload.digest
    drift = log.config["lineage/drift/002"]
    assert drift["learning_rate"] == {
        "requested_before": 0.1,
        "requested_after": 0.05,
        "effective_before": 0.1,
        "effective_after": 0.05,
        "declared": True,
    }
    assert drift["grad_clip"]["effective_after"] == "+Infinity"
    assert drift["confounded"] is True
    assert log.config["optimizer"] == {"lr": 0.1}


def test_the_run_s_own_config_is_returned_without_our_keys_and_as_a_copy(start, page):
    run = start(config={"lr": 0.1, "model": {"layers": 2}})
    tracker = WandbTracker(run)
    tracker.show(b.record(b.config(lr=0.1)), page)
    found = tracker.requested()
    found["model"]["layers"] = 3
    assert tracker.requested() == {"lr": 0.1, "model": {"layers": 2}}
    run.finish()


def test_a_broken_verdict_is_seen_in_tag_summary_pinned_text_and_one_alert(start, page):
    run = start(tags=["mine"], notes="my notes")
    tracker = WandbTracker(run)
    broken = b.verdict(101, loss_curve="broken", bitwise="holds")
    tracker.show(b.record(broken), page)
    tracker.show(b.record(broken), page)
    log = finished(run)
    assert log.tags == ("mine", "lineage:broken")
    assert log.notes == "my notes"
    assert log.summary["lineage/status"] == "broken"
    assert log.summary["lineage/broken_since_step"] == 101
    assert log.summary["lineage/claims/loss_curve"] == "broken"
    assert log.summary["lineage/claims/bitwise"] == "holds"
    assert log.config["lineage/verdict"] == trackers.markdown(broken)
    assert log.pinned == (["lineage/verdict"] if PINS else [])
    assert [(a.level, a.title) for a in log.alerts] == [("ERROR", "Lineage: 1 claim broken since step 101")]


def test_another_broken_state_alerts_again(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.verdict(101, loss_curve="broken")), page)
    tracker.show(b.record(b.verdict(101, loss_curve="broken", ablation="broken")), page)
    assert len(finished(run).alerts) == 2


def test_tags_of_ours_go_when_no_longer_true_and_the_user_s_stay(start, page):
    run = start(tags=["mine"])
    tracker = WandbTracker(run)
    tracker.show(b.record(b.verdict(5, loss_curve="broken")), page)
    run.tags = (*run.tags, "late")
    tracker.show(b.record(b.verdict(loss_curve="not_shown")), page)
    not_shown = run.tags
    tracker.show(b.record(b.verdict(loss_curve="holds")), page)
    log = finished(run)
    assert not_shown == ("mine", "late", "lineage:not_shown")
    assert log.tags == ("mine", "late")
    assert log.summary["lineage/broken_since_step"] is None
    assert len(log.alerts) == 1


def test_an_older_verdict_that_is_shown_late_does_not_replace_the_newer_one(start, page):
    run = start()
    tracker = WandbTracker(run)
    older, newer = b.record(b.verdict(loss_curve="holds")), b.record(b.verdict(7, loss_curve="broken"))
    tracker.show(newer, page)
    tracker.show(older, page)
    assert finished(run).summary["lineage/status"] == "broken"


def test_a_verdict_on_one_checkpoint_leaves_the_run_s_flag_alone(start, page):
    run = start()
    assert (
        WandbTracker(run).show(b.record(b.verdict(7, f"checkpoint:{b.uid()}", bitwise="broken")), page)
        is None
    )
    assert finished(run).tags == ()


@pytest.mark.skipif(not PINS, reason="this wandb cannot pin config keys")
def test_pins_of_the_user_s_that_the_log_shows_are_kept(start, page):
    run = start(config={"card": "text"})
    run.pin_config_keys(["card"])
    for n in range(40):  # fills a block of the log, so that the pin is on disk
        run.config.update({f"filler{n}": "x" * 2000})
    deadline = 100
    while not offline_log.pinned_keys(Path(run.settings.sync_file)) and deadline:
        run.summary.get("wait")
        deadline -= 1
    WandbTracker(run).show(b.record(b.verdict(loss_curve="holds")), page)
    assert finished(run).pinned == ["lineage/verdict", "card"]


def test_the_onset_of_a_non_finite_value_is_said_in_words_and_alerts_once_per_segment(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.alarm(), rank=1, step=37), page)
    tracker.show(b.record(b.alarm(signal="loss"), rank=0, step=38), page)
    assert tracker.show(b.record(b.alarm(phase="end"), rank=1, step=40), page) is None
    tracker.show(b.record(b.alarm("out_of_range", "loss", 9.5), step=30), page)
    log = finished(run)
    assert log.summary["lineage/first_non_finite"] == "rank 1, step 37: gradient norm is NaN"
    assert [(a.level, a.title) for a in log.alerts] == [
        ("WARN", "Lineage: non-finite gradient norm, rank 1, step 37"),
        ("WARN", "Lineage: out of range loss, rank 0, step 30"),
    ]


def test_an_earlier_onset_that_arrives_later_becomes_the_first(start, page):
    run = start()
    tracker = WandbTracker(run)
    tracker.show(b.record(b.alarm(), rank=0, step=38), page)
    tracker.show(b.record(b.alarm(), rank=1, step=37), page)
    assert finished(run).summary["lineage/first_non_finite"].startswith("rank 1, step 37:")


def test_quiet_kinds_are_lines_in_the_summary(start, page):
    run = start()
    tracker = WandbTracker(run)
    cell = {
        "rank": 1,
        "step": 1037,
        "signal": "loss",
        "abnormal": "non_finite",
        "value": float("inf"),
        "text": "",
    }
    tracker.show(b.record(FirstBad(cell={"segment": b.FIRST_SEGMENT, **cell}, last_good_step=1036)), page)
    tracker.show(
        b.record(Degraded(code="LIN-L001", part="probes", error="OSError: /secret", consequence="none seen")),
        page,
    )
    tracker.show(b.record(TrackerNote(code="LIN-T001", tracker="wandb", text="steps went back")), page)
    tracker.show(b.record(Coverage(recorded=["config"], missing={"optimizer": "attach(optimizer=)"})), page)
    log = finished(run)
    assert log.summary["lineage/first_bad"] == "rank 1, step 1,037: loss is +Infinity; last good step 1,036"
    assert log.summary["lineage/degraded"] == (
        "LIN-L001: probes failed with OSError: none seen. "
        f"The error's own words are in the ledger: lineage report {b.RUN}"
    )
    assert log.summary["lineage/notes/LIN-T001"] == "steps went back"
    assert log.summary["lineage/coverage"] == "recorded: config | not recorded: optimizer"
    assert log.alerts == []


def test_a_complete_checkpoint_is_a_small_artifact_that_names_its_content(start, page):
    run = start()
    tracker = WandbTracker(run)
    parent = b.uid()
    assert tracker.show(b.record(b.checkpoint(1, status="pending")), page) is None
    first = b.record(b.checkpoint(1000, parents=(parent,)), step=1000)
    other = b.record(b.checkpoint(2000, digest="sha256:" + "f6" * 32), step=2000)
    for record in (first, other, first):
        tracker.show(record, page)
    one, two = finished(run).artifacts
    assert (one.name, one.type) == (f"checkpoint-{b.RUN}", "checkpoint")
    assert {"step-1000", first.payload.uid} <= set(one.aliases)
    assert one.files["checkpoint"]["ref"] == f"ckpt://{first.payload.uid}#{b.ROOT}"
    assert one.files["record.json"]["size"] == len(first.to_line())
    assert (one.metadata["parents"], one.metadata["bytes"]) == ([parent], 1024)
    assert len(one.metadata) <= 100
    assert two.digest != one.digest


def quarantined(made, mark="quarantined", **more):
    return b.record(
        schemas.CheckpointMark(checkpoint=made.payload.uid, mark=mark, why="saved after step 900", **more)
    )


def test_a_quarantine_is_a_line_in_the_summary_and_a_version_of_the_artifact_with_its_aliases(start, page):
    run = start()
    tracker = WandbTracker(run)
    good, bad, worse = (
        b.record(b.checkpoint(step, digest="sha256:" + f"{step:064x}"), step=step)
        for step in (500, 1000, 2000)
    )
    for record in (good, bad, worse, quarantined(bad), mark := quarantined(worse)):
        tracker.show(record, page)
    log = finished(run)
    assert (
        log.summary["lineage/quarantined"] == "do not resume from the checkpoints of step 1,000, step 2,000"
    )
    told = log.config[f"lineage/marks/{worse.payload.uid}/quarantined"]
    assert (told["record"], told["step"], told["why"]) == (mark.id, 2000, "saved after step 900")
    newest = {next(a for a in x.aliases if a.startswith("step-")): x for x in log.artifacts}
    assert [x.metadata.get("quarantined") for x in newest.values()] == [None, True, True]
    marked = newest["step-2000"]
    assert worse.payload.uid in marked.aliases
    assert marked.files["checkpoint"]["ref"].startswith(f"ckpt://{worse.payload.uid}")
    assert marked.metadata["marks"]["quarantined"]["why"] == "saved after step 900"
    assert {"marks.json", "record.json"} <= set(marked.files)


def test_a_lifted_quarantine_is_said_as_such_and_an_older_mark_changes_nothing(start, page):
    run = start()
    tracker = WandbTracker(run)
    made = b.record(b.checkpoint(1000), step=1000)
    first, lifted = quarantined(made), quarantined(made, "quarantine_lifted", by="person")
    for record in (made, first, lifted, first):
        tracker.show(record, page)
    log = finished(run)
    assert log.summary["lineage/quarantined"] == "none: each quarantine was taken back"
    assert [x.metadata.get("quarantined") for x in log.artifacts] == [None, True, False]
    told = log.config[f"lineage/marks/{made.payload.uid}/quarantine_lifted"]
    assert told["why"] == "the reason is in the ledger: lineage show", "a person's words stay there"


def test_a_place_in_an_incident_is_a_fact_in_the_config_and_no_version_of_the_artifact(start, page):
    run = start()
    tracker = WandbTracker(run)
    made = b.record(b.checkpoint(1000), step=1000)
    for record in (made, quarantined(made, "last_good")):
        tracker.show(record, page)
    log = finished(run)
    assert log.config[f"lineage/marks/{made.payload.uid}/last_good"]["step"] == 1000
    assert len(log.artifacts) == 1
    assert "lineage/quarantined" not in log.summary


def test_a_resume_from_a_quarantined_checkpoint_alerts_once(start, page):
    run = start()
    tracker = WandbTracker(run)
    found = b.record(
        schemas.Finding(
            code="LIN-C006",
            check="quarantine/1",
            severity="fault",
            subject="resume",
            text="this segment resumes from a quarantined checkpoint",
        )
    )
    for _ in range(2):
        tracker.show(found, page)
    log = finished(run)
    assert [(a.level, a.title) for a in log.alerts] == [
        ("ERROR", "Lineage: resumed from a quarantined checkpoint")
    ]
    assert "this segment resumes from" in log.summary["lineage/finding/LIN-C006"]


def test_the_newest_seal_is_the_anchor_and_its_place_is_returned(start, page):
    run = start(id="r1")
    tracker = WandbTracker(run)
    old, new = b.record(b.seal()), b.record(b.seal("sha256:" + "77" * 32), step=9)
    assert tracker.show(new, page) == "wandb:p/r1#lineage/anchor"
    assert tracker.show(old, page) is None
    anchor = finished(run).config["lineage/anchor"]
    assert (anchor["root"], anchor["seq"], anchor["step"]) == (new.payload.root, new.seq, 9)


def test_files_are_published_under_our_prefix_and_html_as_a_panel(start, page, tmp_path):
    run = start()
    tracker = WandbTracker(run)
    for name in ("report.html", "report [1].md"):
        (tmp_path / name).write_text(f"<p>{name}</p>")
        tracker.publish(tmp_path / name, name)
    tracker.publish(tmp_path / "report.html", "report.html")
    with pytest.raises(trackers.TrackerRefused, match="no name"):
        tracker.publish(tmp_path / "report.html", "../report.html")
    home = Path(run.dir)
    log = finished(run)
    assert {"lineage/report.html", "lineage/report [1].md"} <= set(log.files)
    assert (home / "lineage/report.html").read_text() == "<p>report.html</p>"
    panels = [row["lineage/report"] for row in log.history if "lineage/report" in row]
    assert [p["_type"] for p in panels] == ["html-file"]


def test_a_missing_file_is_refused_for_good(start, tmp_path):
    run = start()
    with pytest.raises(trackers.TrackerRefused, match="FileNotFoundError"):
        WandbTracker(run).publish(tmp_path / "absent.md", "absent.md")
    run.finish()


def test_kinds_without_a_place_on_the_page_are_not_shown(start, page):
    run = start()
    evaluation = {"checkpoint": b.uid(), "evaluator": "e", "evaluator_version": "1", "results": {}}
    from schemas import Evaluation

    assert WandbTracker(run).show(b.record(Evaluation(**evaluation)), page) is None
    run.finish()


def test_a_disabled_run_fails_nowhere_and_shows_nothing(page, tmp_path):
    run = wandb.init(mode="disabled", config={"lr": 1}, settings=settings())
    tracker = WandbTracker(run)
    (tmp_path / "a.html").write_text("x")
    records = (b.verdict(1, loss_curve="broken"), b.regime(0, 1), b.checkpoint(1), b.alarm(), b.seal())
    assert [tracker.show(b.record(p), page) for p in records] == [None] * len(records)
    tracker.publish(tmp_path / "a.html", "a.html")
    tracker.close()
    assert tracker.alias().id == run.id
    assert tracker.requested() == {"lr": 1}
    run.finish()


def test_an_offline_alias_names_the_folder_and_no_page(start):
    run = start(id="r1")
    alias = WandbTracker(run).alias()
    assert (alias.tracker, alias.id, alias.url) == ("wandb", "r1", None)
    assert alias.uri == f"offline:{Path(run.settings.sync_dir).name}"
    run.finish()


def test_a_finished_run_is_unavailable_not_refused(start, page):
    run = start()
    tracker = WandbTracker(run)
    run.finish()
    with pytest.raises(trackers.TrackerUnavailable, match="lineage sync"):
        tracker.show(b.record(b.verdict(loss_curve="holds")), page)


def test_two_regimes_and_two_drifts_of_one_segment_have_keys_of_their_own(start, page):
    run = start()
    tracker = WandbTracker(run)
    records = [b.record(b.regime(0, 1)), b.record(b.regime(1, 50)), b.record(b.regime(2, 50))]
    for record in (*records, *records):
        tracker.show(record, page)
    config = finished(run).config
    keys = ("lineage/regime/001", "lineage/regime/001/step-50", "lineage/regime/001/step-50-2")
    assert [config[k]["record"] for k in keys] == [r.id for r in records]
    assert sum(k.startswith("lineage/regime/") for k in config) == 3


def test_wandb_s_own_reader_sees_the_same_page(start, page):
    run = start(tags=["mine"])
    tracker = WandbTracker(run)
    tracker.show(b.record(b.verdict(101, loss_curve="broken")), page)
    folder = run.settings.sync_dir
    log = finished(run)
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"this wandb has no `leet inspect`: {done.stderr[-200:]}")
    text = json.dumps(json.loads(done.stdout))
    for expected in ("lineage:broken", "lineage/status", "lineage/verdict", "lineage/broken_since_step"):
        assert expected in text
    assert log.summary["lineage/status"] == "broken"
