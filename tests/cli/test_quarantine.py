"""`lineage quarantine`, and the other commands that find, mark and show it; on ledgers of real loops."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from tests.recorder.loop import Loop, attach, sidecar

from .in_process import Run, lineage_

__all__ = ["lineage_"]


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that met a NaN at step 5 and left no word of its end: nothing is named, nothing marked."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    loop = Loop()
    rec = attach(loop, tmp_path / "living", run_id="r")
    rec.__enter__()
    for step in (2, 4, 6, 8):
        loop.run(rec, step, spoil=5)
        rec.checkpoint(loop.save(tmp_path / "out" / f"ck-{step}"), step=step)
    rec._writer.tasks.drain(60.0)
    rec._writer.bundles.drain(60.0)
    shutil.copytree(tmp_path / "living", tmp_path / "runs")
    saved = {step: (tmp_path / "out" / f"ck-{step}" / "lineage.json").read_bytes() for step in (2, 4, 6, 8)}
    rec.close()
    for step, data in saved.items():
        told = json.loads(data)
        told["ledger"] = str(tmp_path / "runs" / "r")
        (tmp_path / "out" / f"ck-{step}" / "lineage.json").write_text(json.dumps(told))
    shutil.rmtree(tmp_path / "living")
    return tmp_path / "runs" / "r"


def marked(ledger: Path, mark: str = "quarantined") -> list[int]:
    """Steps of the checkpoints with a mark in the ledger."""
    found = Ledger(ledger)
    steps = {r.payload.uid: r.payload.step for r in found.of("checkpoint")}
    return sorted(steps[r.payload.checkpoint] for r in found.of("checkpoint_mark") if r.payload.mark == mark)


def beside(tmp_path: Path) -> dict[int, list[str]]:
    """Step -> the marks in its sidecar."""
    return {
        int(p.name[3:]): [m["mark"] for m in sidecar(p).get("marks", [])]
        for p in sorted((tmp_path / "out").iterdir())
    }


def uid_of(tmp_path: Path, step: int) -> str:
    return str(sidecar(tmp_path / "out" / f"ck-{step}")["checkpoint"]["uid"])


def test_a_dry_run_says_what_would_be_marked_and_changes_nothing(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    found = lineage_("quarantine", "r", "--dry-run", "--json")
    assert found.code == 1
    assert [(q["step"], q["new"], q["marked"]) for q in found.json["quarantined"]] == [
        (6, True, False),
        (8, True, False),
    ]
    assert "rank 0 shows: loss is NaN" in found.json["quarantined"][0]["why"]
    assert "WOULD BE MARKED" in lineage_("quarantine", "r", "--dry-run").out
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_it_marks_in_ledger_and_sidecar_names_the_first_bad_cell_and_opens_the_incident(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    found = lineage_("quarantine", "r")
    assert found.code == 0
    assert found.out.count("marked now") == 2
    assert "lineage sync" in found.out
    assert marked(killed) == [6, 8]
    assert beside(tmp_path) == {2: [], 4: [], 6: ["quarantined"], 8: ["quarantined"]}
    ledger = Ledger(killed)
    [named] = ledger.of("first_bad")
    assert named.payload.cell.step == 5
    assert ledger.of("incident")[-1].payload.first_bad_step == 5
    assert all(
        r.payload.evidence == [named.id]
        for r in ledger.of("checkpoint_mark")
        if r.payload.mark == "quarantined"
    )
    assert verify(killed).damage == []


def test_a_second_time_nothing_is_written(killed: Path, lineage_: Run) -> None:
    lineage_("quarantine", "r")
    before = sorted(killed.glob("journal/*/*"))
    found = lineage_("quarantine", "r")
    assert found.out.count("marked before") == 2
    assert sorted(killed.glob("journal/*/*")) == before
    assert lineage_("quarantine", "r", "--dry-run").code == 0


def test_a_checkpoint_without_a_sidecar_is_said(killed: Path, tmp_path: Path, lineage_: Run) -> None:
    (tmp_path / "out" / "ck-8" / "lineage.json").unlink()
    found = lineage_("quarantine", "r")
    assert "one of them has no lineage.json that could take the mark" in found.out
    assert marked(killed) == [6, 8]


def test_a_write_protected_checkpoint_takes_the_mark_and_stays_protected(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    """As one that was moved out of the rotation's reach."""
    lineage_("checkpoint", "preserve", tmp_path / "out" / "ck-6", "--method", "move")
    now = tmp_path / "out.kept" / "ck-6"
    assert lineage_("quarantine", "r").code == 0
    assert [m["mark"] for m in sidecar(now)["marks"]] == ["quarantined"]
    assert {p.stat().st_mode & 0o222 for p in [now, *now.iterdir()]} == {0}
    assert verify(killed).damage == []


def test_first_bad_says_what_is_not_marked_yet_and_by_which_command(killed: Path, lineage_: Run) -> None:
    assert "checkpoints of step 6, 8 hold a state from after it" in lineage_("first-bad", "r").out
    assert lineage_("quarantine", "r").code == 0
    assert "not marked" not in lineage_("first-bad", "r").out


def test_incident_preserve_marks_too(killed: Path, tmp_path: Path, lineage_: Run) -> None:
    assert lineage_("incident", "preserve", "r").code == 0
    assert marked(killed) == [6, 8]
    assert beside(tmp_path)[8] == ["quarantined"]
    assert Ledger(killed).of("incident")[-1].payload.status == "evidence_held"


@pytest.mark.parametrize("name", ["path", "uid", "run@step"])
def test_a_lift_needs_a_reason_and_is_a_record_that_the_audit_shows(
    killed: Path, tmp_path: Path, lineage_: Run, name: str
) -> None:
    lineage_("quarantine", "r")
    asked = {"path": tmp_path / "out" / "ck-6", "uid": uid_of(tmp_path, 6), "run@step": "r@6"}[name]
    refused = lineage_("quarantine", "--lift", asked)
    assert (refused.code, "a reason is needed" in refused.err) == (2, True)
    assert marked(killed, "quarantine_lifted") == []
    done = lineage_("quarantine", "--lift", asked, "--why", "the NaN was in the log only")
    assert done.code == 0, done.err
    assert marked(killed, "quarantine_lifted") == [6]
    assert beside(tmp_path)[6] == ["quarantined", "quarantine_lifted"]
    lifted = next(r for r in Ledger(killed).of("checkpoint_mark") if r.payload.mark == "quarantine_lifted")
    assert (lifted.payload.by, lifted.payload.why) == ("person", "the NaN was in the log only")
    for command in ("show", "check"):
        shown = lineage_(command, "r").out
        assert "LIN-C030" in shown
        assert "the NaN was in the log only" in shown
    assert "lifted:" in lineage_("quarantine", "r").out
    again = lineage_("quarantine", "--lift", asked, "--why", "x")
    assert (again.code, "nothing to lift" in again.err) == (2, True)


def resumed(tmp_path: Path, step: int, **options: Any) -> Ledger:
    """A segment that goes on from a checkpoint to step 10, with one save."""
    source = tmp_path / "out" / f"ck-{step}"
    loop = Loop().load(source)
    with attach(loop, tmp_path / "runs", resumed_from=source, **options) as rec:
        loop.run(rec, 10)
        rec.checkpoint(loop.save(tmp_path / "later" / "ck-10"), step=10)
    return Ledger(rec._writer.ledger)


def test_lifting_one_lifts_what_has_its_quarantine_from_it_and_that_cannot_be_lifted_alone(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", run_id="clean") as rec:
        loop.run(rec, 4)
        uid = rec.checkpoint(loop.save(tmp_path / "out" / "ck-40"), step=4)
    assert lineage_("quarantine", "--mark", uid, "--why", "wrong data").code == 0
    ledger = resumed(tmp_path, 40)
    child = sidecar(tmp_path / "later" / "ck-10")["checkpoint"]["uid"]
    refused = lineage_("quarantine", "--lift", child, "--why", "fine")
    assert (refused.code, f"Lift {uid}" in refused.err) == (2, True)
    assert lineage_("quarantine", "--lift", uid, "--why", "the data was right").code == 0
    marks = [m["mark"] for m in sidecar(tmp_path / "later" / "ck-10")["marks"]]
    assert marks == ["quarantined", "quarantine_lifted"]
    assert lineage_("quarantine", ledger.run, "--json").json["quarantined"] == []


def test_check_show_and_report_name_a_resume_from_a_quarantined_one(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    lineage_("quarantine", "r")
    resumed(tmp_path, 6)
    checked = lineage_("check", "r")
    assert checked.code == 1
    assert "fault LIN-C006 resume: this segment resumes from the checkpoint of step 6" in checked.out
    assert str(tmp_path / "out" / "ck-2") in checked.out, "the remedy names the last good one"
    assert "LIN-C006" in lineage_("show", "r").out
    assert lineage_("report", "r").code == 0
    assert "LIN-C006" in (killed / "report" / "report.md").read_text()


def test_a_resume_that_nobody_warned_of_is_found_by_the_ledger_alone(
    killed: Path, tmp_path: Path, lineage_: Run
) -> None:
    """The mark came after it, or the recorder was of an older version."""
    source = tmp_path / "out" / "ck-6"
    loop = Loop().load(source)
    away = killed.rename(tmp_path / "away")  # the ledger is not at hand when it resumes
    with attach(loop, tmp_path / "runs", resumed_from=source) as rec:
        loop.run(rec, 7)
    assert [r for r in Ledger(killed).of("finding") if r.payload.code == "LIN-C006"] == []
    for part in ("journal", "series"):
        for folder in (killed / part).iterdir():
            shutil.copytree(folder, away / part / folder.name)
    shutil.rmtree(killed)
    away.rename(killed)
    lineage_("quarantine", "r")
    [f] = [f for f in lineage_("show", "r", "--json").json["findings"] if f["code"] == "LIN-C006"]
    assert "that was found after the resume" in f["text"]


def test_options_that_do_not_go_together_are_refused(killed: Path, lineage_: Run) -> None:
    assert "give one of them" in lineage_("quarantine", "--mark", "a", "--lift", "b", "--why", "x").err
    assert "--why is the reason for" in lineage_("quarantine", "r", "--why", "x").err
    missing = lineage_("quarantine", "r", "--mark", "nowhere", "--why", "x")
    assert (missing.code, "nowhere" in missing.err) == (2, True)
    assert marked(killed) == []


def test_a_place_that_was_saved_over_is_named_for_what_lies_there_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lineage_: Run
) -> None:
    """Of the save before it is said that its files are gone: nobody is sent to the wrong one."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    loop = Loop()
    with attach(loop, tmp_path / "runs", run_id="r") as rec:
        for step in (2, 6, 8):
            loop.run(rec, step, spoil=5)
            rec.checkpoint(loop.save(tmp_path / "ck"), step=step)
            rec._writer.tasks.drain(60.0)
    told = [line for line in lineage_("quarantine", "r").out.splitlines() if " of segment 1 " in line]
    assert ["whose files are gone" in line for line in told] == [True, False]
    assert [str(tmp_path / "ck") in line for line in told] == [False, True]
