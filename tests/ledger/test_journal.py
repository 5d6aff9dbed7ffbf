"""The journal file: what it holds, who may read it, and who may write it."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from pathlib import Path

import pytest
from uuid6 import uuid7

import schemas as s
from lineage.ledger import layout, scan
from lineage.ledger.verify import verify

from .helpers import RUN, journal, lines, note, notes_in, put_lines, read_whole, reap


def test_each_line_is_the_bytes_of_the_envelope_that_append_returned(tmp_path: Path) -> None:
    j = journal(tmp_path)
    returned = [j.append(note(n), step=n, caused_by=[str(uuid7())]) for n in range(3)]
    assert lines(j.path)[1:] == [e.to_line() for e in returned]


def test_each_line_holds_the_sha256_of_the_raw_line_before_and_its_own_number(tmp_path: Path) -> None:
    j = journal(tmp_path)
    for n in range(3):
        j.append(note(n))
    raw = lines(j.path)
    records = [s.read_line(line) for line in raw]
    assert [r.seq for r in records] == [0, 1, 2, 3]
    assert records[0].prev is None
    for before, record in zip(raw, records[1:], strict=False):
        assert record.prev == "sha256:" + hashlib.sha256(before).hexdigest()


def test_a_record_is_on_the_disk_when_append_returns(tmp_path: Path) -> None:
    j = journal(tmp_path)
    for n in range(3):
        record = j.append(note(n))
        assert lines(j.path)[-1] == record.to_line()


def test_append_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    j = journal(tmp_path)
    real, synced = os.fdatasync, []

    def fdatasync(fd: int) -> None:
        real(fd)
        synced.append(j.path.stat().st_size)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    j.append(note(1))
    assert synced == [j.path.stat().st_size]


def test_what_was_written_never_changes_while_more_is_appended(tmp_path: Path) -> None:
    j = journal(tmp_path)
    before = b""
    for n in range(5):
        j.append(note(n))
        now = j.path.read_bytes()
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now


def test_folders_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        root = tmp_path / "runs"
        j = journal(root / RUN)
    finally:
        os.umask(old)
    assert stat.S_IMODE(j.path.stat().st_mode) == 0o600
    for folder in (root, root / RUN, root / RUN / "journal", j.path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_the_file_name_says_node_rank_pid_and_start(tmp_path: Path) -> None:
    j = journal(tmp_path, rank=3)
    assert layout.writer_of(j.path.name) == ("node1", 3, os.getpid())
    assert j.path.parent.name == j.segment
    assert abs(int(j.path.stem.split("-")[-1]) / 1e6 - time.time()) < 60


def test_the_first_line_is_a_header_with_the_place_of_the_writer(tmp_path: Path) -> None:
    header = read_whole(journal(tmp_path).path, tmp_path)[0].payload
    assert header.kind == "journal_header"
    assert header.format == "lineage-journal/1"
    assert header.place.pid == os.getpid()


def test_the_next_header_names_the_earlier_heads_and_the_torn_files(tmp_path: Path) -> None:
    whole, torn = journal(tmp_path), journal(tmp_path)
    whole.append(note(1))
    torn.append(note(2))
    kept = lines(torn.path)
    with torn.path.open("ab") as f:
        f.write(b'{"schema":"lineage/record/1-0-0","id"')
    heads, set_aside = scan.heads(tmp_path)
    third = journal(tmp_path, previous=heads, set_aside=set_aside)
    header = read_whole(third.path, tmp_path)[0].payload
    assert {h.file: h.digest for h in header.previous} == {
        whole.file: "sha256:" + hashlib.sha256(lines(whole.path)[-1]).hexdigest(),
        torn.file: "sha256:" + hashlib.sha256(kept[-1]).hexdigest(),
    }
    assert header.set_aside == [torn.file]
    assert [d.code for d in verify(tmp_path).damage] == ["LIN-J001"]


def test_the_head_of_a_file_is_found_behind_a_long_line_and_a_long_torn_tail(tmp_path: Path) -> None:
    j = journal(tmp_path)
    record = j.append(note(1, size=300_000))
    with j.path.open("ab") as f:
        f.write(b"y" * 200_000)
    head, torn = scan.head_of(j.path, tmp_path)
    assert torn
    assert head is not None
    assert (head.seq, head.digest) == (1, "sha256:" + hashlib.sha256(record.to_line()).hexdigest())


def test_a_file_that_is_there_already_is_never_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_764_432_000_000_000_000)
    uid = str(uuid7())
    first = journal(tmp_path, segment=uid)
    first.append(note(1))
    before = first.path.read_bytes()
    second = journal(tmp_path, segment=uid)
    second.append(note(2))
    assert second.path != first.path
    assert first.path.read_bytes() == before
    assert notes_in(read_whole(second.path, tmp_path)) == ["note 2"]


def test_ranks_write_files_of_their_own(tmp_path: Path) -> None:
    uid = str(uuid7())
    ranks = [journal(tmp_path, rank, segment=uid) for rank in range(3)]
    for n in range(4):
        for j in ranks:
            j.append(note(10 * j.rank + n))
    assert len(scan.journal_files(tmp_path)) == 3
    for j in ranks:
        records = read_whole(j.path, tmp_path)
        assert {r.rank for r in records} == {j.rank}
        assert notes_in(records) == [f"note {10 * j.rank + n}" for n in range(4)]


def test_threads_that_append_at_once_leave_one_whole_chain(tmp_path: Path) -> None:
    j = journal(tmp_path, fsync=False)
    returned: list[s.Envelope] = []

    def work(thread: int) -> None:
        for n in range(50):
            returned.append(j.append(note(1000 * thread + n)))  # noqa: PERF401

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    records = read_whole(j.path, tmp_path)
    assert len(records) == 1 + 8 * 50
    assert {e.id: e.to_line() for e in returned} == {r.id: r.raw for r in records[1:]}


def test_a_forked_child_writes_nothing_and_the_parent_goes_on(tmp_path: Path) -> None:
    j = journal(tmp_path)
    before = j.path.read_bytes()
    pid = os.fork()
    if pid == 0:
        try:
            record = j.append(note(1))
            ok = isinstance(record, s.Envelope) and j.flush() == 0 and j.close() == 0
            j.move_to(tmp_path / "elsewhere")
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    assert reap(pid) == 0
    assert j.path.read_bytes() == before
    assert scan.journal_files(tmp_path) == [j.path]
    assert not (tmp_path / "elsewhere").exists()
    j.append(note(2))
    assert notes_in(read_whole(j.path, tmp_path)) == ["note 2"]


def test_a_forked_child_does_not_write_what_waits_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    j = journal(tmp_path)

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, "write", full)
        j.append(note(1))
    assert j.waiting() == 1
    pid = os.fork()
    if pid == 0:
        j.flush()
        os._exit(0)
    assert reap(pid) == 0
    assert notes_in(read_whole(j.path, tmp_path)) == []
    assert j.flush() == 0
    assert notes_in(read_whole(j.path, tmp_path)) == ["note 1"]


@pytest.mark.parametrize("at", ["write", "fdatasync"])
def test_an_interrupt_inside_a_line_leaves_the_chain_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    j = journal(tmp_path)
    real = getattr(os, at)

    def interrupted(*args: object) -> int:
        if at == "write":
            fd, data = args
            real(fd, data[: len(data) // 2])  # type: ignore[index, arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(os, at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            j.append(note(1))
    j.append(note(2))
    assert notes_in(read_whole(j.path, tmp_path)) == ["note 1", "note 2"]


def test_a_record_after_close_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    j = journal(tmp_path)
    j.append(note(1))
    j.close()
    first = j.path
    before = first.read_bytes()
    j.append(note(2))
    assert first.read_bytes() == before
    records = read_whole(j.path, tmp_path)
    assert notes_in(records) == ["note 2"]
    assert [h.file for h in records[0].payload.previous] == [f"{j.segment}/{first.name}"]
    assert verify(tmp_path).damage == []


def test_a_torn_line_is_set_aside_and_the_lines_before_it_are_read(tmp_path: Path) -> None:
    j = journal(tmp_path)
    for n in range(3):
        j.append(note(n))
    raw = lines(j.path)
    put_lines(j.path, raw[:-1])
    with j.path.open("ab") as f:
        f.write(raw[-1][:100])
    records, damage = scan.read_file(j.path, tmp_path)
    assert notes_in(records) == ["note 0", "note 1"]
    assert [(d.code, d.file, d.line) for d in damage] == [("LIN-J001", j.file, 4)]
    assert "100 bytes without a newline" in damage[0].text
