"""Shared extents, on a real btrfs; and why a hard link is never evidence."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from lineage.ledger import evidence, files
from lineage.ledger.verify import verify

WHAT = "last good checkpoint"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A btrfs in a file. Skips where it cannot be made or mounted."""
    mkfs, mount = (
        shutil.which("mkfs.btrfs", path=f"{os.environ['PATH']}:/sbin:/usr/sbin"),
        shutil.which("mount"),
    )
    if mkfs is None or mount is None:
        pytest.skip("no mkfs.btrfs here")
    image, at = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as f:
        f.truncate(128 << 20)
    at.mkdir()
    subprocess.run([mkfs, "-q", str(image)], check=True, capture_output=True)
    done = subprocess.run(
        [mount, "-o", "loop", str(image), str(at)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a btrfs cannot be mounted here: {done.stderr}")
    yield at
    ctypes.CDLL(None).umount2(bytes(at), 2)


def used(disk: Path) -> int:
    """Bytes that are taken on a disk, once all is written."""
    os.sync()
    usage = os.statvfs(disk)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


@pytest.fixture
def checkpoint(disk: Path) -> Path:
    path = disk / "out" / "checkpoint-10"
    path.mkdir(parents=True)
    (path / "model.pt").write_bytes(os.urandom(20 << 20))
    (path / "empty").write_bytes(b"")
    return path


def test_extents_are_shared_so_that_evidence_takes_no_space(disk: Path, checkpoint: Path) -> None:
    ledger, before = disk / "ledger", used(disk)
    assert evidence.cost(ledger, checkpoint).way == "reflink"
    record = evidence.preserve(ledger, checkpoint, WHAT)
    assert (record.method, record.verified, record.files) == ("reflink", True, 2)
    assert used(disk) - before < 4 << 20
    assert verify(ledger).damage == []


def test_it_survives_an_overwrite_in_place_and_the_removal_of_the_original(
    disk: Path, checkpoint: Path
) -> None:
    ledger, before = disk / "ledger", (checkpoint / "model.pt").read_bytes()
    copy = ledger / evidence.preserve(ledger, checkpoint, WHAT, method="reflink").location
    with (checkpoint / "model.pt").open("r+b") as f:
        f.write(b"x" * 4096)
    assert (copy / "model.pt").read_bytes() == before
    shutil.rmtree(checkpoint)
    assert (copy / "model.pt").read_bytes() == before
    assert verify(ledger).damage == []


def test_a_disk_with_no_room_for_a_copy_still_takes_it(disk: Path, checkpoint: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
    with (disk / "ballast").open("r+b") as f:
        f.truncate(f.seek(0, os.SEEK_END) - (8 << 20))
    os.sync()
    with pytest.raises(evidence.EvidenceError, match="--method move"):
        evidence.preserve(disk / "ledger", checkpoint, WHAT, method="copy")
    record = evidence.preserve(disk / "ledger", checkpoint, WHAT)
    assert record.method == "reflink"


def test_a_copy_can_be_asked_for_all_the_same(disk: Path, checkpoint: Path) -> None:
    """For a disk that is going bad: shared extents would go with the original's."""
    before = used(disk)
    assert evidence.preserve(disk / "ledger", checkpoint, WHAT, method="copy").method == "copy"
    assert used(disk) - before > 16 << 20


def test_where_extents_cannot_be_shared_asking_for_it_is_a_clear_error(tmp_path: Path) -> None:
    source = tmp_path / "model.pt"
    source.write_bytes(b"weights")
    if evidence.cost(tmp_path / "ledger", source).way == "reflink":
        pytest.skip("the file system of the test shares extents")
    with pytest.raises(evidence.EvidenceError, match="cannot share extents") as e:
        evidence.preserve(tmp_path / "ledger", source, WHAT, method="reflink")
    assert "Nothing was changed; leave --method out" in str(e.value)


def test_torch_save_writes_into_the_inode_that_a_hard_link_shows(tmp_path: Path) -> None:
    """So a hard link is no evidence: it shows the later save."""
    path, link = tmp_path / "model.pt", tmp_path / "link.pt"
    torch.save({"w": torch.zeros(1000)}, path)
    os.link(path, link)
    ledger, before = tmp_path / "ledger", files.file_digest(path)
    copy = ledger / evidence.preserve(ledger, path, WHAT).location
    torch.save({"w": torch.ones(1000)}, path)
    assert link.stat().st_ino == path.stat().st_ino
    assert files.file_digest(link) != before
    assert files.file_digest(copy / "model.pt") == before
    assert torch.equal(torch.load(copy / "model.pt")["w"], torch.zeros(1000))


def test_a_second_save_of_torch_distributed_checkpoint_writes_into_the_inode_that_a_hard_link_shows(
    tmp_path: Path,
) -> None:
    """DCP opens its shards for writing again, and renames its metadata only."""
    folder, links = tmp_path / "step-10", tmp_path / "links"
    dcp.save({"w": torch.zeros(1000)}, checkpoint_id=folder, no_dist=True)
    links.mkdir()
    for p in folder.iterdir():
        os.link(p, links / p.name)
    [shard] = folder.glob("*.distcp")
    ledger, before = tmp_path / "ledger", files.file_digest(shard)
    copy = ledger / evidence.preserve(ledger, folder, WHAT).location
    dcp.save({"w": torch.ones(1000)}, checkpoint_id=folder, no_dist=True)
    assert (links / shard.name).stat().st_ino == shard.stat().st_ino
    assert files.file_digest(links / shard.name) != before
    back = {"w": torch.full((1000,), 5.0)}
    dcp.load(back, checkpoint_id=copy, no_dist=True)
    assert torch.equal(back["w"], torch.zeros(1000))
    assert verify(ledger).damage == []
