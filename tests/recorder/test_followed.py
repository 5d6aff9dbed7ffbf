"""A complete checkpoint whose files go is marked so, and no later claim names it as one to go back to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.recorder import protection

from .loop import Loop, attach, only


def deleted(root: Path) -> dict[int, str]:
    """Step -> what is said of a checkpoint that is gone."""
    ledger = only(root)
    steps = {r.payload.uid: r.payload.step for r in ledger.of("checkpoint")}
    marks = [r.payload for r in ledger.of("checkpoint_mark") if r.payload.mark == "deleted"]
    assert len(marks) == len({m.checkpoint for m in marks})  # each is said once
    return {steps[m.checkpoint]: m.why for m in marks}


def saved(loop: Loop, rec: Any, folder: Path) -> Path:
    rec.checkpoint(loop.save(folder), step=loop.done)
    assert rec.begin().tasks.drain(60.0)
    return folder


def good(root: Path) -> int | None:
    """The step of the checkpoint that is named as the last good one."""
    ledger = only(root)
    steps = {r.payload.uid: r.payload.step for r in ledger.of("checkpoint")}
    named = ledger.of("first_bad")[-1].payload.last_good_checkpoint
    return steps[named] if named else None


def test_the_last_good_checkpoint_is_one_that_is_still_there(tmp_path: Path) -> None:
    """A rotation deleted the newer one before the alarm: it is marked, and the older one is named."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in (2, 4, 6):
            loop.run(rec, step)
            saved(loop, rec, tmp_path / f"ck{step}")
        shutil.rmtree(tmp_path / "ck6")
        loop.run(rec, 12, spoil=10)
    assert deleted(tmp_path) == {6: "its files are gone"}
    assert good(tmp_path) == 4


def test_one_folder_for_all_saves_holds_the_newest_alone(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in (2, 4, 6):
            loop.run(rec, step)
            saved(loop, rec, tmp_path / "ck")
    place = f"at {tmp_path / 'ck'}"
    assert deleted(tmp_path) == {
        2: f"overwritten by a later save (step 4) {place}",
        4: f"overwritten by a later save (step 6) {place}",
    }


def test_a_checkpoint_of_an_earlier_segment_is_looked_after_too(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        saved(loop, rec, tmp_path / "ck2")
        loop.run(rec, 4)
        saved(loop, rec, tmp_path / "ck4")
    again = Loop().load(tmp_path / "ck4")
    with attach(again, tmp_path, resumed_from=tmp_path / "ck4") as rec:
        again.run(rec, 6)
        shutil.rmtree(tmp_path / "ck2")
        saved(again, rec, tmp_path / "ck6")
    assert deleted(tmp_path) == {2: "its files are gone"}


def test_one_that_was_moved_is_followed(tmp_path: Path) -> None:
    """By this process, or by another one that wrote down where it lies now."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        path = saved(loop, rec, tmp_path / "out" / "ck2")
        now = protection.Protection(only(tmp_path).path).keep(path, "it is needed")
        assert now != path
        loop.run(rec, 4)
        saved(loop, rec, tmp_path / "out" / "ck4")
        assert deleted(tmp_path) == {}
    assert deleted(tmp_path) == {}


def test_a_save_that_is_moved_while_it_is_digested_is_complete_with_its_sidecar_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move comes after the first look at the files and before the last: they are read again where they lie now."""
    from lineage.recorder import saving

    loop, moved = Loop(), []
    real = saving.files.manifest

    def move_first(path: Path, **more: Any) -> Any:
        found = real(path, **more)
        if not moved:
            moved.append(protection.Protection(only(tmp_path).path).keep(path, "it is needed"))
        return found

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        monkeypatch.setattr(saving.files, "manifest", move_first)
        saved(loop, rec, tmp_path / "out" / "ck2")
    (now,) = moved
    newest = only(tmp_path).of("checkpoint")[-1].payload
    assert (newest.status, newest.path, newest.missing) == ("complete", str(now), [])
    assert (now / "lineage.json").is_file()
    assert deleted(tmp_path) == {}
