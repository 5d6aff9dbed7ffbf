"""Sidecars and manifests: what lies beside a checkpoint, and how its files are told apart."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from uuid6 import uuid7

import schemas as s
from lineage.ledger import files, sidecars

from .helpers import RUN, segment, small_disk


def sidecar(rank: int = 0, **more: Any) -> s.Sidecar:
    """A sidecar with what is obligatory."""
    uid = str(uuid7())
    checkpoint = s.Checkpoint(uid=str(uuid7()), step=10, lr_ahead={11: [3e-4, float("nan")]})
    return s.Sidecar(run=RUN, rank=rank, segment=segment(uid), checkpoint=checkpoint, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint folder with files in it and in a folder below."""
    path = tmp_path / "step-10"
    (path / "shards").mkdir(parents=True)
    (path / "model.pt").write_bytes(b"weights")
    (path / "shards" / "0.distcp").write_bytes(b"shard" * 1000)
    return path


def test_a_folder_gets_lineage_json_and_reads_back_the_same(folder: Path) -> None:
    written = sidecar(ancestors=[str(uuid7())], ledger="/somewhere")
    assert sidecars.write(folder, written) == folder / "lineage.json"
    read = sidecars.read(folder)
    assert read is not None
    assert read.model_dump_json(by_alias=True) == written.model_dump_json(by_alias=True)


def test_a_file_checkpoint_gets_a_sidecar_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(b"weights")
    assert sidecars.write(path, sidecar()) == tmp_path / "ckpt.pt.lineage.json"
    read = sidecars.read(path)
    assert read is not None
    assert read.checkpoint.step == 10
    assert path.read_bytes() == b"weights"


def test_a_folder_keeps_its_time_by_which_rotations_go(folder: Path) -> None:
    """A sidecar comes when the files are digested: a folder that it made newer would be taken for a later save."""
    os.utime(folder, ns=(10**18, 10**18))
    sidecars.write(folder, sidecar())
    assert folder.stat().st_mtime_ns == 10**18


def test_each_rank_has_a_sidecar_of_its_own(folder: Path) -> None:
    for rank in (0, 1, 2):
        sidecars.write(folder, sidecar(rank))
    assert (folder / "lineage.rank2.json").is_file()
    found = [sidecars.read(folder, rank) for rank in range(4)]
    assert [f and f.rank for f in found] == [0, 1, 2, None]


def test_writing_again_replaces_and_leaves_no_other_file(folder: Path) -> None:
    before = set(folder.iterdir())
    sidecars.write(folder, sidecar())
    second = sidecar()
    sidecars.write(folder, second)
    read = sidecars.read(folder)
    assert read is not None
    assert read.checkpoint.uid == second.checkpoint.uid
    assert set(folder.iterdir()) == before | {folder / "lineage.json"}


def test_a_sidecar_without_room_is_an_error_and_leaves_the_earlier_one(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        first = sidecar()
        sidecars.write(disk, first)
        with pytest.raises(OSError, match="No space left"):
            sidecars.write(disk, sidecar(ledger="x" * 100_000))
        assert [p.name for p in disk.iterdir()] == ["lineage.json"]
        read = sidecars.read(disk)
        assert read is not None
        assert read.checkpoint.uid == first.checkpoint.uid


def test_a_checkpoint_without_a_sidecar_or_that_is_gone_has_none(folder: Path, tmp_path: Path) -> None:
    assert sidecars.read(folder) is None
    assert sidecars.read(folder / "model.pt") is None
    assert sidecars.read(tmp_path / "gone") is None
    assert sidecars.read(folder / "model.pt" / "below") is None


@pytest.mark.parametrize("text", [b"", b"{", b'{"schema": "lineage/sid', b"\xff\xfe\x00"])
def test_a_damaged_sidecar_is_an_error_that_names_it_and_clears_the_checkpoint(
    folder: Path, text: bytes
) -> None:
    (folder / "lineage.json").write_bytes(text)
    with pytest.raises(sidecars.SidecarError, match="is not JSON") as e:
        sidecars.read(folder)
    assert str(folder / "lineage.json") in str(e.value)
    assert "the checkpoint itself is untouched" in str(e.value)


@pytest.mark.parametrize("schema", ["lineage/sidecar/2-0-0", "lineage/sidecar/10-0-0", "other", None, 7])
def test_an_unknown_major_version_is_an_error_that_says_what_to_install(folder: Path, schema: object) -> None:
    data = json.loads(sidecar().model_dump_json(by_alias=True)) | {"schema": schema}
    (folder / "lineage.json").write_text(json.dumps(data))
    with pytest.raises(sidecars.SidecarError, match="Install the runlineage release that wrote it") as e:
        sidecars.read(folder)
    assert repr(schema) in str(e.value)
    assert s.SIDECAR_SCHEMA in str(e.value)


@pytest.mark.parametrize("text", ["[]", "7", "null"])
def test_json_that_is_no_object_is_an_error(folder: Path, text: str) -> None:
    (folder / "lineage.json").write_text(text)
    with pytest.raises(sidecars.SidecarError):
        sidecars.read(folder)


def test_a_newer_addition_is_read_without_loss(folder: Path) -> None:
    data = json.loads(sidecar().model_dump_json(by_alias=True))
    data |= {"schema": "lineage/sidecar/1-3-0", "from_the_future": [1]}
    (folder / "lineage.json").write_text(json.dumps(data))
    read = sidecars.read(folder)
    assert read is not None
    assert json.loads(read.model_dump_json(by_alias=True))["from_the_future"] == [1]


def test_a_sidecar_that_does_not_fit_or_cannot_be_read_is_an_error(folder: Path) -> None:
    (folder / "lineage.json").write_text(json.dumps({"schema": s.SIDECAR_SCHEMA, "run": 7}))
    with pytest.raises(sidecars.SidecarError, match="does not fit its schema"):
        sidecars.read(folder)
    (folder / "lineage.json").unlink()
    (folder / "lineage.json").mkdir()
    with pytest.raises(sidecars.SidecarError, match="cannot be read"):
        sidecars.read(folder)


def test_the_manifest_leaves_every_sidecar_out(folder: Path) -> None:
    before = files.manifest(folder)
    for rank in (0, 1, 12):
        sidecars.write(folder, sidecar(rank))
        sidecars.write(folder / "model.pt", sidecar(rank))
    (folder / f".lineage.lineage.json.{os.getpid()}.tmp").write_text("left by a killed process")
    assert files.manifest(folder) == before
    assert [e.path for e in before.files] == ["model.pt", "shards/0.distcp"]


def test_a_manifest_holds_blake3_of_each_file_under_one_sha256_root(folder: Path) -> None:
    manifest = files.manifest(folder)
    weights, shard = b"weights", b"shard" * 1000
    text = "lineage-manifest-v1\n"
    for path, data in (("model.pt", weights), ("shards/0.distcp", shard)):
        text += f"{path} {len(data)} blake3:{blake3(data).hexdigest()}\n"
    assert manifest.root == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert [(e.size, e.digest) for e in manifest.files] == [
        (len(d), "blake3:" + blake3(d).hexdigest()) for d in (weights, shard)
    ]


def test_a_single_file_has_a_manifest_too(folder: Path) -> None:
    manifest = files.manifest(folder / "model.pt")
    assert [e.path for e in manifest.files] == ["model.pt"]
    assert files.compare(folder / "model.pt", manifest) == []


def test_compare_says_nothing_of_equal_files(folder: Path) -> None:
    assert files.compare(folder, files.manifest(folder)) == []


def test_compare_names_changed_missing_and_resized_files(folder: Path) -> None:
    (folder / "extra.pt").write_bytes(b"12345")
    manifest = files.manifest(folder)
    (folder / "model.pt").write_bytes(b"Weights")
    (folder / "shards" / "0.distcp").write_bytes(b"shard")
    (folder / "extra.pt").unlink()
    assert files.compare(folder, manifest) == [
        "extra.pt is gone",
        "model.pt has other content than was recorded",
        "shards/0.distcp has 5 bytes, 5,000 were recorded",
    ]
