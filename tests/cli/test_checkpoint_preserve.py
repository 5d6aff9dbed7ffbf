"""`lineage checkpoint preserve`, `hold` and `release`, and `lineage incident preserve`: as a person meets them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.ledger import evidence, evidence_copy
from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from lineage.recorder.protection import Protection
from tests.ledger.helpers import small_disk
from tests.recorder.loop import Loop, attach, sidecar

from .in_process import Run, lineage_

__all__ = ["lineage_"]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Checkpoints of a run, a NaN at step 5 among them, and its ledger in runs/r."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    loop = Loop()
    with attach(loop, tmp_path / "runs", run_id="r") as rec:
        for step in (2, 4, 6):
            loop.run(rec, step, spoil=5)
            rec.checkpoint(loop.save(tmp_path / "out" / f"ck-{step}"), step=step)
    return tmp_path / "out"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r"


def newest(ledger: Path, kind: str) -> Any:
    """What the newest record of a kind says."""
    return Ledger(ledger).of(kind)[-1].payload


def marks(ledger: Path, mark: str) -> list[str]:
    """The reasons of all marks of a kind."""
    return [r.payload.why for r in Ledger(ledger).of("checkpoint_mark") if r.payload.mark == mark]


def test_a_copy_says_the_space_before_and_after_and_is_on_record(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    found = lineage_("checkpoint", "preserve", "out/ck-2", "--why", "for the paper")
    size = sum(p.stat().st_size for p in (out / "ck-2").iterdir())
    assert found.code == 0, found.err
    first = found.out.partition("\n")[0]
    assert first.startswith("2 files, ")
    assert "a copy takes" in first
    assert "that are free" in first
    assert f"{size:,} bytes of disk are used by it" in found.out
    assert "copied, verified" in found.out
    kept = newest(ledger, "preserved")
    assert (kept.source, kept.method, kept.verified) == (str(out / "ck-2"), "copy", True)
    assert marks(ledger, "preserved") == ["for the paper"]
    assert verify(ledger).damage == []


def test_a_second_time_it_takes_no_space(out: Path, ledger: Path, lineage_: Run) -> None:
    lineage_("checkpoint", "preserve", out / "ck-2")
    found = lineage_("checkpoint", "preserve", out / "ck-2")
    assert "it is held already" in found.out
    assert "\n     0 bytes of disk are used by it" in found.out
    assert "it was verified, and is not copied again" in found.out


def test_a_dry_run_changes_nothing(out: Path, tmp_path: Path, lineage_: Run) -> None:
    before = sorted(tmp_path.rglob("*"))
    found = lineage_("checkpoint", "preserve", out / "ck-2", "--dry-run", "--json")
    assert found.json["would_take"]["way"] == "copy"
    lineage_("incident", "preserve", "r", "--dry-run")
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before and p.is_file()] == []


def test_a_move_takes_no_space_and_every_command_finds_it_at_its_new_place(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    uid = sidecar(out / "ck-2")["checkpoint"]["uid"]
    found = lineage_("checkpoint", "preserve", out / "ck-2", "--method", "move")
    now = out.with_name("out.kept") / "ck-2"
    assert found.code == 0, found.err
    assert "it is renamed, which takes no space" in found.out
    assert f"{out / 'ck-2'} is now {now}: resume from there" in found.out
    assert str(now) in lineage_("show", uid).out
    assert lineage_("checkpoint", "verify", now).code == 0
    assert Protection(ledger).holds(now) is not None
    assert lineage_("checkpoint", "preserve", now).out.count("moved, verified") == 1
    assert verify(ledger).damage == []
    loop = Loop().load(now)
    with attach(loop, ledger.parent, resumed_from=now) as rec:
        loop.run(rec, 4)
    restored = {c.component: c.status for c in newest(ledger, "restore").components}
    assert set(restored.values()) == {"restored"}


def test_too_little_room_is_a_clear_refusal_that_names_the_ways_out(
    out: Path, ledger: Path, tmp_path: Path, lineage_: Run
) -> None:
    with small_disk(ledger / "evidence", "16k"):
        found = lineage_("checkpoint", "preserve", out / "ck-2")
    assert found.code == 1
    for said in ("has room for", "Nothing was changed", "--method move", "--to"):
        assert said in found.err
    assert (out / "ck-2" / "state.pt").is_file()
    assert marks(ledger, "preserved") == []


def test_ctrl_c_says_that_the_same_command_goes_on(
    out: Path, ledger: Path, lineage_: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(evidence_copy, "finish", interrupt)
        found = lineage_("checkpoint", "preserve", out / "ck-2")
    assert "interrupted: what is copied so far stays, and the same command goes on" in found.err
    assert lineage_("checkpoint", "preserve", out / "ck-2").code == 0
    assert [p.name for p in evidence.folder(ledger).iterdir() if p.name.startswith(".")] == []


def test_files_that_are_not_those_of_the_save_are_kept_and_said(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    (out / "ck-2" / "state.pt").write_bytes(b"written over by something else")
    found = lineage_("checkpoint", "preserve", out / "ck-2")
    assert found.code == 1
    assert "LIN-C005: state.pt has other content than was recorded; it is kept as it is now" in found.out
    assert verify(ledger).damage == []


def test_a_checkpoint_of_one_file_in_a_store_goes_into_the_ledger_that_its_sidecar_names(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.store.clear()
    for p in (out / "ck-2").iterdir():
        store.pipe_file(f"/bucket/ck-2/{p.name}", p.read_bytes())
    found = lineage_("checkpoint", "preserve", "memory://bucket/ck-2")
    assert found.code == 0, found.err
    kept = newest(ledger, "preserved")
    assert (kept.source, kept.files) == ("memory://bucket/ck-2", 2)
    assert len(marks(ledger, "preserved")) == 1
    gone = lineage_("checkpoint", "preserve", "memory://bucket/gone")
    assert (gone.code, "there is nothing at memory://bucket/gone" in gone.err) == (2, True)
    store.store.clear()


def test_a_copy_at_a_url_is_on_record_with_its_place(out: Path, ledger: Path, lineage_: Run) -> None:
    fsspec = pytest.importorskip("fsspec")
    found = lineage_("checkpoint", "preserve", out / "ck-2", "--to", "memory://vault")
    assert found.code == 0, found.err
    kept = newest(ledger, "preserved")
    assert kept.at.startswith("memory://vault/checkpoint-")
    assert kept.at in found.out
    assert verify(ledger).damage == []
    fsspec.filesystem("memory").store.clear()


def test_without_a_ledger_it_says_that_one_is_to_be_named_and_takes_it(
    tmp_path: Path, ledger: Path, out: Path, lineage_: Run
) -> None:
    stray = tmp_path / "stray.pt"
    stray.write_bytes(b"weights")
    refused = lineage_("checkpoint", "preserve", stray)
    assert (refused.code, "--ledger FOLDER" in refused.err) == (4, True)
    found = lineage_("checkpoint", "preserve", stray, "--ledger", ledger)
    assert found.code == 0
    assert "no save to this place is on record" in found.out
    assert verify(ledger).damage == []


def test_a_damaged_sidecar_does_not_keep_a_checkpoint_from_being_kept(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    (out / "ck-2" / "lineage.json").write_text("{ torn")
    found = lineage_("checkpoint", "preserve", out / "ck-2")
    assert found.code == 0, found.err
    assert len(marks(ledger, "preserved")) == 1, "the ledger knows its path"


def test_hold_keeps_it_from_the_rotation_in_its_place_until_release(
    out: Path, ledger: Path, tmp_path: Path, lineage_: Run
) -> None:
    loop = Loop()
    with attach(loop, tmp_path / "runs", run_id="healthy") as rec:
        loop.run(rec, 2)
        rec.checkpoint(loop.save(tmp_path / "good"), step=2)
    protection = Protection(tmp_path / "runs" / "healthy")
    assert protection.holds(tmp_path / "good") is None
    refused = lineage_("checkpoint", "hold", "good")
    assert (refused.code, "a reason is needed" in refused.err) == (2, True)
    assert lineage_("checkpoint", "hold", "good", "--why", "for the paper").code == 0
    assert protection.holds(tmp_path / "good") == "it is held by hand: for the paper"
    assert [m["mark"] for m in sidecar(tmp_path / "good")["marks"]] == ["held"]
    assert lineage_("checkpoint", "release", "good", "--why", "published").code == 0
    assert protection.holds(tmp_path / "good") is None


def test_a_release_says_where_an_open_incident_keeps_the_checkpoint_all_the_same(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    """Who releases it to make room is not left to wonder why it stays."""
    assert lineage_("incident", "preserve", "r", "--dry-run").code == 0
    found = lineage_("checkpoint", "release", out / "ck-6", "--why", "room")
    assert found.code == 0
    assert "rotation still leaves it: it is the first bad checkpoint of the open incident" in found.out


def test_an_incidents_evidence_is_kept_by_moves_where_that_is_asked_for(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    found = lineage_("incident", "preserve", "r", "--method", "move")
    assert found.code == 0, found.out
    assert found.out.count("moved, verified") == 2
    assert {p.name for p in out.with_name("out.kept").iterdir()} == {"ck-2", "ck-6"}
    shutil.rmtree(out)
    assert verify(ledger).damage == []
    again = lineage_("incident", "preserve", "r")
    assert again.out.count("moved, verified") == 2, "they are found where they are now"


def test_an_incident_says_the_space_of_each_part_before_and_what_it_took(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    found = lineage_("incident", "preserve", "r")
    for what in ("last good checkpoint", "first bad checkpoint", "rank files"):
        assert f"{what}: " in found.out
    kept = [r.payload for r in Ledger(ledger).of("preserved")]
    assert f"{sum(p.bytes for p in kept):,} bytes of disk are used by it" in found.out
    assert lineage_("incident", "preserve", "r", "--method", "hardlink").code == 2


@pytest.mark.parametrize("then", ["nothing", "released", "another copy"])
def test_what_was_preserved_is_held_after_the_original_is_gone(
    out: Path, ledger: Path, tmp_path: Path, lineage_: Run, then: str
) -> None:
    """Also where a person released it, or made a further copy that was lost: what is stored still counts."""
    assert lineage_("incident", "preserve", "r").code == 0
    if then == "released":
        assert lineage_("checkpoint", "release", out / "ck-2", "--why", "room").code == 0
    elif then == "another copy":
        assert lineage_("checkpoint", "preserve", out / "ck-2", "--to", tmp_path / "vault").code == 0
        (copy,) = (tmp_path / "vault").iterdir()
        evidence_copy.remove(copy)
    shutil.rmtree(out)
    walked = " ".join(lineage_("incident", "walk", "r").out.split())
    assert "was kept" not in walked
    assert "is not there any more" not in walked
    again = lineage_("incident", "preserve", "r")
    assert again.code == 0, again.out
    assert "kept last good checkpoint" in again.out
    assert "kept first bad checkpoint" in again.out


def test_a_last_good_checkpoint_that_is_gone_is_named_and_the_rest_is_kept(
    out: Path, ledger: Path, lineage_: Run
) -> None:
    shutil.rmtree(out / "ck-2")
    found = lineage_("incident", "preserve", "r")
    assert found.code == 1
    assert f"not kept: last good checkpoint: {out / 'ck-2'} is gone" in found.out
    assert "kept first bad checkpoint" in found.out
