"""Bad input: what is not a checkpoint, cannot be read, leads out, or changes meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lineage.checkpoints import CheckpointError, folder, lack_of, listing, look, reading, safetensors_file
from lineage.checkpoints.formats import opaque

from .made import codes, said


def tensors(path: Path, names: dict[str, list[int]], *, short: int = 0) -> Path:
    """A safetensors file of float32 tensors, without the library."""
    header, at = {}, 0
    for name, shape in names.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(at - short))
    return path


def test_an_empty_folder_says_that_it_is_empty(tmp_path: Path) -> None:
    c = look(tmp_path)
    assert (c.format, c.worst) == ("opaque", "fails")
    assert "no file" in said(c, "LIN-K016")


def test_nothing_there_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be opened"):
        look(tmp_path / "gone")


def test_a_link_that_leads_to_itself_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CheckpointError, match="leads to itself"):
        look(tmp_path / "a")


def test_loops_of_links_inside_are_not_entered(tmp_path: Path) -> None:
    tensors(tmp_path / "model.safetensors", {"w": [2]})
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    c = look(tmp_path)
    assert c.files == 1
    assert "links to folders are not followed" in said(c, "LIN-K014")
    assert "leads nowhere, or to itself" in said(c, "LIN-K014")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tensors(tmp_path / "secret.safetensors", {"w": [2]})
    (tmp_path / "in" / "model.safetensors").symlink_to(tmp_path / "secret.safetensors")
    tensors(tmp_path / "in" / "model-00001-of-00001.safetensors", {"v": [2]})
    c = look(tmp_path / "in")
    assert "outside the checkpoint" in said(c, "LIN-K014")
    assert [t.name for t in c.tensors] == ["v"]


def test_links_into_the_blobs_of_the_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    (repo / "blobs").mkdir(parents=True)
    (repo / "snapshots" / "abc").mkdir(parents=True)
    tensors(repo / "blobs" / "0123", {"w": [2]})
    (repo / "snapshots" / "abc" / "model.safetensors").symlink_to("../../blobs/0123")
    c = look(repo / "snapshots" / "abc")
    assert [t.name for t in c.tensors] == ["w"]
    assert "LIN-K014" not in codes(c)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a\\..\\b", "a/../../b"])
def test_an_index_that_names_a_file_outside_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tensors(tmp_path / "secret.safetensors", {"w": [2]})
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    c = look(tmp_path / "in")
    assert "leads out of the checkpoint" in said(c, "LIN-K014")
    assert c.tensors == []


def test_a_fifo_in_the_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    tensors(tmp_path / "adapter_model.safetensors", {"w": [2]})
    assert "neither a folder nor a regular file" in said(look(tmp_path), "LIN-K014")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    tensors(tmp_path / "model.safetensors", {"w": [2]}).chmod(0)
    assert "Permission denied" in said(look(tmp_path), "LIN-K015")


def test_a_refusal_by_the_system_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every file can be read, so that the system's refusal is put in its place."""
    tensors(tmp_path / "model.safetensors", {"w": [2]})

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "open", refuse)
    assert "cannot be read (Permission denied)" in said(look(tmp_path), "LIN-K015")


def test_a_file_that_changes_between_listing_and_reading_is_named(tmp_path: Path) -> None:
    path = tensors(tmp_path / "model.safetensors", {"w": [2]})
    listed = listing.open_path(tmp_path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(CheckpointError, match="still being written"):
        safetensors_file.read(listed, "model.safetensors")


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = tensors(tmp_path / "model.safetensors", {"w": [2]})
    f = listing.open_path(tmp_path).open("model.safetensors")
    f.read(8)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="while it was read"):
        f.close()


def test_shards_and_their_index_are_held_against_each_other(tmp_path: Path) -> None:
    one, two = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
    tensors(tmp_path / one, {"a": [2], "extra": [2]})
    tensors(tmp_path / two, {"b": [200]}, short=4)
    known = {"a": one, "lost": one, "b": two, "c": "model-00003-of-00003.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": known}))
    c = look(tmp_path)
    assert "1 of the 3 files" in said(c, "LIN-K001")
    assert "1 of 4 tensors" in said(c, "LIN-K001")
    assert "holds lost, and it does not" in said(c, "LIN-K003")
    assert "does not name: loaders pass over it" in said(c, "LIN-K003")
    assert "is cut off" in said(c, "LIN-K002")
    assert c.parts["weights"].status == "partial"


def test_shards_of_an_earlier_save_with_more_shards_are_named(tmp_path: Path) -> None:
    tensors(tmp_path / "model-00001-of-00001.safetensors", {"a": [2]})
    tensors(tmp_path / "model-00002-of-00003.safetensors", {"a": [2]})
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "of another save" in said(look(tmp_path), "LIN-K012")


@pytest.mark.parametrize("length", [0, 5, 8, 1 << 62])
def test_a_header_with_a_length_that_cannot_be_is_refused(length: int, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
    assert "LIN-K002" in codes(look(tmp_path))


def test_an_unknown_folder_is_opaque_with_digests_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"")
    c = look(tmp_path)
    assert c.format == "opaque"
    assert set(c.digests) == {"a", "b/c"}
    assert c.digests["a"] == "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


def test_a_folder_of_checkpoints_is_told_from_a_checkpoint(tmp_path: Path) -> None:
    for step in (5, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        tensors(tmp_path / f"checkpoint-{step}" / "model.safetensors", {"w": [2]})
    c = look(tmp_path)
    assert c.worst == "fine"
    assert "checkpoint-5, checkpoint-10" in said(c, "LIN-K016")
    assert c.digests == {}


def test_digest_of_an_unknown_file_that_cannot_be_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"abc")

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(opaque.files, "file_digest", refuse)
    assert "Permission denied" in said(look(tmp_path), "LIN-K015")


def test_sidecars_are_no_part_of_an_unknown_folder(tmp_path: Path) -> None:
    for name in ("a", "lineage.json", "lineage.rank1.json"):
        (tmp_path / name).write_bytes(b"abc")
    assert set(look(tmp_path).digests) == {"a"}


def test_in_training_only_what_is_certain_is_said_after_a_second_look(tmp_path: Path) -> None:
    one = "model-00001-of-00002.safetensors"
    tensors(tmp_path / one, {"a": [2]})
    known = {"a": one, "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": known}))
    assert [line.rpartition(" ")[2] for line in lack_of(tmp_path, wait=0)] == ["(LIN-K001)"]
    assert lack_of(tmp_path / "gone", wait=0) == []


def test_in_training_a_file_that_another_rank_writes_meanwhile_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    tensors(tmp_path / one, {"a": [2]})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": one, "b": two}}))
    monkeypatch.setattr(reading.time, "sleep", lambda s: tensors(tmp_path / two, {"b": [2]}))
    assert lack_of(tmp_path) == []
