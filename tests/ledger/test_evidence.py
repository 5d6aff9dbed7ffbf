"""The evidence store: verified copies, written once, that neither rotation nor overwriting can reach."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest
import torch

from lineage.ledger import evidence, files
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
    progress: list[tuple[int, int]] = []
    record = evidence.preserve(ledger, checkpoint, WHAT, progress=lambda *done: progress.append(done))
    copy = ledger / record.location
    found = content(copy)
    assert found.pop(evidence.MANIFEST)
    assert found == content(checkpoint)
    size = sum(map(len, found.values()))
    assert (record.files, record.bytes, record.verified, record.what) == (3, size, True, WHAT)
    assert record.root == files.manifest(checkpoint, sorted(p for p in checkpoint.rglob("*.*"))).root
    assert copy.name.startswith("last-good-checkpoint-")
    assert record.root.partition(":")[2].startswith(copy.name.rpartition("-")[2])
    assert progress[-1] == (size, size)
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
    folders = {stat.S_IMODE(p.stat().st_mode) for p in copy.rglob("*") if p.is_dir()}
    assert modes == {0o400}
    assert folders == {0o500}


def test_the_same_content_is_kept_once(checkpoint: Path, ledger: Path) -> None:
    first = evidence.preserve(ledger, checkpoint, WHAT)
    inodes = {p.stat().st_ino for p in ledger.rglob("*")}
    moved = checkpoint.rename(checkpoint.with_name("elsewhere"))
    second = evidence.preserve(ledger, moved, WHAT)
    assert (second.location, second.root) == (first.location, first.root)
    assert {p.stat().st_ino for p in ledger.rglob("*")} == inodes


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


def test_a_copy_that_differs_is_an_error_and_is_not_kept(checkpoint: Path, ledger: Path) -> None:
    """As when the training overwrites the checkpoint while it is copied."""

    def overwrite(done: int, total: int) -> None:
        (checkpoint / "shards" / "0.bin").write_bytes(b"new" * 1_000_000)

    with pytest.raises(evidence.EvidenceError, match=r"shards/0\.bin has other content") as e:
        evidence.preserve(ledger, checkpoint, WHAT, progress=overwrite)
    assert "preserve again" in str(e.value)
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


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_an_interrupted_copy_leaves_nothing(
    checkpoint: Path, ledger: Path, interruption: BaseException
) -> None:
    def stop(done: int, total: int) -> None:
        raise interruption

    with pytest.raises((KeyboardInterrupt, evidence.EvidenceError)):
        evidence.preserve(ledger, checkpoint, WHAT, progress=stop)
    assert held(ledger) == []


def test_a_killed_copy_leaves_nothing_under_the_final_name_and_can_be_made_again(
    checkpoint: Path, ledger: Path
) -> None:
    pid = os.fork()
    if pid == 0:
        evidence.preserve(ledger, checkpoint, WHAT, progress=lambda *done: signal.pause())
        os._exit(1)
    end = time.monotonic() + 120
    while not list(ledger.glob("evidence/.*/*.json")) and time.monotonic() < end:
        time.sleep(0.005)
    kill(pid)
    assert reap(pid) == -9
    left = held(ledger)
    assert left, "the copy had not begun"
    assert all(p.name.startswith(".") for p in left)
    assert verify(ledger).damage == []
    record = evidence.preserve(ledger, checkpoint, WHAT)
    assert record.verified
    assert verify(ledger).damage == []
