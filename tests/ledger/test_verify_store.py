"""Verifying blobs, series and evidence: what was changed or is gone is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import schemas as s
from lineage.ledger import blobs, evidence, files, series
from lineage.ledger.verify import verify

from .helpers import journal
from .rows import probes


def found(ledger: Path) -> set[tuple[str, str, int]]:
    """Every damage as (code, file, line)."""
    return {(d.code, d.file, d.line) for d in verify(ledger).damage}


def flip(path: Path, at: int) -> None:
    """Change one bit of one byte, whatever the file's mode says."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def with_blob(ledger: Path) -> tuple[str, Path]:
    """A journal whose second line names a diff; returns the journal file's name and the blob."""
    j = journal(ledger)
    digest = blobs.put(ledger, b"--- a\n+++ b\n")
    j.append(s.CodeState(repository=True, diff=digest))
    return j.file, blobs.path_of(ledger, digest)


def test_a_blob_is_stored_once_for_the_owner_only_and_read_back(tmp_path: Path) -> None:
    digest = blobs.put(tmp_path, b"diff")
    assert blobs.put(tmp_path, b"diff") == digest
    assert blobs.get(tmp_path, digest) == b"diff"
    [path] = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        blobs.get(tmp_path, "sha256:" + "0" * 64)


def test_a_whole_blob_is_no_damage(tmp_path: Path) -> None:
    with_blob(tmp_path)
    assert found(tmp_path) == set()


def test_a_changed_blob_is_named(tmp_path: Path) -> None:
    _, blob = with_blob(tmp_path)
    flip(blob, 3)
    assert found(tmp_path) == {("LIN-J008", str(blob.relative_to(tmp_path)), 0)}


def test_a_missing_blob_is_named_at_the_line_that_needs_it(tmp_path: Path) -> None:
    file, blob = with_blob(tmp_path)
    blob.unlink()
    assert found(tmp_path) == {("LIN-J008", file, 2)}


def test_a_blob_that_cannot_be_read_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    _, blob = with_blob(tmp_path)
    odd = blob.with_name("0" * 64)
    odd.mkdir()
    flip(blob, 0)
    assert found(tmp_path) == {("LIN-J008", str(p.relative_to(tmp_path)), 0) for p in (blob, odd)}


def sealed_series(ledger: Path) -> Path:
    """A sealed probes file of 200 steps."""
    writer = series.SeriesWriter(ledger, "segment", "node1-00000-1-1", "probes")
    writer.write(probes(200))
    path = writer.close()
    assert path is not None
    return path


def hot_series(ledger: Path, batches: int = 6) -> tuple[Path, list[int]]:
    """A stream that is still open, and the offsets at which its batches end."""
    writer = series.SeriesWriter(ledger, "segment", "node1-00000-1-1", "probes")
    ends = []
    for n in range(batches):
        writer.write(probes(3, first=3 * n))
        ends.append(writer.path.stat().st_size)
    return writer.path, ends


def test_whole_series_are_no_damage_sealed_or_hot(tmp_path: Path) -> None:
    sealed_series(tmp_path / "a")
    hot_series(tmp_path / "b")
    assert found(tmp_path / "a") == found(tmp_path / "b") == set()


def test_a_changed_byte_in_any_page_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    path = sealed_series(tmp_path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    expected = {("LIN-J010", str(path.relative_to(tmp_path)), 0)}
    columns = pq.ParquetFile(path).metadata.row_group(0)
    for n in range(columns.num_columns):
        column = columns.column(n)
        last = column.data_page_offset + column.total_compressed_size
        if column.dictionary_page_offset is not None:
            last = column.dictionary_page_offset + column.total_compressed_size
        assert last <= len(whole) - footer
        flip(path, last - 1)  # the last byte of the column's last page
        assert found(tmp_path) == expected, column.path_in_schema
        path.write_bytes(whole)
    assert found(tmp_path) == set()


@pytest.mark.parametrize("keep", [0, 10, -5])
def test_a_cut_parquet_file_is_named(tmp_path: Path, keep: int) -> None:
    path = sealed_series(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert found(tmp_path) == {("LIN-J010", str(path.relative_to(tmp_path)), 0)}


def test_a_stream_changed_in_its_midst_is_named_and_a_torn_one_is_not(tmp_path: Path) -> None:
    path, ends = hot_series(tmp_path)
    whole = path.read_bytes()
    for at in (ends[1], ends[1] + 5, ends[1] + 8):  # marker, length, metadata of the third batch
        path.write_bytes(whole[:at] + b"\x7f" + whole[at + 1 :])
        assert found(tmp_path) == {("LIN-J010", str(path.relative_to(tmp_path)), 0)}, at
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        assert found(tmp_path) == set(), cut


def test_a_stream_whose_beginning_was_changed_is_named(tmp_path: Path) -> None:
    path, _ = hot_series(tmp_path)
    flip(path, 0)
    assert found(tmp_path) == {("LIN-J010", str(path.relative_to(tmp_path)), 0)}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A ledger with a checkpoint of two files in its evidence, and the record of it."""
    checkpoint = tmp_path / "step-10"
    checkpoint.mkdir()
    (checkpoint / "model.pt").write_bytes(b"m" * 5000)
    (checkpoint / "optim.pt").write_bytes(b"o" * 3000)
    ledger = tmp_path / "ledger"
    j = journal(ledger)
    j.append(evidence.preserve(ledger, checkpoint, "last good checkpoint"))
    return ledger


def place(ledger: Path) -> Path:
    """The one evidence folder."""
    [path] = evidence.folder(ledger).iterdir()
    return path


def test_whole_evidence_is_no_damage(kept: Path) -> None:
    assert found(kept) == set()


def test_a_changed_evidence_file_is_named(kept: Path) -> None:
    flip(place(kept) / "model.pt", 2500)
    assert found(kept) == {("LIN-J008", str(place(kept).relative_to(kept)), 0)}
    assert "model.pt has other content" in verify(kept).damage[0].text


def test_a_missing_evidence_file_is_named(kept: Path) -> None:
    (place(kept) / "optim.pt").unlink()
    assert "optim.pt is gone" in verify(kept).damage[0].text


def test_an_evidence_folder_that_a_record_names_and_that_is_gone_is_named(kept: Path) -> None:
    location = str(place(kept).relative_to(kept))
    shutil.rmtree(place(kept))
    assert found(kept) == {("LIN-J008", location, 0)}
    assert "is gone" in verify(kept).damage[0].text


def test_evidence_changed_together_with_its_manifest_is_named(kept: Path) -> None:
    folder = place(kept)
    manifest = folder / evidence.MANIFEST
    flip(folder / "model.pt", 0)
    forged = files.manifest(folder, [folder / "model.pt", folder / "optim.pt"])
    manifest.chmod(0o600)
    manifest.write_text(forged.model_dump_json())
    assert found(kept) == {("LIN-J008", str(folder.relative_to(kept)), 0)}
    assert "not the one that" in verify(kept).damage[0].text


def test_evidence_without_a_readable_manifest_is_named(kept: Path) -> None:
    manifest = place(kept) / evidence.MANIFEST
    manifest.chmod(0o600)
    manifest.write_text("{")
    assert "its manifest cannot be read" in verify(kept).damage[0].text
