"""Moving a checkpoint out of the rotation's reach: no byte is copied, and what cannot be moved is left as it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lineage.ledger import evidence, evidence_move, files
from lineage.ledger.verify import verify

from .helpers import small_disk

WHAT = "last good checkpoint"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder in a folder that a rotation looks through."""
    path = tmp_path / "out" / "checkpoint-10"
    (path / "shards").mkdir(parents=True)
    (path / "model.pt").write_bytes(b"weights" * 1000)
    (path / "shards" / "0.bin").write_bytes(b"shard")
    (path / "lineage.json").write_text("{}")
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_it_lies_beside_the_rotations_folder_under_its_own_name_and_no_link_is_left(
    checkpoint: Path, ledger: Path
) -> None:
    inode, root = (checkpoint / "model.pt").stat().st_ino, files.manifest(checkpoint).root
    said: list[str] = []
    record = evidence.preserve(ledger, checkpoint, WHAT, method="move", say=said.append)
    now = checkpoint.parent.with_name("out.kept") / "checkpoint-10"
    assert (record.method, record.at, record.verified, record.root) == ("moved", str(now), True, root)
    assert (now / "model.pt").stat().st_ino == inode, "no byte was copied"
    assert os.listdir(checkpoint.parent) == []
    assert said == [f"{checkpoint} is now {now}: resume from there"]
    assert verify(ledger).damage == []


def test_it_is_write_protected_and_whoever_could_read_it_still_can(checkpoint: Path, ledger: Path) -> None:
    (checkpoint / "model.pt").chmod(0o664)
    now = Path(str(evidence.preserve(ledger, checkpoint, WHAT, method="move").at))
    assert (now / "model.pt").stat().st_mode & 0o777 == 0o444
    assert {p.stat().st_mode & 0o222 for p in [now, *now.rglob("*")]} == {0}


def test_moved_again_it_stays_where_it_is_and_is_verified(checkpoint: Path, ledger: Path) -> None:
    """`auto` too: what is out of reach already is not copied beside it."""
    first = evidence.preserve(ledger, checkpoint, WHAT, method="move")
    for method in ("move", "auto"):
        again = evidence.preserve(ledger, Path(str(first.at)), WHAT, method=method)
        assert (again.at, again.location, again.method) == (first.at, first.location, "moved")
    assert len(list(evidence.folder(ledger).iterdir())) == 1


def test_a_mark_in_its_sidecar_is_no_damage_and_a_changed_file_is(checkpoint: Path, ledger: Path) -> None:
    now = Path(str(evidence.preserve(ledger, checkpoint, WHAT, method="move").at))
    (now / "lineage.json").chmod(0o600)
    (now / "lineage.json").write_text('{"marks": []}')
    assert verify(ledger).damage == []
    (now / "model.pt").chmod(0o600)
    (now / "model.pt").write_bytes(b"forged!" * 1000)
    assert [(d.file, d.text) for d in verify(ledger).damage] == [
        (str(now), "model.pt has other content than was recorded")
    ]


@pytest.mark.parametrize("link", ["../blob", "/etc/hostname"])
def test_links_that_lead_out_of_it_are_refused_and_nothing_is_changed(
    checkpoint: Path, ledger: Path, link: str
) -> None:
    (checkpoint.parent / "blob").write_bytes(b"of another folder")
    (checkpoint / "linked.bin").symlink_to(link)
    with pytest.raises(evidence.EvidenceError, match="a link to something outside") as e:
        evidence.preserve(ledger, checkpoint, WHAT, method="move")
    assert "Leave --method out, and it is copied" in str(e.value)
    assert (checkpoint / "linked.bin").exists()
    assert not checkpoint.parent.with_name("out.kept").exists()


def test_links_within_it_go_with_it(checkpoint: Path, ledger: Path) -> None:
    (checkpoint / "latest.bin").symlink_to("shards/0.bin")
    now = Path(str(evidence.preserve(ledger, checkpoint, WHAT, method="move").at))
    assert (now / "latest.bin").read_bytes() == b"shard"


def test_a_link_to_a_checkpoint_is_refused(checkpoint: Path, ledger: Path) -> None:
    """Only the link would move, and the rotation would still delete what it leads to."""
    (checkpoint.parent / "best").symlink_to("checkpoint-10")
    with pytest.raises(evidence.EvidenceError, match="would not move what it leads to"):
        evidence.preserve(ledger, checkpoint.parent / "best", WHAT, method="move")


def test_where_nothing_can_be_made_beside_the_folder_it_goes_into_a_folder_within(tmp_path: Path) -> None:
    """The output folder is a disk of its own: a rename cannot leave it."""
    with small_disk(tmp_path / "out") as out:
        (out / "checkpoint-10").mkdir()
        (out / "checkpoint-10" / "model.pt").write_bytes(b"weights")
        record = evidence.preserve(tmp_path / "ledger", out / "checkpoint-10", WHAT, method="move")
        assert record.at == str(out / "lineage-kept" / "checkpoint-10")
        assert not (tmp_path / "out.kept" / "checkpoint-10").exists()


def test_within_a_folder_where_every_entry_counts_as_a_checkpoint_it_is_refused(tmp_path: Path) -> None:
    """Accelerate takes the last number out of each name in `checkpoints/`, and would fail on another folder."""
    with small_disk(tmp_path / "checkpoints") as out:
        (out / "checkpoint_0").mkdir()
        (out / "checkpoint_0" / "model.pt").write_bytes(b"weights")
        with pytest.raises(evidence.EvidenceError, match="cannot be renamed out of its folder"):
            evidence.preserve(tmp_path / "ledger", out / "checkpoint_0", WHAT, method="move")
        assert os.listdir(out) == ["checkpoint_0"]


def test_a_second_checkpoint_of_the_same_name_keeps_its_name_in_a_numbered_folder(
    checkpoint: Path, ledger: Path
) -> None:
    first = evidence.preserve(ledger, checkpoint, WHAT, method="move")
    checkpoint.mkdir()
    (checkpoint / "model.pt").write_bytes(b"trained again")
    second = evidence.preserve(ledger, checkpoint, WHAT, method="move")
    assert second.at == str(checkpoint.parent.with_name("out.kept") / "2" / "checkpoint-10")
    assert evidence_move.is_kept(Path(str(second.at)))
    assert first.at != second.at
    assert verify(ledger).damage == []


def test_a_rename_that_fails_leaves_everything_in_its_place(
    checkpoint: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    before = files.manifest(checkpoint).root
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(evidence.EvidenceError, match="Device or resource busy"):
        evidence.preserve(ledger, checkpoint, WHAT, method="move")
    monkeypatch.undo()
    assert files.manifest(checkpoint).root == before
    assert not checkpoint.parent.with_name("out.kept").exists()


def test_a_moved_checkpoint_can_be_copied_as_well(checkpoint: Path, ledger: Path) -> None:
    now = Path(str(evidence.preserve(ledger, checkpoint, WHAT, method="move").at))
    record = evidence.preserve(ledger, now, WHAT, method="copy")
    assert (record.method, record.at) == ("copy", None)
    assert (ledger / record.location / "model.pt").is_file()
    assert verify(ledger).damage == []
