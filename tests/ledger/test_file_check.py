"""Digests of a checkpoint's files: the same however they are read, kept where it is interrupted, and checked again."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from lineage.ledger import file_check, files, hashing
from lineage.ledger.file_check import Here, InStore
from lineage.ledger.hashing import Kept


def checkpoint(folder: Path) -> Path:
    """A folder as DCP writes it, with a file of several slices' worth of portions."""
    at = folder / "step-3"
    (at / "sub").mkdir(parents=True)
    rng = random.Random(1)
    for name, size in (
        ("__0_0.distcp", 100_000),
        ("__1_0.distcp", 70_001),
        (".metadata", 900),
        ("sub/empty", 0),
    ):
        (at / name).write_bytes(rng.randbytes(size))
    (at / "lineage.json").write_text("{}")
    return at


@pytest.mark.parametrize("size", [0, 1, 1024, hashing.CHUNK + 1, 100_003])
@pytest.mark.parametrize("mapped", [True, False, None])
def test_the_digest_is_blake3_of_the_bytes_however_they_are_read(
    tmp_path: Path, size: int, mapped: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "SLICE", 40_000)
    data = random.Random(size).randbytes(size)
    (tmp_path / "f").write_bytes(data)
    told: list[int] = []
    assert (
        hashing.digest(tmp_path / "f", mapped=mapped, tell=told.append)
        == f"blake3:{blake3(data).hexdigest()}"
    )
    assert sum(told) == size


def test_a_manifest_made_from_the_shares_of_ranks_is_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    """Each rank digests what it wrote; rank 0 takes that and reads only the rest."""
    at = checkpoint(tmp_path)
    want = files.manifest(at)
    for rank in (1, 2):
        mine = hashing.own_share(files.listing(at), rank)
        assert [p.name for p in mine] == (["__1_0.distcp"] if rank == 1 else [])
        hashing.digest_all(mine, Kept(tmp_path / "digests", at, f"rank{rank}"))
    read: list[str] = []
    real = hashing.digest
    monkeypatch.setattr(hashing, "digest", lambda p, **how: (read.append(p.name), real(p, **how))[1])
    kept = Kept(tmp_path / "digests", at, "rank0")
    assert files.manifest(at, kept=kept) == want
    assert sorted(read) == [".metadata", "__0_0.distcp", "empty"]
    kept.forget()
    assert not list((tmp_path / "digests").iterdir())
    assert sorted(p.name for p in at.iterdir()) == [
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp",
        "lineage.json",
        "sub",
    ]


def test_a_kept_digest_counts_only_while_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    kept = Kept(tmp_path / "digests", tmp_path)
    hashing.digest_all([path], kept)
    assert Kept(tmp_path / "digests", tmp_path).get(path) == hashing.digest(path)
    stat = path.stat()
    path.write_bytes(b"two")  # same size, and the old times put back
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert Kept(tmp_path / "digests", tmp_path).get(path) is None
    assert hashing.digest_all([path], kept)[path] == f"blake3:{blake3(b'two').hexdigest()}"
    (note,) = (tmp_path / "digests").glob("*.jsonl")
    note.write_bytes(note.read_bytes()[:-9])  # a torn last line: killed while it was written
    assert Kept(tmp_path / "digests", tmp_path).get(path) is None


def test_a_check_that_was_interrupted_goes_on_where_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    at = checkpoint(tmp_path)
    known = files.manifest(at)
    real, read = hashing.digest, []

    def two_only(path: Path, **how: Any) -> str:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(path.name)
        return real(path, **how)

    monkeypatch.setattr(hashing, "digest", two_only)
    with pytest.raises(KeyboardInterrupt):
        file_check.check(Here(at, Kept(tmp_path / "digests", at)), known)
    first = list(read)
    read.clear()
    told: list[int] = []
    found = file_check.check(Here(at, Kept(tmp_path / "digests", at)), known, tell=told.append)
    assert (found.whole, found.equal) == (True, 4)
    assert sum(told) == found.bytes == 170_901
    assert len(read) == 2
    assert set(read).isdisjoint(first)
    assert not list((tmp_path / "digests").iterdir())


def spoil(at: Path) -> None:
    data = bytearray((at / "__1_0.distcp").read_bytes())
    data[50_000] ^= 1
    (at / "__1_0.distcp").write_bytes(data)
    (at / ".metadata").write_bytes(b"short")
    (at / "sub" / "empty").unlink()
    (at / "extra").write_bytes(b"x")


def assert_spoilt(found: file_check.Checked) -> None:
    assert found.changed == {
        "__1_0.distcp": "has other content than was recorded",
        ".metadata": "has 5 bytes, 900 were recorded",
    }
    assert (found.missing, found.new, found.equal) == (["sub/empty"], ["extra"], 1)
    assert not found.whole


def test_changed_missing_and_new_files_are_named(tmp_path: Path) -> None:
    at = checkpoint(tmp_path)
    known = files.manifest(at)
    spoil(at)
    assert_spoilt(file_check.check(Here(at), known))


def test_a_checkpoint_in_a_store_is_checked_as_one_here(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    at = checkpoint(tmp_path)
    known = files.manifest(at)
    store = fsspec.filesystem("memory")
    for name in ("good", "bad"):
        if name == "bad":
            spoil(at)
        for p in at.rglob("*"):
            if p.is_file():
                store.pipe_file(f"/file_check/{name}/{p.relative_to(at).as_posix()}", p.read_bytes())
    good = file_check.check(InStore("memory://file_check/good", store, "/file_check/good"), known)
    assert (good.whole, good.equal) == (True, 4)
    assert_spoilt(file_check.check(InStore("memory://file_check/bad", store, "/file_check/bad"), known))


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_checked(
    tmp_path: Path, monkeypatch: Any
) -> None:
    at = checkpoint(tmp_path)
    known, real = files.manifest(at), hashing.digest

    def broken(path: Path, **how: Any) -> str:
        if path.name == ".metadata":
            raise OSError(5, "Input/output error")
        return real(path, **how)

    monkeypatch.setattr(hashing, "digest", broken)
    found = file_check.check(Here(at), known)
    assert found.unreadable == {".metadata": "Input/output error"}
    assert found.equal == 3
    assert not found.whole


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("__3_0.distcp", 3),
        ("zero_pp_rank_12_mp_rank_00_optim_states.pt", 12),
        ("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", 1),
        ("rng_state_5.pth", 5),
        ("optimizer-rank7.pt", 7),
        ("model-00001-of-00004.safetensors", None),
        (".metadata", None),
        ("frank2.bin", None),
    ],
)
def test_a_files_name_tells_the_rank_that_wrote_it(name: str, rank: int | None) -> None:
    assert hashing.owner(name) == rank
