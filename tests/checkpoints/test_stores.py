"""Checkpoints in a store: what cannot be read there is said, and little is fetched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

from lineage.checkpoints import CheckpointError, Contents, look
from lineage.checkpoints.errors import NoStore
from lineage.checkpoints.stores import Store

from .made import codes, said, same_in_store, stored, told
from .test_folder import tensors


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Twenty shards of weights with their index, without one of them."""
    at, known = tmp_path / "model", {}
    at.mkdir()
    for n in range(20):
        name = f"model-{n + 1:05d}-of-00020.safetensors"
        tensors(at / name, {f"w{n}": [3, n + 1]})
        known[f"w{n}"] = name
    (at / "model-00007-of-00020.safetensors").unlink()
    (at / "model.safetensors.index.json").write_text(json.dumps({"weight_map": known}))
    return at


def test_shards_with_an_index_read_the_same(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = same_in_store(sharded, monkeypatch)
    assert len(found["tensors"]) == 19  # type: ignore[arg-type]
    assert found["worst"] == "fails"


def test_an_unknown_folder_is_digested_there_too(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a").write_bytes(b"abc")
    assert told(stored(tmp_path / "odd", "odd")) == told(tmp_path / "odd")


def test_the_heads_of_many_shards_are_fetched_with_one_call(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store answers many requests at a time; asked one after the other, a thousand shards would take minutes."""
    calls: list[int] = []
    one = Store.pieces

    def counted(self: Store, wanted: Any) -> list[bytes]:
        calls.append(len(wanted))
        return one(self, wanted)

    monkeypatch.setattr(Store, "pieces", counted)
    look(stored(sharded, "many"))
    assert sorted(calls) == [1, 19]  # the index, and all shards that are there


def test_nothing_there_is_an_error_with_the_url() -> None:
    with pytest.raises(CheckpointError, match="memory://nothing/here cannot be opened"):
        look("memory://nothing/here")


def test_a_store_of_no_known_kind_says_so_and_prints_no_password() -> None:
    with pytest.raises(NoStore) as caught:
        look("nosuch://user:hunter2secret@bucket/run")
    assert "cannot be read" in str(caught.value)
    assert "hunter2secret" not in str(caught.value)


def test_a_store_that_refuses_is_a_finding(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = stored(sharded, "refusing")

    def refuse(self: object, path: str, **how: object) -> bytes:
        raise PermissionError("403 Forbidden")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cat_file", refuse)
    c = look(url)
    assert "PermissionError: 403 Forbidden" in said(c, "LIN-K015")


def test_a_file_that_became_shorter_meanwhile_is_named(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stored(sharded, "shorter")
    whole = fsspec.implementations.memory.MemoryFileSystem.cat_file

    def short(self: object, path: str, start: int = 0, end: int = 0) -> bytes:
        return bytes(whole(self, path, start=start, end=end))[:-1]

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cat_file", short)
    assert "changed while it was read" in said(look(url), "LIN-K015")


def test_a_path_with_file_before_it_is_a_path(sharded: Path) -> None:
    """So that links are looked at, and files are noticed that change."""
    c: Contents = look(f"file://{sharded}")
    assert c.path == str(sharded)
    assert "LIN-K001" in codes(c)


def test_without_fsspec_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None; sys.modules['fsspec.core'] = None\n"
        "from lineage.checkpoints import look, CheckpointError\n"
        "try: look('s3://bucket/run')\n"
        "except CheckpointError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'runlineage[read]'" in done.stdout
