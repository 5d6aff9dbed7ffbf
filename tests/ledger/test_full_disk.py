"""A disk that refuses: nothing is raised, nothing recorded is lost, the chain stays whole."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lineage.ledger import blobs, scan, series
from lineage.ledger.journal import Journal
from lineage.ledger.verify import verify

from .helpers import fill, journal, note, notes_in, read_whole, small_disk
from .rows import probes


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """Let the kernel refuse to make any file of this process longer: needs no rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def append_until_refused(j: Journal, size: int = 700) -> int:
    """Append notes until one waits; returns how many were appended."""
    n = 0
    while not j.waiting():
        j.append(note(n, size))
        n += 1
    return n


def expected(count: int) -> list[str]:
    """What the first notes say."""
    return [f"note {n}" for n in range(count)]


def test_on_a_full_disk_the_file_is_cut_back_and_the_records_wait(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        j = journal(disk)
        count = append_until_refused(j)
        assert count > 10
        for _ in range(5):
            j.append(note(count))
            count += 1
        assert j.waiting() == 6
        assert j.path.read_bytes().endswith(b"\n")
        assert len(read_whole(j.path, disk)) == 1 + count - 6


def test_when_there_is_room_again_the_next_append_writes_what_waited_in_order(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        j = journal(disk)
        ballast = fill(disk)
        count = append_until_refused(j, size=0)
        waiting = j.append(note(count))
        assert j.waiting() == 2
        ballast.unlink()
        last = j.append(note(count + 1))
        assert j.waiting() == 0
        records = read_whole(j.path, disk)
        assert notes_in(records) == expected(count + 2)
        assert records[-1].raw == last.to_line()
        assert records[-2].id == waiting.id
        assert (records[-2].at, records[-2].seq) == (waiting.at, waiting.seq)
        assert verify(disk).damage == []


def test_closing_writes_what_waited(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        j = journal(disk)
        ballast = fill(disk)
        count = append_until_refused(j)
        assert j.close() == 1
        ballast.unlink()
        assert j.close() == 0
        written = [n for p in scan.journal_files(disk) for n in notes_in(read_whole(p, disk))]
        assert sorted(written) == sorted(expected(count))
        assert verify(disk).damage == []


def test_a_disk_that_is_full_from_the_start_gets_header_and_records_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ballast = fill(disk)
        j = journal(disk)
        j.append(note(0))
        assert j.waiting() == 2
        ballast.unlink()
        assert j.flush() == 0
        records = read_whole(j.path, disk)
        assert [r.kind for r in records] == ["journal_header", "coverage"]


def test_trouble_is_told_once(tmp_path: Path) -> None:
    told: list[tuple[Exception, Path]] = []
    with small_disk(tmp_path / "disk") as disk:
        j = journal(disk, on_trouble=lambda e, where: told.append((e, where)))
        append_until_refused(j)
        j.append(note(1))
        assert [(type(e), where) for e, where in told] == [(OSError, j.path)]
        assert "No space left" in str(told[0][0])


def test_a_refusal_inside_a_line_leaves_whole_lines_only(tmp_path: Path) -> None:
    """The kernel takes part of the line and refuses the rest; no special rights are needed for this one."""
    j = journal(tmp_path)
    whole = j.path.stat().st_size
    with longest_file(whole + 100):
        j.append(note(0))
        assert j.waiting() == 1
        assert j.path.stat().st_size == whole
    with longest_file(whole + 10):
        j.append(note(1))
        assert j.waiting() == 2
    j.append(note(2))
    assert notes_in(read_whole(j.path, tmp_path)) == expected(3)


def test_where_not_even_cutting_back_works_the_torn_line_is_cut_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    j = journal(tmp_path)
    whole = j.path.stat().st_size

    def refuse(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with longest_file(whole + 100), monkeypatch.context() as m:
        m.setattr(os, "ftruncate", refuse)
        j.append(note(0))
    assert j.path.stat().st_size == whole + 100
    j.append(note(1))
    assert notes_in(read_whole(j.path, tmp_path)) == expected(2)


def test_a_line_that_the_disk_did_not_confirm_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    j = journal(tmp_path)
    whole = j.path.read_bytes()

    def fails(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as m:
        m.setattr(os, "fdatasync", fails)
        j.append(note(0))
    assert j.path.read_bytes() == whole
    assert j.flush() == 0
    assert notes_in(read_whole(j.path, tmp_path)) == expected(1)


def test_a_folder_that_cannot_be_made_raises_nothing_and_the_records_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    j = journal(tmp_path / "file" / "ledger")
    j.append(note(0))
    assert j.waiting() == 2
    assert j.close() == 2
    j.move_to(tmp_path / "elsewhere")
    assert j.waiting() == 0
    assert notes_in(read_whole(j.path, tmp_path / "elsewhere")) == expected(1)


def test_series_written_after_a_full_disk_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        writer = series.SeriesWriter(disk, "segment", "node1-00000-1-1", "probes")
        writer.write(probes(2))
        ballast = fill(disk)
        with pytest.raises(OSError, match="No space left"):
            writer.write(probes(500, first=2))
        ballast.unlink()
        writer.write(probes(2, first=502))
        assert series.read(disk, "probes")["step"].to_pylist() == [0, 1, 502, 503]
        assert verify(disk).damage == []


def test_series_are_kept_as_a_stream_where_there_is_no_room_to_seal_them(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        writer = series.SeriesWriter(disk, "segment", "node1-00000-1-1", "probes")
        writer.write(probes(20))
        fill(disk)
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        assert [p.name for p in writer.path.parent.iterdir()] == [writer.path.name]
        assert series.read(disk, "probes").num_rows == 20


def test_a_blob_without_room_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with pytest.raises(OSError, match="No space left"):
            blobs.put(disk, os.urandom(200_000))
        assert [p for p in disk.rglob("*") if p.is_file()] == []
