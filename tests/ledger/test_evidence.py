"""The evidence store: verified copies, written once, that neither rotation nor overwriting can reach."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lineage.ledger import evidence, evidence_copy, evidence_held, files
from lineage.ledger.verify import verify

from .helpers import fill, kill, reap, small_disk

WHAT = "last good checkpoint"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A real checkpoint folder."""
    path = tmp_path / "checkpoints" / "step-10"
    (path / "shards").mkdir(parents=True)
    torch.save({"w": torch.arange(1000.0)}, path / "model.pt")
    (path / "shards" / "0.bin").write_bytes(os.urandom(3_000_000))
    (path / "lineage.json").write_text("{}")
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def held(ledger: Path) -> list[Path]:
    """All that lies in the store, hidden or not."""
    return sorted(evidence.folder(ledger).iterdir())


def content(path: Path) -> dict[str, bytes]:
    """Relative path -> bytes."""
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_every_file_is_copied_sidecars_too_and_the_record_says_what_was_kept(
    checkpoint: Path, ledger: Path
) -> None:
    progress: list[tuple[str, int, int]] = []
    record = evidence.preserve(ledger, checkpoint, WHAT, progress=lambda *done: progress.append(done))
    copy = ledger / record.location
    found = content(copy)
    assert found.pop(evidence.MANIFEST)
    assert found == content(checkpoint)
    size = sum(map(len, found.values()))
    assert (record.files, record.bytes, record.verified, record.what) == (3, size, True, WHAT)
    assert record.root == files.manifest(checkpoint, sorted(p for p in checkpoint.rglob("*.*"))).root
    assert copy.name.startswith("last-good-checkpoint-")
    own = files.manifest(checkpoint).root.partition(":")[2]
    assert own.startswith(copy.name.rpartition("-")[2]), "named by its content without sidecars"
    assert {done[0]: done[1:] for done in progress} == dict.fromkeys(
        ("digesting", "copying", "verifying"), (size, size)
    )
    assert verify(ledger).damage == []


def test_a_single_file_can_be_kept(checkpoint: Path, ledger: Path) -> None:
    record = evidence.preserve(ledger, checkpoint / "model.pt", "first bad batch")
    assert (ledger / record.location / "model.pt").read_bytes() == (checkpoint / "model.pt").read_bytes()
    assert record.files == 1


def test_only_the_named_members_are_kept(checkpoint: Path, ledger: Path) -> None:
    record = evidence.preserve(ledger, checkpoint, WHAT, members=[checkpoint / "shards" / "0.bin"])
    assert set(content(ledger / record.location)) == {"shards/0.bin", evidence.MANIFEST}


def test_evidence_is_read_only_for_its_owner_and_closed_to_others(checkpoint: Path, ledger: Path) -> None:
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location
    modes = {stat.S_IMODE(p.stat().st_mode) for p in copy.rglob("*") if p.is_file()}
    folders = {stat.S_IMODE(p.stat().st_mode) for p in [copy, *copy.rglob("*")] if p.is_dir()}
    assert modes == {0o400}
    assert folders == {0o500}


def test_the_same_content_is_kept_once_under_whatever_name_and_place(checkpoint: Path, ledger: Path) -> None:
    first = evidence.preserve(ledger, checkpoint, WHAT)
    inodes = {p.stat().st_ino for p in evidence.folder(ledger).rglob("*")}
    moved = checkpoint.rename(checkpoint.with_name("elsewhere"))
    said: list[str] = []
    second = evidence.preserve(ledger, moved, "first bad checkpoint", say=said.append)
    assert (second.location, second.root) == (first.location, first.root)
    assert {p.stat().st_ino for p in evidence.folder(ledger).rglob("*")} == inodes
    assert "holds this content already; it was verified" in said[0]


def test_a_mark_in_the_sidecar_makes_it_no_other_checkpoint(checkpoint: Path, ledger: Path) -> None:
    """Else an incident would copy a hundred gigabytes again for a line in lineage.json."""
    first = evidence.preserve(ledger, checkpoint, WHAT)
    (checkpoint / "lineage.json").write_text('{"marks": ["quarantined"]}')
    second = evidence.preserve(ledger, checkpoint, WHAT)
    assert (second.location, second.root) == (first.location, first.root)
    assert (ledger / first.location / "lineage.json").read_text() == "{}"
    assert verify(ledger).damage == []


def test_a_name_that_is_taken_by_other_content_is_not_written_over(
    checkpoint: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where two digests began with the same sixteen characters."""
    monkeypatch.setattr(evidence_held, "name", lambda what, known: "taken")
    first = evidence.preserve(ledger, checkpoint, WHAT)
    (checkpoint / "model.pt").write_bytes(b"other")
    second = evidence.preserve(ledger, checkpoint, WHAT)
    assert (first.location, second.location) == ("evidence/taken", "evidence/taken-2")
    assert verify(ledger).damage == []


def test_other_content_is_kept_beside_it(checkpoint: Path, ledger: Path) -> None:
    first = evidence.preserve(ledger, checkpoint, WHAT)
    (checkpoint / "model.pt").write_bytes(b"other")
    second = evidence.preserve(ledger, checkpoint, WHAT)
    assert held(ledger) == sorted([ledger / first.location, ledger / second.location])
    assert verify(ledger).damage == []


def test_evidence_survives_the_removal_of_the_original(checkpoint: Path, ledger: Path) -> None:
    before = content(checkpoint)
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location
    shutil.rmtree(checkpoint)
    assert {k: v for k, v in content(copy).items() if k != evidence.MANIFEST} == before
    assert verify(ledger).damage == []


def test_evidence_survives_torch_save_over_the_original_where_a_hard_link_would_not(
    checkpoint: Path, ledger: Path
) -> None:
    original = checkpoint / "model.pt"
    os.link(original, checkpoint.parent / "hard-link.pt")
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location
    before = original.read_bytes()
    torch.save({"w": torch.full((1000,), float("nan"))}, original)
    assert (checkpoint.parent / "hard-link.pt").read_bytes() != before, "torch.save made a new file: no test"
    assert (copy / "model.pt").read_bytes() == before
    assert torch.equal(torch.load(copy / "model.pt")["w"], torch.arange(1000.0))


def test_a_link_to_a_file_is_kept_as_the_file_it_leads_to(checkpoint: Path, ledger: Path) -> None:
    blob = checkpoint.parent / "blob"
    blob.write_bytes(b"from a hub cache")
    (checkpoint / "linked.bin").symlink_to(blob)
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location / "linked.bin"
    blob.unlink()
    assert not copy.is_symlink()
    assert copy.read_bytes() == b"from a hub cache"


@pytest.mark.parametrize("make", ["gone", "empty"])
def test_a_source_that_is_gone_or_empty_is_a_clear_error(tmp_path: Path, ledger: Path, make: str) -> None:
    source = tmp_path / make
    if make == "empty":
        source.mkdir()
    with pytest.raises(evidence.EvidenceError, match="nothing could be preserved of it") as e:
        evidence.preserve(ledger, source, WHAT)
    assert str(source) in str(e.value)
    assert not evidence.folder(ledger).exists()


def test_a_member_that_rotation_took_meanwhile_is_a_clear_error(checkpoint: Path, ledger: Path) -> None:
    with pytest.raises(evidence.EvidenceError, match="could not be preserved") as e:
        evidence.preserve(ledger, checkpoint, WHAT, members=[checkpoint / "rotated.pt"])
    assert "rotated.pt" in str(e.value)


def test_too_little_room_is_said_in_bytes_before_anything_is_copied(checkpoint: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with pytest.raises(evidence.EvidenceError, match="has room for") as e:
            evidence.preserve(disk, checkpoint, WHAT)
        assert f"{sum(map(len, content(checkpoint).values())):,} bytes" in str(e.value)
        assert held(disk) == []


def test_room_that_runs_out_while_copying_leaves_nothing_half_made(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        usage = shutil.disk_usage(disk)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**12))
        with pytest.raises(evidence.EvidenceError, match="No space left"):
            evidence.preserve(disk, checkpoint, WHAT)
        assert held(disk) == []


def test_evidence_that_is_held_needs_no_room(tmp_path: Path) -> None:
    source = tmp_path / "small"
    source.write_bytes(b"x" * 9000)
    with small_disk(tmp_path / "disk") as disk:
        first = evidence.preserve(disk, source, WHAT)
        fill(disk)
        assert evidence.preserve(disk, source, WHAT).location == first.location


@pytest.mark.parametrize("when", ["digesting", "copying", "verifying"])
def test_a_source_that_is_written_to_meanwhile_is_an_error_and_nothing_is_kept(
    checkpoint: Path, ledger: Path, when: str
) -> None:
    """As when the training overwrites the checkpoint while it is copied."""

    def overwrite(doing: str, done: int, total: int) -> None:
        if doing == when:
            (checkpoint / "shards" / "0.bin").write_bytes(os.urandom(3_000_000))

    with pytest.raises(evidence.EvidenceError, match=r"shards/0\.bin has other content|changed while") as e:
        evidence.preserve(ledger, checkpoint, WHAT, progress=overwrite)
    assert "preserve again" in str(e.value)
    assert held(ledger) == []


def test_a_file_that_is_added_meanwhile_is_an_error_too(checkpoint: Path, ledger: Path) -> None:
    """A save that is still going on."""

    def add(doing: str, done: int, total: int) -> None:
        (checkpoint / "optimizer.pt").write_bytes(b"comes last")

    with pytest.raises(evidence.EvidenceError, match="changed while they were preserved"):
        evidence.preserve(ledger, checkpoint, WHAT, progress=add)
    assert held(ledger) == []


def test_held_evidence_that_was_changed_is_an_error_that_says_what_to_do(
    checkpoint: Path, ledger: Path
) -> None:
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location
    (copy / "model.pt").chmod(0o600)
    (copy / "model.pt").write_bytes(b"forged")
    with pytest.raises(evidence.EvidenceError, match="Move that folder away") as e:
        evidence.preserve(ledger, checkpoint, WHAT)
    assert str(copy) in str(e.value)


def test_a_file_that_was_put_into_held_evidence_is_named(checkpoint: Path, ledger: Path) -> None:
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT).location
    copy.chmod(0o700)
    (copy / "added.bin").write_bytes(b"")
    assert [d.text for d in verify(ledger).damage] == [
        "added.bin was not preserved with it, and was put there"
    ]


def test_a_disk_that_fails_leaves_nothing(checkpoint: Path, ledger: Path) -> None:
    def stop(doing: str, done: int, total: int) -> None:
        if doing == "copying":
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(evidence.EvidenceError, match="Input/output error"):
        evidence.preserve(ledger, checkpoint, WHAT, progress=stop)
    assert held(ledger) == []


def interrupt_at(count: int, doing: str = "copying") -> Any:
    """Ctrl-C once so many bytes are done."""

    def stop(now: str, done: int, total: int) -> None:
        if now == doing and done >= count:
            raise KeyboardInterrupt

    return stop


def test_an_interrupted_copy_has_no_name_and_the_next_call_goes_on_with_it(
    checkpoint: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within one big file: what is on the disk is not read from the source again."""
    monkeypatch.setattr(evidence_copy, "CHUNK", 1 << 20)
    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, checkpoint, WHAT, progress=interrupt_at(2_000_000))
    assert all(p.name.startswith(".") for p in held(ledger))
    assert verify(ledger).damage == []
    copied: list[int] = []
    said: list[str] = []
    record = evidence.preserve(
        ledger,
        checkpoint,
        WHAT,
        progress=lambda now, done, total: copied.append(done) if now == "copying" else None,
        say=said.append,
    )
    assert "was interrupted" in said[0]
    shard = next(n for n in copied if n > 1_000_000)
    assert shard > 2_000_000, "it began behind what was there"
    assert content(ledger / record.location).keys() == {*content(checkpoint), evidence.MANIFEST}
    assert held(ledger) == [ledger / record.location]
    assert verify(ledger).damage == []


def test_what_an_interrupted_copy_left_of_other_content_is_made_anew(checkpoint: Path, ledger: Path) -> None:
    """Its disk lost bytes, or somebody wrote into it: the last digests tell, and the file is copied from the start."""
    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, checkpoint, WHAT, progress=interrupt_at(1, "verifying"))
    [part] = evidence.folder(ledger).glob(".*/shards/0.bin")
    data = bytearray(part.read_bytes())
    data[5] ^= 1
    part.write_bytes(data)
    (part.parent / "old.bin").write_bytes(b"of another save")
    record = evidence.preserve(ledger, checkpoint, WHAT)
    found = content(ledger / record.location)
    assert found.pop(evidence.MANIFEST)
    assert found == content(checkpoint)


def test_digesting_that_was_interrupted_goes_on_too(checkpoint: Path, ledger: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, checkpoint, WHAT, progress=interrupt_at(3_000_000, "digesting"))
    assert list((ledger / "digests").iterdir())
    evidence.preserve(ledger, checkpoint, WHAT)
    assert list((ledger / "digests").iterdir()) == []


def test_two_processes_do_not_make_one_copy_at_once(checkpoint: Path, ledger: Path) -> None:
    def second(doing: str, done: int, total: int) -> None:
        if doing == "copying":
            with pytest.raises(evidence.EvidenceError, match="another process is preserving"):
                evidence.preserve(ledger, checkpoint, WHAT)

    evidence.preserve(ledger, checkpoint, WHAT, progress=second)
    assert verify(ledger).damage == []


def test_an_interrupted_copy_that_nobody_went_on_with_for_a_week_is_removed(
    checkpoint: Path, ledger: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, checkpoint, WHAT, progress=interrupt_at(1))
    [left] = [p for p in held(ledger) if p.is_dir()]
    for p in [left, *left.rglob("*")]:
        os.utime(p, (0, 0))
    (checkpoint / "model.pt").write_bytes(b"another save since")
    record = evidence.preserve(ledger, checkpoint, WHAT)
    assert held(ledger) == [ledger / record.location]


def test_a_killed_copy_leaves_nothing_under_the_final_name_and_can_be_made_again(
    checkpoint: Path, ledger: Path
) -> None:
    def wait(doing: str, done: int, total: int) -> None:
        if doing == "verifying":
            signal.pause()

    pid = os.fork()
    if pid == 0:
        evidence.preserve(ledger, checkpoint, WHAT, progress=wait)
        os._exit(1)
    end = time.monotonic() + 120
    while not list(ledger.glob("evidence/.*/shards/*.bin")) and time.monotonic() < end:
        time.sleep(0.005)
    kill(pid)
    assert reap(pid) == -9
    left = held(ledger)
    assert left, "the copy had not begun"
    assert all(p.name.startswith(".") for p in left)
    assert verify(ledger).damage == []
    record = evidence.preserve(ledger, checkpoint, WHAT)
    assert record.verified
    assert held(ledger) == [ledger / record.location]
    assert verify(ledger).damage == []


def test_a_folder_that_a_link_leads_to_is_kept_with_its_files_and_a_link_in_a_circle_is_said(
    checkpoint: Path, ledger: Path
) -> None:
    (checkpoint.parent / "shared" / "deep").mkdir(parents=True)
    (checkpoint.parent / "shared" / "deep" / "w.bin").write_bytes(b"behind a link")
    (checkpoint / "linked").symlink_to("../shared")
    (checkpoint / "again").symlink_to(".")
    (checkpoint / "nowhere.bin").symlink_to("../gone")
    said: list[str] = []
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT, say=said.append).location
    assert (copy / "linked" / "deep" / "w.bin").read_bytes() == b"behind a link"
    assert not (copy / "linked").is_symlink()
    assert sorted(t.partition(" ")[0].rpartition("/")[2] for t in said) == ["again", "nowhere.bin"]
    assert "leads back to a folder around it" in " ".join(said)
    assert "is a link to ../gone, which is not there" in " ".join(said)


def test_a_checkpoint_of_one_file_is_kept_with_its_sidecars(tmp_path: Path, ledger: Path) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(b"weights")
    for name in ("ckpt.pt.lineage.json", "ckpt.pt.rank3.lineage.json", "ckpt.pt2.lineage.json"):
        (tmp_path / name).write_text("{}")
    copy = ledger / evidence.preserve(ledger, path, WHAT).location
    assert set(content(copy)) == {
        "ckpt.pt",
        "ckpt.pt.lineage.json",
        "ckpt.pt.rank3.lineage.json",
        evidence.MANIFEST,
    }


def test_a_folder_of_thousands_of_files_is_kept(tmp_path: Path, ledger: Path) -> None:
    source = tmp_path / "step-1"
    for rank in range(40):
        (source / f"rank{rank}").mkdir(parents=True)
        for n in range(50):
            (source / f"rank{rank}" / f"{n}.bin").write_bytes(f"{rank} {n}".encode())
    record = evidence.preserve(ledger, source, WHAT, threads=2)
    assert record.files == 2000
    assert verify(ledger).damage == []


def test_a_copy_in_a_folder_of_ones_own_is_verified_there_and_known_by_the_ledger(
    checkpoint: Path, ledger: Path, tmp_path: Path
) -> None:
    record = evidence.preserve(ledger, checkpoint, WHAT, to=tmp_path / "vault")
    assert record.at is not None
    assert {k: v for k, v in content(Path(record.at)).items() if k != evidence.MANIFEST} == content(
        checkpoint
    )
    assert set(content(ledger / record.location)) == {evidence.MANIFEST, "where.json"}
    again = evidence.preserve(ledger, checkpoint, WHAT, to=tmp_path / "vault")
    assert again == record
    (Path(record.at) / "model.pt").chmod(0o600)
    (Path(record.at) / "model.pt").write_bytes(b"forged")
    assert [(d.code, d.file) for d in verify(ledger).damage] == [("LIN-J008", record.at)]


def test_the_cost_is_told_before_and_nothing_is_changed_by_asking(checkpoint: Path, ledger: Path) -> None:
    size, known = sum(map(len, content(checkpoint).values())), files.manifest(checkpoint)
    before = evidence.cost(ledger, checkpoint, known=known)
    assert (before.files, before.bytes, before.needed, before.way) == (3, size, size, "copy")
    assert before.free is not None
    assert before.free > size
    assert evidence.cost(ledger, checkpoint, "move").needed == 0
    assert list(ledger.rglob("*.*")) == []
    evidence.preserve(ledger, checkpoint, WHAT)
    after = evidence.cost(ledger, checkpoint, known=known)
    assert (after.needed, after.way) == (0, "held")
    (checkpoint / "other").mkdir()
    other = known.model_copy(update={"root": "sha256:" + "0" * 64, "files": known.files[:1]})
    assert evidence.cost(ledger, checkpoint, known=other).way == "copy"
