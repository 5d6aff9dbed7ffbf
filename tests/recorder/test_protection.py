"""What rotation must not delete, as the integrations ask it; on ledgers that real loops wrote."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage.judge import graph
from lineage.ledger import evidence, files
from lineage.ledger.journal import Journal
from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from lineage.recorder.off import Off
from lineage.recorder.protection import Protection, where

from .loop import Loop, attach, only, sidecar


def saved_at(
    root: Path, checkpoints: Path, steps: tuple[int, ...], *, spoil: int = -1, ends: bool = True
) -> tuple[Any, Loop]:
    """A loop that saves to `checkpoint-<step>` and may meet a NaN; returns its recorder, closed or still recording."""
    loop = Loop()
    rec = attach(loop, root)
    rec.__enter__()
    for step in steps:
        loop.run(rec, step, spoil=spoil)
        rec.checkpoint(loop.save(checkpoints / f"checkpoint-{step}"), step=step)
    rec._writer.tasks.drain(60.0)
    if ends:
        rec.close()
    return rec, loop


def ledger_of(rec: Any) -> Path:
    """The recorder's ledger folder."""
    path: Path = rec._writer.ledger
    return path


def held(protection: Protection, checkpoints: Path) -> dict[int, str]:
    """Step -> why it must be kept, of all that lie in a folder."""
    out = {}
    for path in checkpoints.iterdir():
        why = protection.holds(path)
        if why is not None:
            out[int(path.name.rpartition("-")[2])] = why
    return out


def mark(ledger: Path, mark: str, checkpoint: str, **more: Any) -> None:
    """Write a mark as a command of another process does."""
    last = Ledger(ledger).records[-1]
    journal = Journal(ledger, last.run, last.segment, 0, schemas.Place(node="other", pid=os.getpid()))
    journal.append(schemas.CheckpointMark(checkpoint=checkpoint, mark=mark, why="by hand", **more))
    journal.close()


def close_incident(ledger: Path) -> None:
    """Close the newest incident as a command of another process does."""
    latest = Ledger(ledger).of("incident")[-1]
    journal = Journal(ledger, latest.run, latest.segment, 0, schemas.Place(node="other", pid=os.getpid()))
    journal.append(latest.payload.model_copy(update={"status": "closed", "note": "settled"}))
    journal.close()


def test_in_a_healthy_run_nothing_is_held(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4))
    assert held(Protection(ledger_of(rec)), tmp_path / "out") == {}


def test_while_an_incident_is_open_the_last_good_and_the_first_bad_one_are_held(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6, 8), spoil=5)
    assert only(tmp_path / "runs").last("incident").payload.first_bad_step == 5
    found = held(Protection(ledger_of(rec)), tmp_path / "out")
    assert set(found) == {2, 4, 6}, "a NaN in the loss puts the state of step 4 in doubt"
    assert found[2].startswith("it is the last good checkpoint of the open incident")
    assert found[4].startswith("it is the newest complete checkpoint before the first bad step")
    assert found[6].startswith("it is the first bad checkpoint of the open incident")


def test_when_the_incident_is_closed_they_may_go(tmp_path: Path) -> None:
    """The same object sees it: the journals are read on where they grew."""
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6, 8), spoil=5)
    protection = Protection(ledger_of(rec))
    assert set(held(protection, tmp_path / "out")) == {2, 4, 6}
    close_incident(ledger_of(rec))
    assert held(protection, tmp_path / "out") == {}


def test_before_the_first_bad_cell_is_named_an_alarm_holds_what_lies_on_both_sides_of_it(
    tmp_path: Path,
) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6, 8), spoil=5, ends=False)
    try:
        assert only(tmp_path / "runs").of("incident") == []
        found = held(Protection(ledger_of(rec)), tmp_path / "out")
        assert set(found) == {2, 4, 6}
        assert "not in doubt" in found[2]
        assert "newest complete checkpoint before the alarm at step 5" in found[4]
        assert "whose first bad cell is not named yet" in found[6]
    finally:
        rec.close()


def test_an_alarm_that_comes_later_is_seen_by_the_same_object(tmp_path: Path) -> None:
    rec, loop = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4), ends=False)
    try:
        protection = Protection(ledger_of(rec))
        assert held(protection, tmp_path / "out") == {}
        loop.run(rec, 7, spoil=6)
        rec._writer.tasks.drain(60.0)
        assert set(held(protection, tmp_path / "out")) == {2, 4}
    finally:
        rec.close()


def test_an_incident_that_a_person_opens_without_a_step_holds_the_newest_checkpoint_of_then(
    tmp_path: Path,
) -> None:
    rec, loop = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4), ends=False)
    try:
        rec.incident("the loss looks wrong")
        loop.run(rec, 6)
        rec.checkpoint(loop.save(tmp_path / "out" / "checkpoint-6"), step=6)
        rec._writer.tasks.drain(60.0)
        found = held(Protection(ledger_of(rec)), tmp_path / "out")
        assert set(found) == {4}
        assert "the loss looks wrong" in found[4]
    finally:
        rec.close()


def test_what_a_person_holds_is_held_until_it_is_released(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4))
    protection = Protection(ledger_of(rec))
    uid = sidecar(tmp_path / "out" / "checkpoint-2")["checkpoint"]["uid"]
    mark(ledger_of(rec), "held", uid)
    assert held(protection, tmp_path / "out") == {2: "it is held by hand: by hand"}
    mark(ledger_of(rec), "released", uid)
    assert held(protection, tmp_path / "out") == {}


def test_what_is_preserved_is_held_unless_a_copy_lies_in_the_evidence_store(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4))
    checkpoint = tmp_path / "out" / "checkpoint-2"
    uid = sidecar(checkpoint)["checkpoint"]["uid"]
    mark(ledger_of(rec), "preserved", uid)
    protection = Protection(ledger_of(rec))
    assert set(held(protection, tmp_path / "out")) == {2}
    kept = evidence.preserve(ledger_of(rec), checkpoint, "checkpoint")
    last = Ledger(ledger_of(rec)).records[-1]
    journal = Journal(ledger_of(rec), last.run, last.segment, 0, schemas.Place(node="other", pid=os.getpid()))
    record = journal.append(kept)
    journal.close()
    mark(ledger_of(rec), "preserved", uid, evidence=[record.id])
    assert held(protection, tmp_path / "out") == {}


def test_the_folder_around_a_held_checkpoint_is_held_and_so_is_a_part_of_it(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6), spoil=5)
    protection = Protection(ledger_of(rec))
    assert protection.holds(tmp_path / "out") is not None
    assert protection.holds(tmp_path / "out" / "checkpoint-4" / "state.pt") is not None
    assert protection.holds(tmp_path / "elsewhere") is None


def test_a_checkpoint_that_was_moved_or_is_reached_over_a_link_is_known_by_its_sidecar(
    tmp_path: Path,
) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (1, 2, 4, 6), spoil=5)
    shutil.copytree(tmp_path / "out" / "checkpoint-4", tmp_path / "copy")
    os.symlink(tmp_path / "out", tmp_path / "link")
    protection = Protection(ledger_of(rec))
    assert protection.holds(tmp_path / "copy") is not None
    assert protection.holds(tmp_path / "link" / "checkpoint-4") is not None
    assert protection.holds(tmp_path / "link" / "checkpoint-1") is None


def test_a_checkpoint_of_another_run_is_asked_for_in_the_ledger_that_its_sidecar_names(
    tmp_path: Path,
) -> None:
    """A fork saves into the same folder, and its rotation meets the other run's evidence."""
    saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6), spoil=5)
    fork, _ = saved_at(tmp_path / "forks", tmp_path / "forked", (2,))
    assert "last good" in (Protection(ledger_of(fork)).holds(tmp_path / "out" / "checkpoint-2") or "")


def test_a_path_that_was_written_over_is_what_was_saved_there_last(tmp_path: Path) -> None:
    """As nanoGPT's ckpt.pt: the last good and the first bad state are gone, and what lies there now may go."""
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        for step in (2, 4, 6):
            loop.run(rec, step, spoil=3)
            rec.checkpoint(loop.save(tmp_path / "ck"), step=step)
            rec._writer.tasks.drain(60.0)
    assert Protection(ledger_of(rec)).holds(tmp_path / "ck") is None


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("one_file", [True, False])
def test_a_loop_that_keeps_one_path_and_asks_before_each_save_loses_no_side_of_the_bad_step(
    tmp_path: Path, waits: bool, one_file: bool
) -> None:
    """Each save stays what it was: none is taken for another one at its path, nor said to be written over.

    Also where the loop is faster than the thread that digests its files.
    """
    loop, path = Loop(), tmp_path / "out" / ("ckpt.pt" if one_file else "ckpt")
    saved: dict[int, bytes] = {}
    (tmp_path / "out").mkdir()
    with attach(loop, tmp_path / "runs") as rec:
        protection = Protection.of(rec)
        for step in (2, 4, 6, 8, 10):
            loop.run(rec, step, spoil=5)
            if protection.holds(path):
                protection.keep(path)
            if one_file:
                torch.save({"model": loop.model.state_dict(), "step": step}, path)
            else:
                loop.save(path)
            saved[step] = (path if one_file else path / "state.pt").read_bytes()
            rec.checkpoint(path, step=step)
            if waits:
                rec._writer.tasks.drain(60.0)
    ledger = only(tmp_path / "runs")
    nodes = {n.checkpoint.step: n for n in graph.build(ledger.records).nodes.values()}
    for step in (4, 6, 10):
        assert nodes[step].checkpoint.status == "complete"
        assert not nodes[step].deleted
        at = Path(str(nodes[step].checkpoint.path))
        assert (at if one_file else at / "state.pt").read_bytes() == saved[step], step
        told = schemas.Sidecar.model_validate_json(
            (at.with_name("ckpt.pt.lineage.json") if one_file else at / "lineage.json").read_bytes()
        )
        assert told.checkpoint.step == step
    assert ledger.last("first_bad").payload.first_bad_checkpoint == nodes[6].uid
    assert not [r for r in ledger.of("finding") if r.payload.code == "LIN-C012"]
    assert verify(ledger.path).damage == []


def test_where_nothing_is_recorded_nothing_is_held(tmp_path: Path) -> None:
    """A recorder that could not be made: the loop's own lines go on working."""
    (tmp_path / "ck").mkdir()
    assert Protection.of(Off()).holds(tmp_path / "ck") is None


def test_a_save_whose_files_are_not_on_record_yet_is_held_by_its_step(tmp_path: Path) -> None:
    rec, loop = saved_at(tmp_path / "runs", tmp_path / "out", (2,), ends=False)
    try:
        loop.run(rec, 4)
        with rec.saving(4):  # begun, and never committed
            loop.save(tmp_path / "out" / "checkpoint-4")
        loop.run(rec, 7, spoil=6)
        rec._writer.tasks.drain(60.0)
        found = held(Protection(ledger_of(rec)), tmp_path / "out")
        assert set(found) == {2, 4}
        assert "files are not on record yet" in found[4]
    finally:
        rec.close()


def test_a_kept_checkpoint_is_out_of_the_folder_whole_and_write_protected_and_still_held(
    tmp_path: Path,
) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6), spoil=5)
    checkpoint = tmp_path / "out" / "checkpoint-4"
    before = files.manifest(checkpoint).root
    protection = Protection(ledger_of(rec))
    now = protection.keep(checkpoint)
    assert now == tmp_path / "out.kept" / "checkpoint-4"
    assert not checkpoint.exists()
    assert not checkpoint.is_symlink()
    assert files.manifest(now).root == before
    assert (now / "lineage.json").is_file()
    assert {p.stat().st_mode & 0o222 for p in [now, *now.rglob("*")]} == {0}
    assert protection.holds(now) is not None
    assert where(checkpoint, 0) == now
    assert where(checkpoint, time.monotonic_ns()) == checkpoint, (
        "what is saved there from now on is another one"
    )
    assert protection.keep(now) == now


def test_what_was_kept_is_on_record_and_the_graph_knows_its_new_place(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6), spoil=5)
    checkpoint = tmp_path / "out" / "checkpoint-4"
    uid = sidecar(checkpoint)["checkpoint"]["uid"]
    now = Protection(ledger_of(rec)).keep(checkpoint)
    ledger = only(tmp_path / "runs")
    kept = ledger.last("preserved").payload
    assert (kept.method, kept.at, kept.source) == ("moved", str(now), str(checkpoint))
    assert kept.root == files.manifest(now).root
    said = ledger.last("checkpoint_mark").payload
    assert (said.checkpoint, said.mark, said.path) == (uid, "preserved", str(now))
    assert "the newest complete checkpoint before the first bad step" in said.why
    assert graph.build(ledger.records).nodes[uid].checkpoint.path == str(now)
    assert verify(ledger_of(rec)).damage == []
    (now / "state.pt").chmod(0o600)
    (now / "state.pt").write_bytes(b"other")
    assert [(d.code, d.file) for d in verify(ledger_of(rec)).damage] == [("LIN-J008", str(now))]


def test_the_recorders_own_writer_records_it_where_it_is_given(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2, 4, 6), spoil=5, ends=False)
    try:
        Protection(ledger_of(rec), write=rec._writer.write).keep(tmp_path / "out" / "checkpoint-4")
        assert len(list(ledger_of(rec).glob("journal/*/*.jsonl"))) == 1
        assert only(tmp_path / "runs").last("preserved").payload.method == "moved"
    finally:
        rec.close()


def test_a_checkpoint_of_one_file_is_kept_with_its_sidecar(tmp_path: Path) -> None:
    loop, path = Loop(), tmp_path / "out" / "ckpt-4.pt"
    path.parent.mkdir()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 4)
        torch.save({"model": loop.model.state_dict()}, path)
        rec.checkpoint(path, step=4)
        loop.run(rec, 6, spoil=5)
    protection = Protection(ledger_of(rec))
    assert "last good" in (protection.holds(path) or "")
    now = protection.keep(path)
    assert sorted(p.name for p in now.parent.iterdir()) == ["ckpt-4.pt", "ckpt-4.pt.lineage.json"]
    assert list(path.parent.iterdir()) == []


def test_two_of_one_name_are_both_kept(tmp_path: Path) -> None:
    rec, loop = saved_at(tmp_path / "runs", tmp_path / "out", (2,))
    protection = Protection(ledger_of(rec))
    first = protection.keep(tmp_path / "out" / "checkpoint-2")
    loop.save(tmp_path / "out" / "checkpoint-2")
    second = protection.keep(tmp_path / "out" / "checkpoint-2")
    assert first != second
    assert files.manifest(first).files
    assert files.manifest(second).files


def test_links_that_lead_out_of_it_make_keep_copy_what_they_lead_to(tmp_path: Path) -> None:
    rec, _ = saved_at(tmp_path / "runs", tmp_path / "out", (2,))
    checkpoint = tmp_path / "out" / "checkpoint-2"
    (tmp_path / "blob").write_bytes(b"from a hub cache")
    (checkpoint / "linked.bin").symlink_to("../../blob")
    now = Protection(ledger_of(rec)).keep(checkpoint)
    (tmp_path / "blob").unlink()
    assert now.is_relative_to(evidence.folder(ledger_of(rec)))
    assert (now / "linked.bin").read_bytes() == b"from a hub cache"
    assert checkpoint.exists(), "a copy leaves the original to the rotation"


def test_nothing_raises_where_nothing_can_be_read_or_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protection = Protection(tmp_path / "no ledger")
    assert protection.holds(tmp_path / "no checkpoint") is None
    assert protection.keep(tmp_path / "no checkpoint") == tmp_path / "no checkpoint"
    assert "could not be taken out of the rotation's reach" in caplog.text
