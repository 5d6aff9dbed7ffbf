"""Quarantine in real loops: what is marked, where the mark stands, and what a resume from it says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage.judge.quarantined import quarantine
from lineage.ledger import files, sidecars
from lineage.ledger.journal import Journal
from lineage.ledger.reader import Ledger

from .loop import Loop, attach, only, sidecar


def train(root: Path, out: Path, steps: tuple[int, ...], *, spoil: int = -1, **options: Any) -> Ledger:
    """A loop, perhaps a resumed one, that saves to `ck-<step>` and may meet a NaN at one step."""
    source = options.get("resumed_from")
    loop = Loop().load(source) if source else Loop()
    with attach(loop, root, **options) as rec:
        for step in steps:
            loop.run(rec, step, spoil=spoil)
            rec.checkpoint(loop.save(out / f"ck-{step}"), step=step)
    return Ledger(rec._writer.ledger)


def marks(ledger: Ledger, mark: str = "quarantined") -> dict[int, str]:
    """Step -> why, of the marks of one kind."""
    steps = {r.payload.uid: r.payload.step for r in ledger.of("checkpoint")}
    return {
        steps[r.payload.checkpoint]: r.payload.why
        for r in ledger.of("checkpoint_mark")
        if r.payload.mark == mark and r.payload.checkpoint in steps
    }


def beside(path: Path) -> list[str]:
    """The marks in a sidecar."""
    return [m["mark"] for m in sidecar(path).get("marks", [])]


def found(ledger: Ledger, code: str = "LIN-C006") -> list[schemas.Finding]:
    """The findings of a code that were recorded."""
    return [r.payload for r in ledger.of("finding") if r.payload.code == code]


def test_checkpoints_from_the_first_bad_step_on_are_marked_in_ledger_and_sidecar_and_earlier_ones_not(
    tmp_path: Path,
) -> None:
    ledger = train(tmp_path / "runs", tmp_path, (2, 4, 5, 6, 8), spoil=5)
    assert set(marks(ledger)) == {5, 6, 8}, "a checkpoint of step 5 holds the state after update 5"
    assert "rank 0 shows: loss is NaN" in marks(ledger)[6]
    assert {s: beside(tmp_path / f"ck-{s}") for s in (2, 4, 5, 6, 8)} == {
        2: [],
        4: [],
        5: ["quarantined"],
        6: ["quarantined"],
        8: ["quarantined"],
    }
    evidence = next(r for r in ledger.of("checkpoint_mark") if r.payload.mark == "quarantined")
    assert evidence.payload.evidence == [ledger.last("first_bad").id]


def test_a_mark_in_the_sidecar_changes_nothing_else_in_it_and_no_digest(tmp_path: Path) -> None:
    loop, ck = Loop(), tmp_path / "ck"
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 4, spoil=3)
        rec.checkpoint(loop.save(ck), step=4)
        rec._writer.tasks.drain(60.0)
        before, root, mode = sidecar(ck), files.manifest(ck).root, (ck / "lineage.json").stat().st_mode
    after = sidecar(ck)
    assert after.pop("marks")
    before.pop("marks")
    assert after == before
    assert files.manifest(ck).root == root == after["checkpoint"]["manifest"]["root"]
    assert (ck / "lineage.json").stat().st_mode == mode
    assert [p.name for p in ck.iterdir() if p.name.endswith(".tmp")] == []


def test_a_field_of_a_newer_version_survives_the_mark(tmp_path: Path) -> None:
    train(tmp_path / "runs", tmp_path, (2,))
    path = tmp_path / "ck-2" / "lineage.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "from_the_future": {"x": 1}}))
    uid = json.loads(path.read_text())["checkpoint"]["uid"]
    fact = schemas.CheckpointMark(checkpoint=uid, mark="quarantined", why="by hand")
    assert sidecars.mark(tmp_path / "ck-2", fact)
    assert sidecars.mark(tmp_path / "ck-2", fact), "a second time it stands there already"
    assert json.loads(path.read_text())["from_the_future"] == {"x": 1}
    assert beside(tmp_path / "ck-2") == ["quarantined"]


def test_the_sidecar_of_another_checkpoint_is_left_alone(tmp_path: Path) -> None:
    """As where the path was written over since."""
    train(tmp_path / "runs", tmp_path, (2,))
    other = schemas.CheckpointMark(
        checkpoint="01a22b34-24b0-7bd1-96bd-f3e16e729e74", mark="quarantined", why="x"
    )
    assert not sidecars.mark(tmp_path / "ck-2", other)
    assert beside(tmp_path / "ck-2") == []


def test_what_descends_from_a_quarantined_checkpoint_is_marked_when_it_is_saved(tmp_path: Path) -> None:
    """Also in a process that is killed afterwards: nothing waits for the end."""
    train(tmp_path / "runs", tmp_path, (2, 4, 6), spoil=5)
    loop = Loop().load(tmp_path / "ck-6")
    rec = attach(loop, tmp_path / "runs", resumed_from=tmp_path / "ck-6")
    rec.__enter__()
    try:
        loop.run(rec, 8)
        rec.checkpoint(loop.save(tmp_path / "ck-8"), step=8)
        rec._writer.tasks.drain(60.0)
        why = marks(only(tmp_path / "runs"))[8]
        assert "it descends from the quarantined checkpoint of step 6" in why
        assert beside(tmp_path / "ck-8") == ["quarantined"]
    finally:
        rec.close()


def test_a_branch_from_a_good_checkpoint_is_not_marked(tmp_path: Path) -> None:
    train(tmp_path / "runs", tmp_path, (2, 4, 6), spoil=5)
    ledger = train(tmp_path / "runs", tmp_path / "again", (6, 8), resumed_from=tmp_path / "ck-4")
    assert quarantine(ledger.records).unmarked == []
    assert [len(marks(ledger)), beside(tmp_path / "again" / "ck-8")] == [1, []]
    assert found(ledger) == []


def test_a_resume_from_a_quarantined_one_is_a_finding_with_a_remedy_that_names_a_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "runs", tmp_path, (2, 4, 6), spoil=5)
    ledger = train(tmp_path / "runs", tmp_path / "again", (7,), resumed_from=tmp_path / "ck-6")
    [f] = found(ledger)
    assert (f.severity, f.subject, f.names) == (
        "fault",
        "resume",
        [sidecar(tmp_path / "ck-6")["checkpoint"]["uid"]],
    )
    assert "marked so in this ledger" in f.text
    assert str(tmp_path / "ck-2") in (f.remedy or ""), "step 4 is in doubt: the loss was NaN at step 5"
    assert "RESUMED FROM A QUARANTINED CHECKPOINT" in caplog.text


def test_the_sidecar_alone_is_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On another machine: the checkpoint was copied there, and no ledger of its run is at hand."""
    train(tmp_path / "runs", tmp_path, (2, 6), spoil=5)
    shutil.copytree(tmp_path / "ck-6", tmp_path / "elsewhere" / "ck-6")
    shutil.rmtree(tmp_path / "runs")
    ledger = train(tmp_path / "there", tmp_path / "again", (7,), resumed_from=tmp_path / "elsewhere" / "ck-6")
    [f] = found(ledger)
    assert "marked so in the checkpoint's lineage.json" in f.text
    assert "LIN-C006" in caplog.text


def test_a_fork_into_another_ledger_warns_and_its_saves_are_marked_there(tmp_path: Path) -> None:
    train(tmp_path / "runs", tmp_path, (2, 6), spoil=5)
    ledger = train(tmp_path / "forks", tmp_path / "forked", (8,), resumed_from=tmp_path / "ck-6", fork=True)
    assert ledger.run != only(tmp_path / "runs").run
    [f] = found(ledger)
    assert f"marked so in the ledger of run {only(tmp_path / 'runs').run}" in f.text
    assert str(tmp_path / "ck-2") in (f.remedy or ""), "the other ledger knows which one is good"
    assert "it descends from the quarantined checkpoint of step 6" in marks(ledger)[8]
    assert beside(tmp_path / "forked" / "ck-8") == ["quarantined"]
    assert {q.checkpoint for q in quarantine(ledger.records).bad.values()} >= {
        sidecar(tmp_path / "forked" / "ck-8")["checkpoint"]["uid"]
    }, "this ledger alone tells it"


@pytest.mark.parametrize("begun", [False, True])
def test_a_parent_that_is_named_late_is_warned_of_too(tmp_path: Path, begun: bool) -> None:
    """`rec.resumed_from` after attach, before the first step or after some."""
    run = train(tmp_path / "runs", tmp_path, (2, 6), spoil=5).run
    loop = Loop().load(tmp_path / "ck-6")
    with attach(loop, tmp_path / "runs", run_id=run) as rec:
        if begun:
            rec.settings.values["digests"] = False  # so that it is not recognised by its content
            loop.run(rec, 7)
        rec.resumed_from(tmp_path / "ck-6")
        loop.run(rec, 8)
        rec.checkpoint(loop.save(tmp_path / "ck-8"), step=8)
    ledger = only(tmp_path / "runs")
    assert len(found(ledger)) == 1
    assert 8 in marks(ledger)


def test_before_the_first_bad_cell_is_named_the_alarm_warns(tmp_path: Path) -> None:
    """The process was killed right after the alarm and a save; nobody named or marked anything."""
    loop = Loop()
    rec = attach(loop, tmp_path / "runs")
    rec.__enter__()
    loop.run(rec, 6, spoil=5)
    rec.checkpoint(loop.save(tmp_path / "ck-6"), step=6)
    rec._writer.tasks.drain(60.0)
    rec._writer.bundles.drain(60.0)
    shutil.copytree(tmp_path / "runs", tmp_path / "killed")
    rec.close()
    path = tmp_path / "ck-6" / "lineage.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "marks": [], "ledger": None}))
    ledger = train(tmp_path / "killed", tmp_path / "again", (8,), resumed_from=tmp_path / "ck-6")
    [f] = found(ledger)
    assert "the first bad cell is not named yet" in f.text
    assert "that was found after the resume" in f.text


def lift(path: Path, ledger: Ledger, why: str = "the NaN was in the log only") -> None:
    """Take a quarantine back, as the command does."""
    uid = sidecar(path)["checkpoint"]["uid"]
    fact = schemas.CheckpointMark(checkpoint=uid, mark="quarantine_lifted", why=why)
    place = schemas.Place(node="other", pid=os.getpid())
    journal = Journal(ledger.path, ledger.run, ledger.records[-1].segment, 0, place)
    journal.append(fact)
    journal.close()
    assert sidecars.mark(path, fact)


def test_a_lifted_quarantine_warns_no_more_and_its_descendants_are_free(tmp_path: Path) -> None:
    """The loss was NaN once, and the loop went back to whole weights by itself before the save."""
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 4)
        whole = loop.save(tmp_path / "whole")
        loop.run(rec, 5, spoil=5)
        loop.load(whole)
        loop.done = 5
        loop.run(rec, 6)
        rec.checkpoint(loop.save(tmp_path / "ck-6"), step=6)
    assert set(marks(only(tmp_path / "runs"))) == {6}
    lift(tmp_path / "ck-6", only(tmp_path / "runs"))
    ledger = train(tmp_path / "runs", tmp_path / "again", (8,), resumed_from=tmp_path / "ck-6")
    assert found(ledger) == []
    assert 8 not in marks(ledger)
    assert beside(tmp_path / "ck-6") == ["quarantined", "quarantine_lifted"]
    elsewhere = train(
        tmp_path / "forks", tmp_path / "forked", (8,), resumed_from=tmp_path / "ck-6", fork=True
    )
    assert found(elsewhere) == []


def test_a_checkpoint_of_one_file_has_its_mark_beside_it(tmp_path: Path) -> None:
    loop, path = Loop(), tmp_path / "ckpt.pt"
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 6, spoil=5)
        torch.save({"model": loop.model.state_dict()}, path)
        rec.checkpoint(path, step=6)
    held = json.loads((tmp_path / "ckpt.pt.lineage.json").read_text())
    assert [m["mark"] for m in held["marks"]] == ["quarantined"]
