"""Evidence and stores: a checkpoint at a URL that is fetched, and evidence that is put at a URL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

from lineage.ledger import evidence, files
from lineage.ledger.verify import verify

from .helpers import small_disk

WHAT = "last good checkpoint"
URL = "memory://bucket/run/step-10"


@pytest.fixture
def store() -> Iterator[Any]:
    """An empty store in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


CONTENT = {
    "model.pt": os.urandom(3_000_000),
    "shards/0.bin": b"shard" * 1000,
    "shards/empty": b"",
    "lineage.json": b"{}",
}


@pytest.fixture
def remote(store: Any) -> Any:
    """A checkpoint folder in the store."""
    for name, data in CONTENT.items():
        store.pipe_file(f"/bucket/run/step-10/{name}", data)
    return store


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The same checkpoint in a folder."""
    for name, data in CONTENT.items():
        path = tmp_path / "step-10" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "step-10"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def content(path: Path) -> dict[str, bytes]:
    """Relative path -> bytes, without what the store of evidence adds."""
    own = (evidence.MANIFEST, "where.json")
    found = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return {k: v for k, v in found.items() if k not in own}


def counting(fs: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the store that are opened from now on."""
    opened: list[str] = []
    inner = fs.open

    def count(path: str, mode: str = "rb", **more: Any) -> Any:
        opened.append(f"{mode} {path.rpartition('/')[2]}")
        return inner(path, mode, **more)

    monkeypatch.setattr(fs, "open", count)
    return opened


def test_a_folder_in_a_store_is_fetched_whole_verified_and_write_protected(remote: Any, ledger: Path) -> None:
    progress: list[str] = []
    record = evidence.preserve(ledger, URL, WHAT, progress=lambda doing, done, total: progress.append(doing))
    assert (record.source, record.method, record.verified, record.files) == (URL, "copy", True, 4)
    assert record.bytes == sum(map(len, CONTENT.values()))
    assert content(ledger / record.location) == CONTENT
    assert {p.stat().st_mode & 0o777 for p in (ledger / record.location).rglob("*") if p.is_file()} == {0o400}
    assert dict.fromkeys(progress) == dict.fromkeys(("copying", "verifying"))
    assert verify(ledger).damage == []


def test_its_evidence_is_the_same_as_that_of_the_same_files_on_a_disk(
    remote: Any, local: Path, ledger: Path
) -> None:
    fetched = evidence.preserve(ledger, URL, WHAT)
    assert evidence.preserve(ledger, local, WHAT).location == fetched.location


def test_a_file_in_a_store_is_fetched_with_its_sidecar(store: Any, ledger: Path) -> None:
    for name in ("ckpt.pt", "ckpt.pt.lineage.json", "ckpt.pt.other"):
        store.pipe_file(f"/bucket/{name}", name.encode())
    record = evidence.preserve(ledger, "memory://bucket/ckpt.pt", WHAT)
    assert set(content(ledger / record.location)) == {"ckpt.pt", "ckpt.pt.lineage.json"}


def test_what_has_not_changed_in_the_store_is_not_read_again(
    remote: Any, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evidence.preserve(ledger, URL, WHAT)
    opened, said = counting(remote, monkeypatch), list[str]()
    second = evidence.preserve(ledger, URL, WHAT, say=said.append)
    assert (second.location, second.root, opened) == (first.location, first.root, [])
    assert "it was verified" in said[0]


def test_other_content_at_the_same_url_is_kept_beside_it(remote: Any, ledger: Path) -> None:
    first = evidence.preserve(ledger, URL, WHAT)
    remote.pipe_file("/bucket/run/step-10/model.pt", b"written over")
    second = evidence.preserve(ledger, URL, WHAT)
    assert first.location != second.location
    assert content(ledger / first.location)["model.pt"] == CONTENT["model.pt"]
    assert verify(ledger).damage == []


def test_files_that_change_while_they_are_fetched_are_an_error_and_nothing_is_kept(
    remote: Any, ledger: Path
) -> None:
    def overwrite(doing: str, done: int, total: int) -> None:
        remote.pipe_file("/bucket/run/step-10/shards/0.bin", b"other" * 1000)

    with pytest.raises(evidence.EvidenceError, match="written to while it was copied; preserve again"):
        evidence.preserve(ledger, URL, WHAT, progress=overwrite)
    assert list(evidence.folder(ledger).iterdir()) == []


def test_an_interrupted_fetch_goes_on_file_by_file(
    remote: Any, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(doing: str, done: int, total: int) -> None:
        if done >= 3_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, URL, WHAT, progress=stop)
    assert all(p.name.startswith(".") for p in evidence.folder(ledger).iterdir())
    opened = counting(remote, monkeypatch)
    record = evidence.preserve(ledger, URL, WHAT)
    assert content(ledger / record.location) == CONTENT
    assert "rb lineage.json" not in opened, "it was whole when the interrupt came"
    assert "rb 0.bin" in opened


def test_an_interrupted_fetch_of_files_that_have_changed_since_begins_anew(remote: Any, ledger: Path) -> None:
    def stop(doing: str, done: int, total: int) -> None:
        if done >= 3_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, URL, WHAT, progress=stop)
    remote.pipe_file("/bucket/run/step-10/lineage.json", b"{ }")
    record = evidence.preserve(ledger, URL, WHAT)
    assert content(ledger / record.location) == {**CONTENT, "lineage.json": b"{ }"}


def test_names_that_lead_out_of_the_evidence_are_refused(
    store: Any, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pipe_file("/bucket/run/step-10/model.pt", b"x")
    found = {"/bucket/run/step-10/../../../etc/evil": {"size": 1, "name": "x"}}
    monkeypatch.setattr(store, "find", lambda path, detail: found)
    with pytest.raises(evidence.EvidenceError, match="which is no path below it"):
        evidence.preserve(ledger, URL, WHAT)
    assert not (ledger.parent / "etc").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://bucket/gone", "there is nothing at memory://bucket/gone"),
        ("nosuchstore://bucket/x", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_read_is_a_clear_error(store: Any, ledger: Path, url: str, said: str) -> None:
    with pytest.raises(evidence.EvidenceError, match=said):
        evidence.preserve(ledger, url, WHAT)
    with pytest.raises(evidence.EvidenceError, match=said):
        evidence.cost(ledger, url)


def test_what_a_store_raises_is_one_error_that_says_where(
    remote: Any, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoreSaysNo(Exception):
        """Each store has errors of its own."""

    def refuse(path: str, mode: str = "rb", **more: Any) -> Any:
        raise StoreSaysNo("403")

    monkeypatch.setattr(remote, "open", refuse)
    with pytest.raises(evidence.EvidenceError, match=f"{URL} could not be read: StoreSaysNo: 403"):
        evidence.preserve(ledger, URL, WHAT)
    assert list(evidence.folder(ledger).iterdir()) == []


def test_too_little_room_is_said_before_anything_is_fetched(
    remote: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = counting(remote, monkeypatch)
    with small_disk(tmp_path / "disk") as disk:
        with pytest.raises(evidence.EvidenceError, match="has room for"):
            evidence.preserve(disk, URL, WHAT)
        assert opened == []
        assert list(evidence.folder(disk).iterdir()) == []


@pytest.mark.parametrize("asked", [{"method": "move"}, {"method": "reflink"}, {"to": "/elsewhere"}])
def test_what_cannot_be_done_with_a_url_is_said(remote: Any, ledger: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(evidence.EvidenceError, match="can only be copied into the evidence store"):
        evidence.preserve(ledger, URL, WHAT, **asked)


# -- evidence at a URL


def test_evidence_put_at_a_url_is_read_back_and_its_manifest_is_in_the_ledger(
    store: Any, local: Path, ledger: Path
) -> None:
    record = evidence.preserve(ledger, local, WHAT, to="memory://vault")
    assert record.at == f"memory://vault/{record.location.partition('/')[2]}"
    root = record.at.removeprefix("memory:/")
    there = {p.removeprefix(f"{root}/"): store.cat_file(p) for p in store.find(root)}
    manifest = json.loads(there.pop(evidence.MANIFEST))
    assert there == CONTENT
    assert manifest["root"] == record.root == evidence.root_of(ledger / record.location)
    assert content(ledger / record.location) == {}
    assert verify(ledger).damage == []


def test_put_again_it_is_verified_there_and_not_written(
    store: Any, local: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evidence.preserve(ledger, local, WHAT, to="memory://vault")
    opened = counting(store, monkeypatch)
    assert evidence.preserve(ledger, local, WHAT, to="memory://vault") == first
    assert {o.partition(" ")[0] for o in opened} == {"rb"}


def test_evidence_that_was_changed_in_its_store_is_damage(store: Any, local: Path, ledger: Path) -> None:
    record = evidence.preserve(ledger, local, WHAT, to="memory://vault")
    root = str(record.at).removeprefix("memory:/")
    store.pipe_file(f"{root}/model.pt", b"forged")
    store.rm_file(f"{root}/shards/0.bin")
    assert [(d.code, d.file, d.text) for d in verify(ledger).damage] == [
        ("LIN-J008", record.at, "model.pt has other content than was recorded"),
        ("LIN-J008", record.at, "shards/0.bin is gone"),
    ]


def test_other_evidence_under_that_name_is_not_written_over(store: Any, local: Path, ledger: Path) -> None:
    record = evidence.preserve(ledger, local, WHAT, to="memory://vault")
    other = files.manifest(local, [local / "model.pt"]).model_dump_json(by_alias=True).encode()
    path = f"{str(record.at).removeprefix('memory:/')}/{evidence.MANIFEST}"
    store.pipe_file(path, other)
    with pytest.raises(evidence.EvidenceError, match="holds other evidence; nothing there was changed"):
        evidence.preserve(ledger.with_name("another"), local, WHAT, to="memory://vault")
    assert store.cat_file(path) == other


def test_a_store_that_gives_back_other_bytes_is_an_error_and_nothing_is_on_record(
    store: Any, local: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = store.open

    def cut(path: str, mode: str = "rb", **more: Any) -> Any:
        if mode == "rb" and path.endswith("model.pt") and store.exists(path):
            store.store[path].seek(0)
            store.store[path].truncate(10)
        return inner(path, mode, **more)

    monkeypatch.setattr(store, "open", cut)
    with pytest.raises(evidence.EvidenceError, match=r"gives back is not what was written: model\.pt"):
        evidence.preserve(ledger, local, WHAT, to="memory://vault")
    assert not list(evidence.folder(ledger).glob("[!.]*"))
    assert not store.glob("/vault/**/evidence.json"), "the manifest comes last"


def test_an_interrupted_put_goes_on(
    store: Any, local: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(doing: str, done: int, total: int) -> None:
        if doing == "copying" and done >= 3_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evidence.preserve(ledger, local, WHAT, to="memory://vault", progress=stop)
    opened = counting(store, monkeypatch)
    evidence.preserve(ledger, local, WHAT, to="memory://vault")
    written = [o for o in opened if o.startswith("wb")]
    assert "wb model.pt" not in written, "it was there already, and equal"
    assert "wb 0.bin" in written
    assert verify(ledger).damage == []


def test_a_file_url_is_the_path_that_it_names(local: Path, ledger: Path, tmp_path: Path) -> None:
    """Read-only as any other copy here; and a checkpoint named so can be moved."""
    kept = evidence.preserve(ledger, f"file://{local}", WHAT, to=f"file://{tmp_path}/vault")
    at = Path(str(kept.at))
    assert at.parent == tmp_path / "vault"
    assert content(at) == CONTENT
    assert {p.stat().st_mode & 0o777 for p in at.rglob("*") if p.is_file()} == {0o400}
    assert evidence.cost(ledger, f"file://{local}", to=f"file://{tmp_path}/other").free is not None
    moved = evidence.preserve(ledger, f"file://{local}", WHAT, method="move")
    assert not local.exists()
    assert content(Path(str(moved.at))) == CONTENT
    assert verify(ledger).damage == []


@pytest.mark.parametrize("where", ["here", "memory"])
def test_evidence_that_is_preserved_again_is_what_was_preserved_and_not_its_manifest(
    local: Path, store: Any, ledger: Path, tmp_path: Path, where: str
) -> None:
    """From another folder or a store into another ledger: the same root, and nothing of it is damaged."""
    to = tmp_path / "vault" if where == "here" else "memory://vault"
    first = evidence.preserve(ledger, local, WHAT, to=to)
    other = tmp_path / "other ledger"
    second = evidence.preserve(other, str(first.at), WHAT)
    assert second.root == first.root
    assert content(other / second.location) == CONTENT
    assert verify(other).damage == []


@pytest.mark.parametrize("where", ["here", "memory"])
def test_a_checkpoint_with_a_file_of_the_stores_name_is_refused_with_what_to_do(
    local: Path, remote: Any, ledger: Path, where: str
) -> None:
    """It would be written over by the manifest. Nothing is lost, and nothing half made stays."""
    (local / evidence.MANIFEST).write_text("[1, 2]")
    remote.pipe_file(f"/bucket/run/step-10/{evidence.MANIFEST}", b"[1, 2]")
    with pytest.raises(evidence.EvidenceError, match=r"evidence\.json of its own.*rename that file"):
        evidence.preserve(ledger, local if where == "here" else URL, WHAT)
    assert list(evidence.folder(ledger).glob("*")) == []


def test_what_was_moved_before_takes_nothing_and_is_told_so(local: Path, ledger: Path) -> None:
    moved = evidence.preserve(ledger, local, WHAT, method="move")
    cost = evidence.cost(ledger, str(moved.at))
    assert (cost.way, cost.needed) == ("held", 0)
